"""torch_tpu.explain(): what caused what, with the line of Python."""

import inspect

import pytest
import torch
from process import run_python

import torch_tpu
from torch_tpu import _C


def line() -> int:
    """The caller's line."""
    return inspect.currentframe().f_back.f_lineno


def test_a_flush_names_its_cause_and_line():
    with torch_tpu.mode("defer"):
        x = torch.ones(3, 11, device="tpu")
        x = x * 2 + 1
        torch.tpu.synchronize()
        here = line() - 1
    flush = torch_tpu.explain().flushes[-1]
    assert flush.cause == "synchronize()" and flush.calls == 3
    assert flush.where.endswith(f"test_explain.py:{here}")


def test_a_read_by_the_host_is_told_with_its_type_and_count():
    with torch_tpu.mode("defer"):
        x = torch.ones(3, 5, device="tpu")
        for _ in range(4):
            x.cpu()
            here = line() - 1
    read = torch_tpu.explain().host_reads[-1]
    assert (read.type, read.count) == ("tensor<3x5xf32>", 4)
    assert read.where.endswith(f"test_explain.py:{here}")
    assert torch_tpu.explain().flushes[-1].cause == "a value is read by the host"


def test_a_compile_tells_which_part_of_its_key_changed():
    with torch_tpu.mode("defer"):
        for n in (21, 22):
            x = torch.arange(2.0 * n).reshape(2, n).to("tpu")
            ((x + 1).tanh() * x).cpu()
    made = torch_tpu.explain().compiles[-1]
    assert made.source == "compiled" and made.calls == 3
    assert [str(c) for c in made.changes] == [
        "input 0: tensor<2x21xf32> → tensor<2x22xf32>",
        "result 0: tensor<2x21xf32> → tensor<2x22xf32>",
    ]


def test_another_list_of_calls_is_told_by_the_first_that_differs():
    with torch_tpu.mode("defer"):
        x = torch.arange(23.0).to("tpu")
        x.exp().sin().cos().cpu()
        x.exp().sin().tan().cpu()
    made = torch_tpu.explain().compiles[-1]
    assert [str(c) for c in made.changes] == ["call 2: aten::cos → aten::tan"]


def test_donation_is_a_part_of_the_key():
    with torch_tpu.mode("defer"):
        x = torch.arange(29.0).to("tpu")
        y = x.exp()
        y.cpu()
        x = x.exp()
        x.cpu()
    made = torch_tpu.explain().compiles[-1]
    assert [str(c) for c in made.changes] == ["input 0: tensor<29xf32> → tensor<29xf32> given to result 0"]


def test_strict_mode_has_compiles_with_lines():
    with torch_tpu.mode("strict"):
        torch.ones(3, 31, device="tpu").exp2()
        here = line() - 1
    made = torch_tpu.explain().compiles[-1]
    assert made.key["calls"] == "aten::exp2"
    assert made.where.endswith(f"test_explain.py:{here}")


def test_a_compiled_graph_is_told():
    f = torch.compile(lambda x: (x * 3).exp(), backend="tpu")
    f(torch.ones(37, device="tpu"))
    made = torch_tpu.explain().compiles[-1]
    assert made.key["results"] == "tensor<37xf32>"


def test_steps_bound_the_report():
    model = torch.nn.Linear(3, 2).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch_tpu.mode("defer"):
        for _ in range(5):
            model(torch.ones(4, 3, device="tpu")).sum().backward()
            optimizer.step()
    told = torch_tpu.explain(2)
    ends = [f for f in told.flushes if f.cause == "an optimizer's step ends"]
    assert told.steps == 2 and len(ends) == 2
    assert all("test_explain.py" in f.where for f in ends)


def test_a_fallback_is_told(monkeypatch):
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "")
    missing = torch.library.Library("torch_tpu_explain", "DEF")
    missing.define("no_row(Tensor x) -> Tensor")
    missing.impl("no_row", lambda x: x + 1, "CPU")
    with torch_tpu.mode("defer"):
        torch.ops.torch_tpu_explain.no_row(torch.ones(2, device="tpu"))
        here = line() - 1
    told = torch_tpu.explain().fallbacks[-1]
    assert told.op.startswith("torch_tpu_explain::no_row(x: Float[2])")
    assert told.where.endswith(f"test_explain.py:{here}")


def test_it_reads_well_and_is_data():
    torch.ones(3, 41, device="tpu").cpu()
    told = torch_tpu.explain()
    text = str(told)
    assert "a value is read by the host" in text and "test_explain.py" in text
    assert told.as_dict()["flushes"][-1]["calls"] == told.flushes[-1].calls


def test_what_is_the_users_code_does_not_hang_on_a_folders_name():
    assert _C.is_users_code("/home/someone/torch_tpu/train.py")
    assert not _C.is_users_code(torch_tpu.__file__)
    assert not _C.is_users_code(torch.nn.functional.__file__)


def test_dumped_calls_are_modules_of_their_own(tmp_path):
    code = """
        import torch
        x = torch.arange(6.0, device="tpu").reshape(2, 3)
        print((x @ x.t()).tanh().sum().item())
    """
    run_python(code, TORCH_TPU_DUMP_CALLS=str(tmp_path))
    modules = [path.read_text() for path in tmp_path.iterdir()]
    assert {"// aten::mm", "// aten::tanh", "// aten::sum"} <= {module.split("\n")[0] for module in modules}
    compiler = pytest.importorskip("jax._src.interpreters.mlir")
    for module in modules:
        with compiler.make_ir_context():
            assert compiler.ir.Module.parse(module).operation.verify()
