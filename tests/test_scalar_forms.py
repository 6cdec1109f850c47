"""Overloads that take a Python number where others take a tensor, and integers' own ops: values as on CPU PyTorch."""

import math

import pytest
import torch
from comparison import Comparison

import torch_tpu

aten = torch.ops.aten
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
NAN, INF = math.nan, math.inf

POLYNOMIALS = [
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


def test_polynomials_of_a_number():
    calls = Comparison(rtol=2e-5, atol=2e-5)
    x = torch.tensor([-1.5, -1.0, -0.4, 0.0, 0.3, 0.75, 1.0, 1.25])
    degrees = torch.tensor([-1.0, 0, 1, 2, 3, 4, 5, 6])
    for name in POLYNOMIALS:
        f = getattr(torch.special, name)
        calls.add(f"{name} of degree 5", lambda x, f=f: f(x, 5), x)
        calls.add(f"{name} of 0.3", lambda n, f=f: f(0.3, n), degrees)
    for n in (-1, 0, 1, 2):
        calls.add(f"Hermite of degree {n}", lambda x, n=n: torch.special.hermite_polynomial_h(x, n), x)
    calls.add("of integers", lambda x: torch.special.laguerre_polynomial_l(x, 3), torch.tensor([-2, 0, 1, 2]))
    calls.add("in float64", lambda n: torch.special.legendre_polynomial_p(0.3, n), degrees.double())
    assert calls.finish() == 2 * 12 + 6


# op -> numbers to stand for its other operand
OF_FLOATS = {
    aten.xlogy.Scalar_Other: (0, 2, 0.5, -1.0, NAN),
    aten.xlogy.Scalar_Self: (0, 2, 0.5, -1.0, NAN),
    aten.special_xlog1py.other_scalar: (0, 2, -0.5, -2.0, NAN),
    aten.special_xlog1py.self_scalar: (0, 2, -0.5, -2.0, NAN),
    aten.copysign.Scalar: (-1, 0.0, -0.0, 2.5),
    aten.fmod.Scalar: (2, -1.5, 0.0, INF),
    aten.remainder.Scalar: (2, -1.5, 0.0, INF),
    aten.remainder.Scalar_Tensor: (2, -1.5, 0.0),
    aten.floor_divide.Scalar: (2, -1.5, 0.0),
}
NUMBERS = torch.tensor([-3.5, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.25, 7.0, INF, -INF, NAN])


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_and_a_number(dtype):
    calls = Comparison(**({} if dtype != torch.float32 else {"rtol": 2e-6, "atol": 1e-6}))
    x = NUMBERS.to(dtype)
    number_first = (aten.xlogy.Scalar_Self, aten.special_xlog1py.self_scalar, aten.remainder.Scalar_Tensor)
    for op, numbers in OF_FLOATS.items():
        for n in numbers:
            if op not in number_first:
                calls.add(f"{op} with {n}", lambda x, op=op, n=n: op(x, n), x)
            else:
                calls.add(f"{op} of {n}", lambda x, op=op, n=n: op(n, x), x)
    if dtype in (torch.float32, torch.float64):
        for n in (0.5, 1, 2, 3.5):
            calls.add(f"zeta with {n}", lambda x, n=n: torch.special.zeta(x, n), x)
            calls.add(f"zeta of {n}", lambda x, n=n: torch.special.zeta(n, x), x)
    for mode in (None, "trunc", "floor"):
        for n in (2, -1.5, 0.0):
            calls.add(f"div {mode} {n}", lambda x, m=mode, n=n: aten.div.Scalar_mode(x, n, rounding_mode=m), x)
    calls.finish()


def test_the_relu_of_a_sum():
    """Of finite numbers: CPU PyTorch makes NaN 0 and infinity the largest number."""
    calls = Comparison()
    for dtype in (torch.float32, torch.float64):
        x = NUMBERS[NUMBERS.isfinite()].to(dtype)
        calls.add(f"{dtype} of tensors", lambda x: aten._add_relu.Tensor(x, x.flip(0), alpha=2), x)
        for n in (0, 1, -0.5):
            calls.add(f"{dtype} with {n}", lambda x, n=n: aten._add_relu.Scalar(x, n, alpha=2), x.reshape(3, 3))
            calls.add(f"{dtype} with {n} in place", lambda x, n=n: aten._add_relu_.Scalar(x.clone(), n), x)
    assert calls.finish() == 2 * 7


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_and_a_number(dtype):
    calls = Comparison()
    low = 0 if dtype == torch.uint8 else -7
    x = torch.tensor([low, 1, 2, 3, 5, 7, 100, torch.iinfo(dtype).max, torch.iinfo(dtype).min]).to(dtype)
    nonzero = x.masked_fill(x == 0, 4)
    for n in (3, 2, -2, 1.5):
        calls.add(f"fmod {n}", lambda x, n=n: aten.fmod.Scalar(x, n), x)
        calls.add(f"remainder {n}", lambda x, n=n: aten.remainder.Scalar(x, n), x)
        calls.add(f"remainder of {n}", lambda x, n=n: aten.remainder.Scalar_Tensor(n, x), nonzero)
        calls.add(f"floor_divide {n}", lambda x, n=n: aten.floor_divide.Scalar(x, n), x)
        calls.add(f"copysign {n}", lambda x, n=n: aten.copysign.Scalar(x, n), x)
        calls.add(f"xlogy {n}", lambda x, n=n: aten.xlogy.Scalar_Other(x, abs(n)), x)
        for mode in (None, "trunc", "floor"):
            calls.add(f"div {mode} {n}", lambda x, m=mode, n=n: aten.div.Scalar_mode(x, n, rounding_mode=m), x)
    for op in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor):
        calls.add(op, op, x, x.flip(0))
        for n in (6, -3):
            calls.add(f"{op} {n}", lambda x, op=op, n=n: op(x, n), x)
            calls.add(f"{op} of {n}", lambda x, op=op, n=n: op(n, x), x)
    calls.add("gcd", torch.gcd, x, x.flip(0))
    calls.add("lcm", torch.lcm, x[:6], x[:6].flip(0))
    calls.add("gcd in place", lambda x, y: x.clone().gcd_(y), x, x.flip(0))
    calls.finish()


SHIFTS = {
    "left": (torch.bitwise_left_shift, aten.__lshift__, aten.__ilshift__),
    "right": (torch.bitwise_right_shift, aten.__rshift__, aten.__irshift__),
}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype):
    """Of bits that are there: CPU PyTorch leaves the rest to the C++ compiler."""
    calls = Comparison()
    bits = torch.iinfo(dtype).bits
    x = torch.tensor([1, 2, 3, 5, 77, 100, 0, torch.iinfo(dtype).max, torch.iinfo(dtype).min]).to(dtype)
    by = torch.tensor([0, 1, 2, bits - 1, bits - 2, 3, 4, 1, 2]).to(dtype)
    for name, (named, operator, in_place) in SHIFTS.items():
        calls.add(f"{name} by tensor", named, x, by)
        calls.add(f"operator {name} by tensor", operator.Tensor, x, by)
        calls.add(f"in place {name} by tensor", lambda x, by, f=in_place: f.Tensor(x.clone(), by), x, by)
        for n in (0, 1, bits - 1):
            calls.add(f"{name} by {n}", lambda x, f=named, n=n: f(x, n), x)
            calls.add(f"operator {name} by {n}", lambda x, f=operator, n=n: f.Scalar(x, n), x)
            calls.add(f"in place {name} by {n}", lambda x, f=in_place, n=n: f.Scalar(x.clone(), n), x)
        for n in (1, 3, 100):
            calls.add(f"{name} of {n}", lambda by, f=named, n=n: f(n, by), by)
    assert calls.finish() == 2 * 15


def test_bools_are_shifted_as_int64():
    calls = Comparison()
    mask, by = torch.tensor([[True, False, True], [True, True, False]]), torch.arange(3)
    for name, f in (("<<", lambda x, n: x << n), (">>", lambda x, n: x >> n)):
        calls.add(f"{name} tensor", f, mask, by)
        calls.add(f"{name} tensor, transposed", f, mask.t(), by[:2])
        calls.add(f"{name} number", f, mask, 1)
        calls.add(f"{name} of floats", f, by.float(), 1)
    assert calls.finish() == 6


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float64])
def test_a_number_is_searched(dtype):
    calls = Comparison()
    edges = torch.tensor([1, 3, 3, 5, 9]).to(dtype)
    shuffled, order = torch.tensor([9, 3, 1, 5, 3]).to(dtype), torch.tensor([2, 1, 4, 3, 0])
    for n in (0, 1, 3, 4, 9, 10, 3.5):
        for right in (False, True):
            calls.add(f"bucketize {n}", lambda e, n=n, r=right: torch.bucketize(n, e, right=r), edges)
            calls.add(f"searchsorted {n}", lambda e, n=n, r=right: torch.searchsorted(e, n, right=r), edges)
        calls.add(f"in int32 {n}", lambda e, n=n: torch.bucketize(n, e, out_int32=True), edges)
        sorted_by = lambda e, o, n=n: torch.searchsorted(e, n, side="right", sorter=o, out_int32=True)  # noqa: E731
        calls.add(f"with a sorter {n}", sorted_by, shuffled, order)
        for invert in (False, True):
            calls.add(f"isin {n}", lambda e, n=n, i=invert: torch.isin(e, n, invert=i), edges)
            calls.add(f"isin of {n}", lambda e, n=n, i=invert: torch.isin(n, e, invert=i), edges)
    assert calls.finish() == 7 * 10


FILLS = {
    "masked_fill": lambda x, value: x.masked_fill(torch.arange(4, device=x.device) > 1, value),
    "masked_fill_": lambda x, value: x.clone().masked_fill_(torch.arange(4, device=x.device) > 1, value),
    "index_fill": lambda x, value: x.index_fill(0, torch.tensor([3, 0], device=x.device), value),
    "index_fill_": lambda x, value: x.clone().index_fill_(0, torch.tensor([3, 0], device=x.device), value),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
def test_fills_take_a_tensor_of_the_host_as_the_value(name, dtype):
    x = torch.tensor([0, 1, 0, 1]).to(dtype)
    value = torch.tensor(1).to(dtype)
    assert torch.equal(FILLS[name](x.to("tpu"), value).cpu(), FILLS[name](x, value))
    assert torch.equal(FILLS[name](x.to("tpu"), value.to("tpu")).cpu(), FILLS[name](x, value))


@pytest.mark.parametrize("name", FILLS)
def test_another_value_of_the_host_compiles_nothing(name):
    x = torch.arange(4.0, device="tpu")
    FILLS[name](x, torch.tensor(2.0)).cpu(), FILLS[name](x, torch.tensor(3.0)).cpu()
    before = torch_tpu._C.counters()["compiles"]
    assert FILLS[name](x, torch.tensor(4.5)).cpu()[3] == 4.5
    assert torch_tpu._C.counters()["compiles"] == before


@pytest.mark.parametrize("name", FILLS)
def test_a_value_of_several_elements_is_refused_as_on_cpu(name):
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="0-dimension") as here:
        FILLS[name](x, torch.ones(2))
    with pytest.raises(RuntimeError, match="0-dimension") as there:
        FILLS[name](x.to("tpu"), torch.ones(2).to("tpu"))
    assert type(there.value) is type(here.value)
