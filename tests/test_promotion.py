"""Type promotion and integer arithmetic are CPU PyTorch's, for every pair of dtypes and kind of operand."""

import operator

import pytest
import torch
from comparison import Comparison

import torch_tpu

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
NUMBERS = (True, 3, -2, 2.5, 1 - 2j)

# What a few dtypes of each kind show; addition takes them all.
FEW = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.complex64)
OPS = {
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "less": torch.lt,
    "equal": torch.eq,
    "and": torch.bitwise_and,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "logical_xor": torch.logical_xor,
    "hypot": torch.hypot,
    "where": lambda a, b: torch.where(torch.tensor([True, False, True, False], device=b.device), a, b),
}
DIVIDES = ("divide", "floor_divide", "remainder", "fmod")


def sample(dtype: torch.dtype, shift: int = 0) -> torch.Tensor:
    """Four elements without zero; 0-d: the second of them."""
    values = torch.tensor([1, 7, -3, 5]).roll(shift)
    if dtype == torch.bool:
        return values > 0
    return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)


def test_every_pair_of_dtypes_is_added_in_the_dtype_of_cpu():
    calls = Comparison()
    for a in DTYPES:
        for b in DTYPES:
            x, y = sample(a), sample(b, 1)
            calls.add(f"{a} + {b}", torch.add, x, y)
            calls.add(f"{a} + 0-d {b}", torch.add, x, y[1])
            if a in FEW and b in FEW:
                calls.add(f"{a} + 0-d {b} on the CPU", torch.add, x, y[1].clone(), host=(1,))
                calls.add(f"0-d {a} on the CPU + {b}", torch.add, x[1].clone(), y, host=(0,))
    assert calls.finish() > 2 * (len(DTYPES) ** 2 + len(FEW) ** 2) - 20


@pytest.mark.parametrize("name", OPS)
def test_operations_promote_as_on_cpu(name):
    calls = Comparison()
    for a in FEW:
        for b in FEW:
            x, y = sample(a), sample(b, 1)
            if name in DIVIDES and b == torch.bool:
                y |= True
            calls.add(f"{name} of {a}, {b}", OPS[name], x, y)
    assert calls.finish() > 0


def test_python_numbers_promote_as_on_cpu():
    calls = Comparison()
    for dtype in DTYPES:
        for number in NUMBERS:
            if dtype == torch.float16 and isinstance(number, complex):
                continue  # ComplexHalf, which XLA has not
            for name in ("add", "truediv", "sub", "pow"):
                f = getattr(operator, name)
                if name == "pow" and (
                    dtype == torch.bool or (number == -2 and not dtype.is_floating_point and not dtype.is_complex)
                ):
                    continue
                calls.add(f"{dtype} {name} {number}", lambda x, f=f, n=number: f(x, n), sample(dtype))
                calls.add(f"{number} {name} {dtype}", lambda x, f=f, n=number: f(n, x), sample(dtype))
                if name == "add":
                    calls.add(f"0-d {dtype} {name} {number}", lambda x, f=f, n=number: f(x, n), sample(dtype)[1])
    assert calls.finish() > 400


def test_a_default_dtype_is_what_numbers_become():
    for default in (torch.float64, torch.bfloat16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(default)
        try:
            x = torch.arange(1, 4, device="tpu")
            assert (
                (x * 0.5).dtype
                == x.sqrt().dtype
                == (x / 2).dtype
                == torch.full((2,), 0.5, device="tpu").dtype
                == default
            )
        finally:
            torch.set_default_dtype(before)
    assert (torch.arange(3, device="tpu") * 0.5).dtype == torch.float32


def test_in_place_results_must_fit():
    x = torch.tensor([1, 2], device="tpu")
    for refused in (
        lambda: x.add_(0.5),
        lambda: x.div_(2),
        lambda: x.mul_(1j),
        lambda: torch.add(x, 0.5, out=x.clone()),
    ):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            refused()
    assert x.add_(True).tolist() == [2, 3]
    y = torch.tensor([1.5], dtype=torch.float16, device="tpu")
    assert y.add_(torch.tensor([0.25], dtype=torch.float64, device="tpu")).dtype == torch.float16 and y.item() == 1.75


def test_integers_divide_with_the_signs_of_cpu():
    calls = Comparison()
    numerators = torch.tensor([7, -7, 7, -7, 0, 6, -6, 1, -1])
    divisors = torch.tensor([2, 2, -2, -2, 3, 3, 3, 7, 7])
    for dtype in (
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ):
        a, b = numerators.to(dtype), divisors.to(dtype)
        for rounding in (None, "floor", "trunc"):
            calls.add(f"{dtype} divided, {rounding}", lambda x, y, r=rounding: torch.div(x, y, rounding_mode=r), a, b)
            calls.add(f"{dtype} divided by -2, {rounding}", lambda x, r=rounding: torch.div(x, -2, rounding_mode=r), a)
        for f in (torch.remainder, torch.fmod, torch.floor_divide):
            calls.add(f"{f.__name__} {dtype}", f, a, b)
            calls.add(f"{f.__name__} {dtype}, -2", lambda x, f=f: f(x, -2), a)
            calls.add(f"{f.__name__} {dtype}, 0-d", f, a, b[2])
        calls.add(f"7 % {dtype}", lambda y: 7 % y, b)
        calls.add(f"-7 // {dtype}", lambda y: -7 // y, b)
    assert calls.finish() > 100


def test_floating_division_by_zero_and_of_infinity():
    calls = Comparison()
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 5.5, -5.5])
    a, b = values.repeat_interleave(9), values.repeat(9)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for f in (
            torch.div,
            torch.remainder,
            torch.fmod,
            torch.floor_divide,
            torch.maximum,
            torch.fmin,
            torch.pow,
            torch.atan2,
        ):
            calls.add(f"{f.__name__} {dtype}", f, a.to(dtype), b.to(dtype))
    assert calls.finish() == 24


def test_integers_wrap_around():
    calls = Comparison()
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = torch.tensor(
            [info.min, info.min + 1, -1 % 2**8 if dtype == torch.uint8 else -1, 0, 1, info.max - 1, info.max],
            dtype=dtype,
        )
        for name in ("add", "sub", "mul"):
            calls.add(f"{name} {dtype}", getattr(torch, name), x, x.flip(0))
            calls.add(f"{name} {dtype}, 3", lambda t, name=name: getattr(torch, name)(t, 3), x)
        calls.add(f"negative {dtype}", torch.neg, x)
        calls.add(f"absolute {dtype}", torch.abs, x)
        calls.add(f"square {dtype}", torch.square, x)
        calls.add(f"sum {dtype}", lambda t: t.sum(dtype=t.dtype), x)
        calls.add(f"shifted {dtype}", lambda t: t << 1, x)
        calls.add(f"not {dtype}", torch.bitwise_not, x)
        for other in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float32):
            calls.add(f"{dtype} to {other}", lambda t, o=other: t.to(o), x)
    assert calls.finish() == 5 * 19


def test_bool_arithmetic():
    calls = Comparison()
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for f in (
        torch.add, torch.mul, torch.maximum, torch.minimum, torch.bitwise_xor, torch.logical_and, torch.div, torch.eq, torch.lt,
        torch.sub,  # refused
    ):  # fmt: skip
        calls.add(f.__name__, f, a, b)
    for f in (
        torch.neg,
        torch.bitwise_not,
        torch.logical_not,
        torch.sum,
        torch.cumsum,
        torch.prod,
        torch.sign,
        torch.sin,
    ):
        calls.add(f.__name__, (lambda x: torch.cumsum(x, 0)) if f is torch.cumsum else f, a)
    calls.add("sum as bool", lambda x: torch.sum(x, dtype=torch.bool), a)
    assert calls.finish() > 12


def test_result_type_asks_no_device():
    transfers = torch_tpu.counters()["host_reads"]
    x = torch.zeros(2, dtype=torch.int32, device="tpu")
    assert torch.result_type(x, 1.5) == torch.float32
    assert torch.result_type(x, torch.tensor(1, dtype=torch.int64)) == torch.int32
    assert torch.can_cast(torch.int32, torch.float16)
    assert torch_tpu.counters()["host_reads"] == transfers
