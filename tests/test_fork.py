"""Forking: a clear error in a child that touches a device its parent had opened; never a hang."""

from tests.process import run_python

# Runs each snippet in a forked child of its own. A child's exit status: 0 if the snippet passed,
# 3 if it raised the error that says what to do, 4 if another.
FORKS = """
    import os, torch
    {before}
    codes = []
    for snippet in {snippets!r}:
        pid = os.fork()
        if pid == 0:
            try:
                exec(snippet)
                code = 0
            except RuntimeError as error:
                code = 3 if "forked child" in str(error) and "spawn" in str(error) else 4
            os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(codes, torch.ones(2, device="tpu").sum().item())
"""
OPENED = "x = torch.ones(2, device='tpu'); x.cpu()"


def in_children(*snippets: str, before: str = OPENED) -> str:
    return run_python(FORKS.format(before=before, snippets=snippets))


def test_each_touch_is_refused():
    codes = in_children(
        "torch.ones(2, device='tpu').cpu()",
        "x.cpu()",
        "(x + 1).cpu()",
        "torch.ones(2).to('tpu').cpu()",
        "torch.tpu.synchronize()",
        "torch.tpu.init()",
        "torch.tpu.get_device_name()",
    )
    assert codes == f"{[3] * 7} 2.0"


def test_what_needs_no_device_works():
    codes = in_children(
        "torch.manual_seed(1); torch.rand(3)",
        "torch.tpu.is_available(); torch.tpu.device_count(); torch.tpu.memory_allocated()",
        "global x; del x; import gc; gc.collect()",
        "torch.ones(3).pin_memory()",
        "w = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([w]); w.sum().backward(); o.step()",
    )
    assert codes == f"{[0] * 5} 2.0"


def test_a_child_of_a_parent_with_recorded_work_does_not_run_it():
    codes = in_children(
        "w = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([w]); w.sum().backward(); o.step()",
        before=OPENED + "; y = x + 1",
    )
    assert codes == "[0] 2.0"


def test_a_child_forked_before_the_first_use_may_use_the_device():
    assert in_children("assert torch.ones(3, device='tpu').sum().item() == 3", before="") == "[0] 2.0"
