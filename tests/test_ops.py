"""PyTorch's own OpInfo database against CPU PyTorch: a fixed part of it; ``make test-ops`` runs all.

What does not pass yet stands in gaps.toml with a reason. A listed check that passes is a failure, so that
nobody lists what works.
"""

import os

import op_check
import pytest
from gaps import GAPS, gap_for

OPS = {op_check.full_name(op): op for op in op_check.entries()}
SAMPLES = int(os.environ.get("TORCH_TPU_TEST_SAMPLES", "2"))


def check(name: str, dtype: str, kind: str) -> None:
    reason = gap_for(name, dtype, kind)
    try:
        op_check.check(OPS[name], op_check.DTYPES[dtype], kind, SAMPLES)
    except op_check.Skip as skip:
        pytest.skip(str(skip))
    except Exception as error:
        if reason is None:
            raise
        pytest.xfail(f"{reason} ({type(error).__name__})")
    if reason is not None:
        pytest.fail(f"{name} {dtype} {kind} passes; take it off gaps.toml")


def names(kind: str, dtype: str = "float32") -> list[str]:
    d = op_check.DTYPES[dtype]
    return [n for n, op in OPS.items() if op_check.supported(op, d) and kind in op_check.kinds_for(op, d)]


@pytest.mark.parametrize("name", names("forward"))
def test_forward(name):
    check(name, "float32", "forward")


# Every third entry, so that the default run stays short; the sweep takes all.
@pytest.mark.parametrize("name", names("gradient")[::3])
def test_gradient(name):
    check(name, "float32", "gradient")


@pytest.mark.parametrize("name", names("inplace")[::4])
def test_inplace(name):
    check(name, "float32", "inplace")


@pytest.mark.parametrize("name", names("out")[::5])
def test_out(name):
    check(name, "float32", "out")


# A third of the entries that have reference inputs: broadcasts, extremal values, views, promotion.
@pytest.mark.parametrize("name", [n for n in names("reference")[1::3] if not gap_for(n, "float32", "reference")])
def test_reference_inputs(name):
    check(name, "float32", "reference")


ERRORS = [(n, d) for d in op_check.DTYPES for n in names("errors", d)]


@pytest.mark.parametrize(("name", "dtype"), ERRORS)
def test_errors(name, dtype):
    check(name, dtype, "errors")


OTHER = [(n, d) for d in ("bfloat16", "int64", "bool", "complex64") for n in names("forward", d)[::6]]


@pytest.mark.parametrize(("name", "dtype"), OTHER)
def test_other_dtypes(name, dtype):
    check(name, dtype, "forward")


def test_gaps_name_entries_that_exist():
    assert {gap["entry"] for gap in GAPS} <= set(OPS)
    assert all(gap["reason"].strip() for gap in GAPS)
