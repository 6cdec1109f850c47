"""Numbers behave as on CPU PyTorch: rounding, NaN, signed zeros, infinities, ties, and what reductions compute in."""

import math

import pytest
import scipy.special
import torch
from comparison import Comparison

import torch_tpu.aot

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("dtype", FLOATS)
def test_halves_are_rounded_to_even(dtype):
    calls = Comparison(signs=True)
    halves = torch.tensor([-2.5, -1.5, -0.5, -0.25, -0.0, 0.0, 0.5, 1.5, 2.5, 3.5, 0.49, INF, -INF, NAN], dtype=dtype)
    for f in (torch.round, torch.floor, torch.ceil, torch.trunc, torch.frac):
        calls.add(f.__name__, f, halves)
    for decimals in (1, -1):
        calls.add(f"{decimals} decimals", lambda x, d=decimals: torch.round(x, decimals=d), halves * 5)
    calls.add("to int", lambda x: x[:-3].to(torch.int32), halves)
    calls.add(
        "fake quantized", lambda x: torch.fake_quantize_per_tensor_affine(x, 1.0, 0, -128, 127), halves[:-3].float()
    )
    assert calls.finish() == 9


def test_narrower_floats_round_to_even():
    calls = Comparison(signs=True, rtol=0, atol=0)
    x = torch.tensor([1 + 2**-9, 1 + 3 * 2**-9, -1 - 2**-9, 65519.0, 65520.0, 3.4e38, 1e-8, -1e-46])
    for dtype in (torch.bfloat16, torch.float16):
        calls.add(f"to {dtype}", lambda x, d=dtype: x.to(d), x)
    calls.add("to float32", lambda x: x.float(), torch.tensor([1 + 2**-24, 1 + 3 * 2**-24, 1e39], dtype=torch.float64))
    calls.add("int to float32", lambda x: x.float(), torch.tensor([2**24 + 1, 2**24 + 3, 2**53 + 1, -(2**63)]))
    assert calls.finish() == 4


HAS_NAN = torch.tensor([[3.0, NAN, -INF, 1.0], [NAN, 2.0, NAN, INF], [1.0, 1.0, 0.0, -5.0]])
OF_NAN = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max_of_rows": lambda x: tuple(x.max(1)),
    "min_of_rows": lambda x: tuple(x.min(1)),
    "amax": lambda x: x.amax(0),
    "aminmax": lambda x: tuple(torch.aminmax(x, dim=1)),
    "argmax": lambda x: x.argmax(),
    "argmin_of_rows": lambda x: x.argmin(1),
    "sort": lambda x: tuple(x.sort(dim=1, stable=True)),
    "sort_descending": lambda x: tuple(x.sort(dim=1, descending=True, stable=True)),
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "msort": lambda x: x.msort(),
    "topk": lambda x: x.topk(3, 1).values,
    "topk_smallest": lambda x: x.topk(3, 1, largest=False).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "median": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(1).values,
    "nansum": lambda x: x.nansum(1),
    "nanmean": lambda x: x.nanmean(1),
    "cummax": lambda x: tuple(x.cummax(1)),
    "cummin": lambda x: tuple(x.cummin(1)),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
    "fmax": lambda x: torch.fmax(x, x.flip(1)),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_by_nan": lambda x: torch.zeros_like(x).clamp(min=x),
    "relu": lambda x: x.relu(),
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x),
    "hardtanh": lambda x: torch.nn.functional.hardtanh(x),
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x[None], 2, return_indices=True),
    "adaptive_max_pool": lambda x: torch.nn.functional.adaptive_max_pool1d(x[None], 2),
    "norm": lambda x: torch.linalg.vector_norm(x, INF, 1),
    "any": lambda x: x.any(1),
    "nonzero": lambda x: x.nonzero(),
    "count_nonzero": lambda x: x.count_nonzero(1),
    "isclose": lambda x: torch.isclose(x, x.flip(0), equal_nan=True),
    "equal": lambda x: torch.equal(x, x),
    "unique": lambda x: x.unique(),
    "nan_to_num": lambda x: x.nan_to_num(),
    "softmax": lambda x: x.softmax(1),
    "searchsorted": lambda x: torch.searchsorted(torch.tensor([0.0, 1.0, 2.0], device=x.device), x),
    "bool": lambda x: x.bool(),
    "scatter_reduce": lambda x: torch.zeros(3, 2, device=x.device).scatter_reduce(
        1, torch.tensor([[0, 1, 0, 1]] * 3, device=x.device), x, "amax"
    ),
}


def test_nan_goes_where_it_goes_on_cpu():
    calls = Comparison()
    for name, f in OF_NAN.items():
        calls.add(name, f, HAS_NAN)
        if name not in ("searchsorted", "scatter_reduce"):
            calls.add(f"{name} in bfloat16", f, HAS_NAN.bfloat16())
    assert calls.finish() > 80


def test_among_equals_the_cpus_index_is_found():
    calls = Comparison()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        x = torch.tensor([[2, 5, 5, 1, 5, 1], [3, 3, 3, 3, 3, 3], [0, 1, 0, 1, 0, 1]]).to(dtype)
        for f in (
            torch.argmax,
            torch.argmin,
            lambda x: x.argmax(1),
            lambda x: x.argmin(0),
            lambda x: tuple(x.max(1)),
            lambda x: tuple(x.min(0)),
            lambda x: tuple(x.cummax(1)),
            lambda x: tuple(x.cummin(1)),
            lambda x: tuple(x.sort(dim=1, stable=True)),
            lambda x: tuple(x.sort(dim=1, stable=True, descending=True)),
            lambda x: x.argsort(dim=0, stable=True),
            lambda x: x.unique(return_inverse=True, return_counts=True),
            lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
        ):
            calls.add(dtype, f, x)
    calls.add("bool", lambda x: (*x.max(0), *x.min(0)), torch.tensor([False, True, True, False]))
    calls.add("pool", lambda x: torch.nn.functional.max_pool1d(x, 3, return_indices=True), torch.ones(1, 1, 9))
    calls.add("pool 2d", lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True), torch.ones(1, 1, 4, 4))
    assert calls.finish() == 4 * 13 + 3


def gradient_of(f):
    def gradient(x):
        x = x.clone().requires_grad_()
        f(x).sum().backward()
        return x.grad

    return gradient


def test_equals_share_the_gradient_as_on_cpu():
    calls = Comparison()
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    for f in (
        torch.max,
        torch.min,
        lambda x: x.amax(1),
        lambda x: x.amin(0),
        lambda x: x.max(1).values,
        lambda x: torch.maximum(x, x.flip(1)),
        lambda x: torch.fmin(x, torch.full_like(x, 2)),
        lambda x: x.clamp(2, 3),
        lambda x: torch.linalg.vector_norm(x, INF),
        lambda x: (x - x).abs(),
        lambda x: torch.nn.functional.relu(x - x),
        lambda x: (x - x).norm(),
        lambda x: x.cummax(1).values,
        lambda x: x.prod(),
        lambda x: (x - 2).prod(1),
        lambda x: torch.nn.functional.max_pool1d(x[None], 2),
    ):
        calls.add("gradient", gradient_of(f), x)
    assert calls.finish() == 16


SIGNED = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, -0.25, 0.25])
OF_ZEROS = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "sign": torch.sign,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "asinh": torch.asinh,
    "erf": torch.erf,
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "plus_zero": lambda x: x + 0.0,
    "minus_itself": lambda x: x[:4] - x[:4],
    "times_zero": lambda x: x[:4] * 0.0,
    "times_minus_one": lambda x: x * -1,
    "over_infinity": lambda x: x[:4] / INF,
    "one_over": lambda x: 1 / x,
    "atan2": lambda x: torch.atan2(x[:, None], x),
    "copysign": lambda x: torch.copysign(x[:, None], x),
    "fmod": lambda x: torch.fmod(x[:4], 1.0),
    "remainder": lambda x: torch.remainder(x[:4], 1.0),
    "remainder_of_negative": lambda x: torch.remainder(x[:4], -1.0),
    "floor_divide": lambda x: torch.floor_divide(x[:4], 2.0),
    "pow_3": lambda x: x**3,
    "pow_minus_1": lambda x: x**-1,
    "pow_half": lambda x: x**0.5,
    "prod": lambda x: x[1:4].prod(),
    "cumprod": lambda x: x[1:4].cumprod(0),
    "lerp": lambda x: torch.lerp(x[:4], x[:4], 0.5),
    "where": lambda x: torch.where(x == 0, x, 1.0),
    "signbit": torch.signbit,
    "float64": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "cat": lambda x: torch.cat([x, -x]),
    "equal_zeros": lambda x: x[:1] == x[1:2],
    "unique": lambda x: x[:2].unique(),
    "ldexp": lambda x: torch.ldexp(x, torch.ones_like(x)),
    "frexp": lambda x: torch.frexp(x[:4]).mantissa,
    "logit_of_half": lambda x: torch.logit(x[-1:] + 0.25),
    "heaviside": lambda x: torch.heaviside(x, torch.full_like(x, 7)),
    "sgn": torch.sgn,
}


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_zeros_keep_their_signs(dtype):
    calls = Comparison(signs=True)
    for name, f in OF_ZEROS.items():
        calls.add(name, f, SIGNED.to(dtype))
    assert calls.finish() == len(OF_ZEROS)


OF_INFINITIES = {
    "difference": lambda x: x - x,
    "product_with_zero": lambda x: x * 0,
    "quotient": lambda x: x / x,
    "remainder": lambda x: torch.remainder(x, 2),
    "fmod": lambda x: torch.fmod(x, 2),
    "fmod_by_infinity": lambda x: torch.fmod(torch.ones_like(x), x),
    "remainder_by_infinity": lambda x: torch.remainder(-torch.ones_like(x), x),
    "floor_divide": lambda x: torch.floor_divide(x, 2),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "cumsum": lambda x: x.cumsum(0),
    "logsumexp": lambda x: x[:1].logsumexp(0),
    "logsumexp_of_minus": lambda x: x[1:2].logsumexp(0),
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "logaddexp2": lambda x: torch.logaddexp2(x, x),
    "softmax": lambda x: x.softmax(0),
    "log_softmax_of_minus": lambda x: x[1:].log_softmax(0),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "atan": torch.atan,
    "softplus": torch.nn.functional.softplus,
    "logsigmoid": torch.nn.functional.logsigmoid,
    "silu": torch.nn.functional.silu,
    "elu": torch.nn.functional.elu,
    "mish": torch.nn.functional.mish,
    "hypot": lambda x: torch.hypot(x, torch.full_like(x, NAN)),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "pow": lambda x: x[:, None] ** torch.tensor([0.0, 1.0, -1.0, 2.0, INF, -INF], device=x.device),
    "power_of_one": lambda x: 1**x,
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "dist": lambda x: torch.dist(x, x),
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "erfinv": lambda x: torch.erfinv(torch.ones_like(x)),
    "xlogy": lambda x: torch.xlogy(torch.zeros_like(x), x),
    "isinf": lambda x: (x.isinf(), x.isposinf(), x.isneginf(), x.isfinite()),
    "nan_to_num": lambda x: x.nan_to_num(1.0, 2.0, 3.0),
    "matmul": lambda x: x @ torch.zeros_like(x),
    "complex_abs": lambda x: torch.complex(x, torch.full_like(x, NAN)).abs(),
}


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_infinities_meet_as_on_cpu(dtype):
    calls = Comparison()
    x = torch.tensor([INF, -INF, 1.0, NAN], dtype=dtype)
    for name, f in OF_INFINITIES.items():
        calls.add(name, f, x)
    assert calls.finish() == len(OF_INFINITIES)


def test_a_program_tells_the_zeros_of_its_numbers_apart():
    x = torch.ones(3, dtype=torch.float64, device="tpu")
    with torch_tpu.mode("strict"):
        seen = [torch.copysign(x, number).tolist() for number in (0.0, -0.0, 0.0)]
    assert seen == [[1] * 3, [-1] * 3, [1] * 3]


def test_float64_is_computed_in_float64():
    calls = Comparison(rtol=1e-13, atol=1e-300)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(8, 8, dtype=torch.float64, generator=generator) for _ in range(2))
    tiny = 1 + torch.arange(1, 5, dtype=torch.float64) * 2**-50
    for f in (
        torch.exp, torch.log, torch.sin, torch.tanh, torch.erf, torch.sqrt, torch.lgamma, torch.sigmoid, torch.atan,
        torch.rsqrt, torch.expm1, lambda x: x**1.5, torch.special.i0, torch.digamma, torch.erfinv,
    ):  # fmt: skip
        calls.add("of float64", f, a.sigmoid())
    calls.add("differences", lambda x: x - 1, tiny)
    calls.add("sum", lambda x: x.sum(), tiny - 1)
    calls.add("number", lambda x: x * 0.1 + 1e-300, tiny)
    calls.add("mm", torch.mm, a, b)
    calls.add("conv", lambda x, w: torch.nn.functional.conv2d(x.view(1, 1, 8, 8), w[:3, :3].reshape(1, 1, 3, 3)), a, b)
    calls.add("linspace", lambda x: torch.linspace(0, 1, 7, dtype=torch.float64, device=x.device), a)
    calls.add("softmax", lambda x: x.softmax(1), a)
    calls.add("solve", torch.linalg.solve, a, b)
    calls.add("large", lambda x: x * 1e300, tiny)
    calls.add("cumsum", lambda x: x.cumsum(0), a)
    calls.add("var", lambda x: x.var(0), a + 16)
    assert calls.finish() == 26


def test_integers_above_what_floats_hold():
    calls = Comparison(rtol=0, atol=0)
    x = torch.tensor([2**53 + 1, -(2**62) - 1, 2**31, 7])
    for f in (
        lambda x: x + 1,
        lambda x: x * 3,
        lambda x: x // 2,
        lambda x: x % 10,
        lambda x: x.sum(),
        lambda x: x.max(),
        lambda x: x.sort().values,
        lambda x: x >> 3,
        lambda x: x == 2**53,
        lambda x: x.cumsum(0),
        lambda x: x.clamp(max=2**53 + 1),
        lambda x: torch.div(x, 3, rounding_mode="trunc"),
        lambda x: torch.full_like(x, 2**62 + 1),
        lambda x: x @ x[[3, 3, 3, 3]],
        lambda x: torch.arange(2**53, 2**53 + 3, device=x.device),
        lambda x: x.to(torch.int32),
    ):
        calls.add("int64", f, x)
    assert calls.finish() == 16


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integer_powers(dtype):
    calls = Comparison()
    base = torch.tensor([0, 1, -1, 2, -2, 0, 0, -1, -1, 3, 7, -9, 5, -1, 3], dtype=dtype)
    exponent = torch.tensor([-1, -2, -3, -1, -2, -5, 0, -2, -4, -3, 63, 64, 40, 101, 127], dtype=dtype)
    calls.add("tensors", torch.pow, base, exponent)
    calls.add("number", lambda x: x**67, base)
    calls.add("of a number", lambda x: 3**x, exponent.abs())
    assert calls.finish() == 3


def test_reductions_have_the_cpus_dtype():
    calls = Comparison()
    for dtype in (torch.bool, *INTEGERS):
        x = torch.tensor([[1, 2, 100], [3, 100, 100]]).to(dtype)
        for f in (torch.sum, torch.prod, lambda x: x.cumsum(1), lambda x: x.cumprod(1), lambda x: x.sum(0)):
            calls.add(dtype, f, x)
        calls.add(dtype, lambda x: (x.sum(dtype=torch.float32), x.cumsum(0, dtype=torch.int16)), x)
        calls.add(dtype, lambda x: x.mean(dtype=torch.float32), x)
        if dtype != torch.bool:
            calls.add(dtype, torch.trace, x)
        calls.add(dtype, lambda x: x.sum(dtype=torch.uint8), x)
    for dtype in FLOATS:
        calls.add(
            dtype,
            lambda x: (x.sum(), x.mean(0), x.cumsum(1), x.sum(dtype=torch.float64)),
            torch.ones(2, 3, dtype=dtype),
        )
    calls.add("float to int", lambda x: x.sum(dtype=torch.int64), torch.tensor([0.6, 0.6, 0.6]))
    assert calls.finish() == 6 * 9 + 4


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_the_mean_of_integers_is_refused(dtype):
    x = torch.ones(3, dtype=dtype)
    for f in (
        torch.mean,
        lambda x: x.mean(0),
        torch.std,
        lambda x: x.var(0),
        torch.nn.functional.softmax,
        torch.nanmean,
    ):
        with pytest.raises(RuntimeError) as here:
            f(x)
        with pytest.raises(type(here.value)) as there:
            f(x.to("tpu"))
        assert str(there.value) == str(here.value)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_corrections_of_variances():
    calls = Comparison()
    generator = torch.Generator().manual_seed(1)
    for x in (torch.randn(4, 5, generator=generator), torch.randn(2, 3, generator=generator, dtype=torch.complex64)):
        for correction in (0, 1, 2, 1.5, 7):
            for f in (torch.var, torch.std, torch.var_mean, torch.std_mean):
                calls.add(f"{f.__name__}, {correction}", lambda x, f=f, c=correction: f(x, 1, correction=c), x)
        calls.add("unbiased", lambda x: (x.var(unbiased=False), x.std(0, unbiased=True)), x)
        calls.add("of one element", lambda x: x[:1, :1].var(), x)
        calls.add("of none", lambda x: x[:0].std(0), x)
        calls.add("kept", lambda x: x.std((0, 1), keepdim=True), x)
    assert calls.finish() == 2 * 24


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_large_sums_stay_accurate(dtype):
    """Within a few roundings of the sum in float64: one by one in the dtype, these would be wrong by half."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(1 << 18, generator=generator).to(dtype)
    y = x.to("tpu")
    eps = torch.finfo(dtype).eps
    exact = x.double()

    def near(actual, expected, times=2):
        assert abs(actual.double().item() - expected.item()) <= times * eps * abs(expected.item())

    if dtype != torch.float16:  # beyond its largest number
        near(y.sum(), exact.sum(), 2 if dtype == torch.bfloat16 else 32)
        near(y @ y, exact @ exact, 2 if dtype == torch.bfloat16 else 32)
    near(y.mean(), exact.mean(), 32 if dtype == torch.float32 else 2)
    near(y.view(1 << 9, -1).sum(0).double().mean(), exact.sum() / (1 << 9), 32 if dtype == torch.float32 else 2)
    near(y.var(), exact.var(), 32 if dtype == torch.float32 else 2)
    near(torch.linalg.vector_norm(y), torch.linalg.vector_norm(exact), 32 if dtype == torch.float32 else 2)
    ones = torch.ones(1 << 14, dtype=dtype, device="tpu")
    assert ones.sum().item() == 1 << 14
    if dtype == torch.float32:
        assert ones.cumsum(0)[-1].item() == 1 << 14
    assert torch.nn.functional.mse_loss(ones, torch.zeros_like(ones)).item() == 1


# The table is longer than the list of indices: then its gradient is never held in float32.
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_tables_gradient_adds_up_in_float32(dtype):
    index = torch.cat([torch.full((300,), 7), torch.arange(20).repeat(2), torch.tensor([999, 3, 3])])
    grad = (1 + torch.rand(len(index), 8)).to(dtype)
    backward = torch.ops.aten.embedding_dense_backward
    actual = backward(grad.to("tpu"), index.to("tpu"), 1000, 3, False).cpu()
    exact = backward(grad.double(), index, 1000, 3, False)
    torch.testing.assert_close(actual, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=0)
    assert actual[3].count_nonzero() == 0
    with torch_tpu.aot.topology("v6e") as recording:
        table = backward(grad.to("tpu"), index.to("tpu"), 1000, 3, False)
        recording.cut()
        del table
    assert "x8xf32>" in recording.programs[-1].module
    assert "tensor<1000x8xf32>" not in recording.programs[-1].module


def test_integer_division_by_zero_does_not_end_the_process():
    x = torch.tensor([1, -1, 0], dtype=torch.int32, device="tpu")
    zero = torch.zeros(3, dtype=torch.int32, device="tpu")
    for f in (torch.floor_divide, torch.remainder, torch.fmod):
        assert f(x, zero).shape == (3,)
    assert torch.div(x, zero).tolist()[:2] == [INF, -INF]
    assert (x + 1).tolist() == [2, 0, 1]


@pytest.mark.parametrize("name", ("j0", "j1", "y0", "y1"))
def test_bessel_functions_in_float64_are_those_of_scipy(name):
    """CPU PyTorch's are off by up to 9e-7 beyond 5."""
    x = torch.linspace(0.01, 60, 2001, dtype=torch.float64)
    expected = torch.from_numpy(getattr(scipy.special, name)(x.numpy()))
    actual = getattr(torch.special, f"bessel_{name}")(x.to("tpu")).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-14, atol=1e-14)


def test_airy_in_float64_is_that_of_scipy():
    """CPU PyTorch's is off by 2e-5 of the value below -2.09."""
    x = torch.linspace(-30, 10, 2001, dtype=torch.float64)
    expected = torch.from_numpy(scipy.special.airy(x.numpy())[0])
    torch.testing.assert_close(torch.special.airy_ai(x.to("tpu")).cpu(), expected, rtol=1e-12, atol=1e-14)


def test_zeta_far_below_zero():
    """Two sums meet there, one of them as long as the number is far from 0."""
    calls = Comparison(rtol=1e-13, atol=0)
    q = torch.tensor([-0.3, -13437.7, -1e6 - 0.25, -1.0000001, -3.0, -1e-20, 2.5], dtype=torch.float64)
    for x in (2.0, 3.0, 5.0, 2.5, INF):
        calls.add(f"zeta({x}, q)", lambda q, x=x: torch.special.zeta(x, q), q)
    calls.add("polygamma", lambda q: torch.polygamma(4, q), q)
    assert calls.finish() == 6
