"""Forking: a clear error in a child that touches a device its parent had opened; never a hang."""

from tests.process import run_python

IN_CHILD = """
    import os, sys, torch
    {before}
    pid = os.fork()
    if pid == 0:
        try:
            {child}
            code = 0
        except RuntimeError as error:
            code = 3 if "forked child" in str(error) and "spawn" in str(error) else 4
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), torch.ones(2, device="tpu").sum().item())
"""


def in_child(child: str, before: str = "x = torch.ones(2, device='tpu'); x.cpu()") -> str:
    return run_python(IN_CHILD.format(before=before, child=child))


def test_each_touch_is_refused():
    for touch in (
        "torch.ones(2, device='tpu').cpu()",
        "x.cpu()",
        "(x + 1).cpu()",
        "torch.ones(2).to('tpu').cpu()",
        "torch.tpu.synchronize()",
        "torch.tpu.init()",
        "torch.tpu.get_device_name()",
    ):
        assert in_child(touch) == "3 2.0", touch


def test_what_needs_no_device_works():
    for harmless in (
        "torch.manual_seed(1); torch.rand(3)",
        "torch.tpu.is_available(); torch.tpu.device_count(); torch.tpu.memory_allocated()",
        "del x; import gc; gc.collect()",
        "torch.ones(3).pin_memory()",
    ):
        assert in_child(harmless) == "0 2.0", harmless


def test_a_child_forked_before_the_first_use_may_use_the_device():
    assert in_child("assert torch.ones(3, device='tpu').sum().item() == 3", before="pass") == "0 2.0"
