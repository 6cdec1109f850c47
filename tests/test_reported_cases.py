"""Cases made from public bug reports about such backends: the same result on ``tpu`` as on CPU."""

import math

import pytest
import torch
from reported_cases import CASES
from torch.utils._pytree import tree_flatten

NEEDS_A_PROCESS_GROUP = {"distributed"}


def compare(actual, expected, tolerance) -> None:
    actual, shape = tree_flatten(actual)
    expected, expected_shape = tree_flatten(expected)
    assert shape == expected_shape
    for a, e in zip(actual, expected, strict=True):
        if isinstance(e, torch.Tensor):
            assert a.dtype == e.dtype and a.shape == e.shape
            a, e = a.detach().cpu(), e.detach().cpu()
            wide = torch.complex128 if e.is_complex() else torch.float64
            atol, rtol = tolerance if e.is_floating_point() or e.is_complex() else (0, 0)
            torch.testing.assert_close(a.to(wide), e.to(wide), atol=atol, rtol=rtol, equal_nan=True)
        elif isinstance(e, float):
            assert a == e or (math.isnan(a) and math.isnan(e)) or abs(a - e) <= tolerance[0] + tolerance[1] * abs(e)
        else:
            assert type(a) is type(e) and a == e


@pytest.mark.parametrize("case", [c for c in CASES if c["area"] not in NEEDS_A_PROCESS_GROUP], ids=lambda c: c["id"])
def test_as_on_cpu(case):
    actual = case["fn"]("tpu")
    compare(actual, case["fn"]("cpu"), case["tol"])
