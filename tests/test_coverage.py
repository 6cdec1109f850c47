"""What is said about ops: ``torch_tpu.ops()``, the page made of it, and the TPU compiler's table."""

import sys
from pathlib import Path

import pytest
import torch

import torch_tpu
from torch_tpu import _coverage

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import ops_page  # noqa: E402


@pytest.fixture(scope="module")
def by_name() -> dict[str, torch_tpu.Op]:
    return {op.name: op for op in torch_tpu.ops()}


def test_every_aten_overload_of_the_dispatcher_is_there_once(by_name):
    known = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert set(by_name) == known
    assert len(torch_tpu.ops()) == len(known)


def test_totals_add_up(by_name):
    totals = _coverage.totals(by_name.values())
    assert sum(totals.values()) == len(by_name)
    assert totals == {how: len(torch_tpu.ops(how)) for how in _coverage.RULE}
    assert len(torch_tpu.ops(["fallback", "none"])) == totals["fallback"] + totals["none"]


def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match=r"how=\['nativ'\]: expected some of"):
        torch_tpu.ops("nativ")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("aten::add.Tensor", "native"),
        ("aten::add_.Tensor", "native"),
        ("aten::add.out", "native"),
        ("aten::view", "native"),
        ("aten::index.Tensor", "native"),
        ("aten::copy_", "native"),
        ("aten::matmul", "composite"),
        ("aten::linalg_eig", "fallback"),
        ("aten::linalg_eig.out", "fallback"),
        ("aten::linalg_ldl_factor_ex", "fallback"),  # PyTorch's own kernel, which calls the out= form
        ("aten::linalg_eigvals", "fallback"),  # a composite that calls linalg_eig
        ("aten::cudnn_convolution", "none"),
    ],
)
def test_how_is_what_happens(by_name, name, how):
    assert by_name[name].how == how


def test_forms_of_an_op_share_its_row(by_name):
    for name in ("aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"):
        assert (by_name[name].row, by_name[name].source) == ("aten::add.Tensor", "csrc/lowerings/binary.cpp")


def test_sources_are_files_of_this_project(by_name):
    sources = {op.source for op in by_name.values() if op.how == "native"}
    assert [source for source in sorted(sources) if not (ROOT / source).is_file()] == []


def test_composites_name_ops_that_exist(by_name):
    called = {name for op in by_name.values() for name in op.through}
    assert called <= set(by_name)
    assert "aten::mm" in by_name["aten::matmul"].through
    assert by_name["aten::matmul"].method == "traced"


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("aten::rand_like.out", ("aten::rand_like", "aten::copy_")),  # a factory: its out= form has no dtype and device
        ("aten::_fused_adam", ("aten::clone", "aten::_fused_adam_")),  # a functional form of what writes
    ],
)
def test_what_generated_forms_call(by_name, name, calls):
    assert (by_name[name].through, by_name[name].method) == (calls, "generated")


def test_what_does_not_run_natively_says_why(by_name):
    assert [op.name for op in by_name.values() if op.how in ("fallback", "none") and not op.reason] == []


def test_what_the_table_calls_native_needs_no_fallback():
    before = torch_tpu.counters()["fallbacks"]
    x = torch.rand(3, 3, device="tpu")
    torch.linalg.qr(x), x.cumsum(0), torch.special.i0e(x), x.sort()
    torch.tpu.synchronize()
    assert torch_tpu.counters()["fallbacks"] == before


def test_what_the_table_calls_fallback_is_one():
    with pytest.raises(NotImplementedError, match="no lowering for aten::linalg_eig"):
        torch.linalg.eig(torch.rand(3, 3, device="tpu"))


def test_the_page_is_fresh():
    assert ops_page.PAGE.read_text() == ops_page.page(), "write it anew: python tools/ops_page.py"


def test_at_least_900_overloads_are_native():
    assert len(torch_tpu.ops("native")) >= 900


def test_rows_compile_for_a_tpu():
    table = _coverage.tpu_compilation()
    rows = {op.row for op in torch_tpu.ops("native") if op.row}
    assert set(table.rows) <= rows, "rows that no longer exist: run tools/check_tpu_compile.py"
    assert len(table.rows) / len(rows) >= 0.98, sorted(rows - set(table.rows))
    for i, dtype in enumerate(table.dtypes):
        said = [cells[i] for cells in table.rows.values() if cells[i] != "-"]
        assert len(said) > (300 if dtype in ("float32", "bfloat16") else 0)
        assert sum(cell.startswith("ok") for cell in said) / len(said) >= 0.97, dtype
