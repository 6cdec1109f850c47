"""Overloads that no OpInfo entry calls: made of other ops, for what PyTorch implements in other backends only."""

import re

import pytest
import torch
from torch.nested._internal.nested_tensor import nested_from_padded
from torch.testing import assert_close

aten = torch.ops.aten


def same(op, *args, **kwargs):
    """Compares op on tpu with the CPU's; returns the CPU's result."""

    def there(x):
        if isinstance(x, torch.Tensor):
            return x.to("tpu")
        return [there(e) for e in x] if isinstance(x, list) else x

    expected = op(*args, **kwargs)
    actual = op(*map(there, args), **{k: there(v) for k, v in kwargs.items()})
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for a, e in pairs:
        assert a.device.type == "tpu"
        assert_close(a.cpu(), e, equal_nan=True)
    return expected


def test_efficient_zeros():
    assert aten._efficientzerotensor([2, 3], device="tpu").cpu().tolist() == [[0] * 3] * 2


def test_the_gradient_of_sgn_is_zero():
    x = torch.tensor([-2.0, 3.0], device="tpu", requires_grad=True)
    x.sgn().sum().backward()
    assert x.grad.cpu().tolist() == [0, 0]


def test_assertions_are_made():
    torch._assert_async(torch.tensor(True, device="tpu"))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        torch._assert_async(torch.tensor(0, device="tpu"))
    with pytest.raises(RuntimeError, match="all lengths are positive"):
        torch._assert_async(torch.tensor(False, device="tpu"), "all lengths are positive")


def test_linear_backward():
    torch.manual_seed(0)
    x, w, g = torch.randn(2, 5, 3, device="tpu"), torch.randn(4, 3, device="tpu"), torch.randn(2, 5, 4, device="tpu")
    leaf = [t.cpu().requires_grad_() for t in (x, w, torch.zeros(4))]
    expected = torch.autograd.grad(torch.nn.functional.linear(*leaf), leaf, g.cpu())
    for actual, e in zip(aten.linear_backward(x, g, w, [True] * 3), expected, strict=True):
        assert_close(actual.cpu(), e)
    assert aten.linear_backward(x, g, w, [False, True, False])[1].shape == w.shape


def test_norms_and_pools_in_their_out_forms():
    x = torch.randn(2, 3, 7, 5)
    assert_close(aten.native_norm(x.to("tpu"), 3).cpu(), torch.linalg.vector_norm(x, 3))
    there = aten.native_norm.ScalarOpt_dim_dtype(x.to("tpu"), None, [1], True, None)
    assert_close(there.cpu(), torch.linalg.vector_norm(x, 2, 1, True))
    out = torch.empty(0, device="tpu")
    aten.adaptive_avg_pool2d.out(x.to("tpu"), [3, 2], out=out)
    assert_close(out.cpu(), torch.nn.functional.adaptive_avg_pool2d(x, [3, 2]))
    y = torch.randn(2, 3, 4, 7, 5)
    out = torch.empty(0, device="tpu")
    aten.adaptive_avg_pool3d.out(y.to("tpu"), [2, 3, 2], out=out)
    assert_close(out.cpu(), torch.nn.functional.adaptive_avg_pool3d(y, [2, 3, 2]))


def test_compressed_indices():
    rows = torch.tensor([0, 0, 1, 3, 3, 3])
    for int32 in (False, True):
        starts = same(torch._convert_indices_from_coo_to_csr, rows, 5, out_int32=int32)
        same(torch._convert_indices_from_coo_to_csr, rows[:0], 5, out_int32=int32)
        columns = torch.tensor([1, 2, 0, 0, 1, 2])
        for transpose in (False, True):
            same(aten._convert_indices_from_csr_to_coo, starts, columns, out_int32=int32, transpose=transpose)


def test_stacks_of_one_size():
    parts = [torch.randn(2, 3) for _ in range(3)]
    for dim in (0, 1, 2, -1):
        same(aten._stack, parts, dim)


def test_ctc_loss_with_lengths_in_tensors():
    torch.manual_seed(0)
    log_probs = torch.randn(6, 2, 4).log_softmax(-1)
    targets, sizes = torch.tensor([[1, 2], [3, 1]]), (torch.tensor([6, 5]), torch.tensor([2, 1]))
    expected = torch._ctc_loss(log_probs, targets, *(s.tolist() for s in sizes))
    actual = aten._ctc_loss.Tensor(log_probs.to("tpu"), targets.to("tpu"), *(s.to("tpu") for s in sizes))
    assert_close(actual[0].cpu(), expected[0])


@pytest.mark.parametrize("offsets", [[0, 2, 2, 5], [0, 5]])
def test_jagged_and_padded(offsets):
    offsets, values = torch.tensor(offsets), torch.arange(10.0).reshape(5, 2)
    same(aten._jagged_to_padded_dense_forward, values, [offsets], [2], -1.0)
    padded = same(aten._jagged_to_padded_dense_forward, values, [offsets], [6], -1.0)
    same(aten._padded_dense_to_jagged_forward, padded, [offsets], 5)
    same(aten._padded_dense_to_jagged_forward, padded, [offsets])


def test_fake_quantization():
    x = torch.linspace(-3, 3, 24).reshape(4, 6)
    same(torch.fake_quantize_per_tensor_affine, x, 0.1, 3, -8, 7)
    scales, points = torch.tensor([0.1, 0.2, 0.3, 0.5]), torch.tensor([0, 1, -2, 3], dtype=torch.int32)
    same(torch.fake_quantize_per_channel_affine, x, scales, points, 0, -8, 7)
    same(torch.fake_quantize_per_tensor_affine, x, scales[:1], points[:1], -8, 7)
    for on in (0, 1):
        op = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        same(op, x, scales[1:2], points[1:2], torch.tensor([on]), -8, 7)


def test_the_gradient_of_fake_quantization_passes_numbers_in_range():
    x = torch.tensor([-2.0, 0.3, 2.0], device="tpu", requires_grad=True)
    torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7).sum().backward()
    assert x.grad.cpu().tolist() == [0, 1, 0]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
def test_fake_quantization_with_observed_ranges(by_channel, symmetric):
    torch.manual_seed(0)
    size = 4 if by_channel else 1

    def state(device):
        minima, maxima = (torch.full((size,), x, device=device) for x in (float("inf"), -float("inf")))
        scale, points = torch.ones(size, device=device), torch.zeros(size, dtype=torch.int32, device=device)
        return minima, maxima, scale, points

    here, there = state("cpu"), state("tpu")
    for observe, quantize in ((1, 1), (1, 1), (0, 1), (1, 0)):
        x = torch.randn(4, 3, 5) * 3 - 1
        switches = torch.tensor([observe]), torch.tensor([quantize])
        rest = (0.01, -128, 127, 0, by_channel, symmetric)
        expected = torch.fused_moving_avg_obs_fake_quant(x, *switches, *here, *rest)
        actual = torch.fused_moving_avg_obs_fake_quant(x.to("tpu"), *(s.to("tpu") for s in switches), *there, *rest)
        assert_close(actual.cpu(), expected)
        for a, e in zip(there, here, strict=True):
            assert_close(a.cpu(), e)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce(reduce, initial):
    data = torch.tensor([[1.0, -2.0], [0.0, 4.0], [0.0, float("nan")], [3.0, 0.0], [-1.0, 3.0], [3.0, 3.0]])
    for where in ({"lengths": torch.tensor([2, 0, 3, 1])}, {"offsets": torch.tensor([0, 2, 2, 5, 6])}):
        here = data.clone().requires_grad_()
        there = data.to("tpu").requires_grad_()
        expected = torch.segment_reduce(here, reduce, axis=0, initial=initial, **where)
        on_tpu = {k: v.to("tpu") for k, v in where.items()}
        actual = torch.segment_reduce(there, reduce, axis=0, initial=initial, **on_tpu)
        assert_close(actual.cpu(), expected, equal_nan=True)
        grad = torch.arange(1.0, 9).reshape(4, 2)
        expected.backward(grad)
        actual.backward(grad.to("tpu"))
        assert_close(there.grad.cpu(), here.grad, equal_nan=True)


def test_jagged_tensors_as_on_the_cpu():
    def run(device):
        rows = [torch.arange(6.0).reshape(2, 3), torch.ones(4, 3)]
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, device=device)
        w = torch.ones(3, 2, device=device, requires_grad=True)
        y = (x @ w).sin()
        y.values().sum().backward()
        again = torch.nested.nested_tensor_from_jagged(x.values(), x.offsets())
        parts = [getattr(aten, f"_nested_get_{part}")(again) for part in ("values", "offsets")]
        parts.append(nested_from_padded(y.to_padded_tensor(0.0), y.offsets()).values())
        return y.values(), y.to_padded_tensor(-1.0), w.grad, *parts

    for actual, expected in zip(run("tpu"), run("cpu"), strict=True):
        assert actual.device.type == "tpu"
        assert_close(actual.cpu(), expected)


def test_segment_reduce_along_an_inner_axis():
    data, lengths = torch.rand(2, 5, 3), torch.tensor([[1, 4], [3, 2]])
    same(torch.segment_reduce, data, "sum", lengths=lengths, axis=1)
    same(torch.segment_reduce, torch.rand(0, 3), "mean", lengths=torch.tensor([0, 0]), axis=0)


@pytest.mark.parametrize(
    "power",
    [lambda b: b**b, lambda b: True**b, lambda b: b ** b[0], lambda b: torch.pow(b, b, out=b.clone())],
    ids=["tensors", "number", "0-d", "out"],
)
def test_powers_of_bools_are_refused_as_on_the_cpu(power):
    for device in ("cpu", "tpu"):
        with pytest.raises(NotImplementedError, match="\"pow\" not implemented for 'Bool'"):
            power(torch.tensor([True, False], device=device))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (torch.trace, torch.bool),
        (torch.argmax, torch.bool),
        (lambda x: x.argmin(1, keepdim=True), torch.bool),
        (torch.relu, torch.bool),
        (torch.floor, torch.complex64),
        (torch.sign, torch.complex64),
        (lambda x: x.trunc_(), torch.complex128),
        (lambda x: torch.frac(x, out=x.clone()), torch.int64),
        (lambda x: torch.gcd(x, x), torch.float32),
        (lambda x: torch.div(x, x, rounding_mode="trunc"), torch.complex64),
        (torch.special.i0, torch.complex64),
        (lambda x: x.exponential_(), torch.int32),
        (lambda x: x.normal_(), torch.int64),
        (lambda x: x.geometric_(0.5), torch.complex64),
    ],
)
def test_dtypes_that_the_cpu_refuses_are_refused_in_its_words(op, dtype):
    x = torch.ones(3, 3, dtype=dtype)
    state = torch.get_rng_state()
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        op(x.clone())
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
        op(x.to("tpu"))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("exponent", [True, False, 0, 1, 2, 0.5])
def test_bools_to_a_number(exponent):
    b = torch.tensor([[True, False, False]])
    same(torch.pow, b.t(), exponent)
    if isinstance(exponent, bool):
        same(lambda x: x.clone().pow_(exponent), b)
        same(lambda x: torch.pow(x, exponent, out=torch.zeros(1, 3, device=x.device)), b)


@pytest.mark.parametrize("exponent", [True, False, [True, False], 2])
def test_lists_of_bools_to_a_number(exponent):
    def in_place(xs, n):
        xs = [x.clone() for x in xs]
        torch._foreach_pow_(xs, n)
        return tuple(xs)

    lists = [torch.tensor([True, False]), torch.tensor([False])]
    same(torch._foreach_pow, lists, exponent)
    if exponent != 2:
        same(in_place, lists, exponent)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_multilabel_margin_loss_of_one_sample_is_a_number(reduction):
    loss = torch.nn.functional.multilabel_margin_loss
    for sizes in (((), ()), ((1,), (1,)), ((3,), (3,)), ((2, 3), (2, 3)), ((), (1,))):
        x, y = torch.ones(sizes[0]), torch.zeros(sizes[1], dtype=torch.int64)
        assert same(loss, x, y, reduction=reduction).shape == (
            sizes[0][:1] if reduction == "none" and x.dim() == 2 else ()
        )
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match=r"inconsistent target size: \[3\] for input of size: \[2, 3\]"):
            loss(torch.ones(2, 3, device=device), torch.zeros(3, dtype=torch.int64, device=device), reduction=reduction)


@pytest.mark.parametrize(
    ("fill", "good", "bad"),
    [
        ("uniform_", (1.0, 2.0), (2.0, 1.0)),
        ("bernoulli_", (0.5,), (1.5,)),
        ("normal_", (0.0, 1.0), (0.0, -1.0)),
        ("exponential_", (1.0,), (-1.0,)),
        ("geometric_", (0.5,), (1.5,)),
        ("cauchy_", (0.0, 1.0), (0.0, -1.0)),
        ("log_normal_", (0.0, 1.0), (0.0, -1.0)),
    ],
)
def test_random_fills_refuse_bad_numbers_at_every_call(fill, good, bad):
    with pytest.raises(RuntimeError) as here:
        getattr(torch.empty(3), fill)(*bad)
    x = torch.empty(3, device="tpu")
    getattr(x, fill)(*good)
    with pytest.raises(RuntimeError) as there:
        getattr(x, fill)(*bad)
    assert str(there.value) == str(here.value)


def float8(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.float8_e4m3fn)


def test_scaled_products_by_recipe():
    a, b = float8(16, 32), float8(16, 32, seed=1).t()
    one, row, column = torch.tensor(0.5), torch.rand(16, 1) + 0.5, torch.rand(1, 16) + 0.5

    def product(device, *scales, recipe):
        left, right, scale_a, scale_b = (t.to(device) for t in (a, b, *scales))
        return aten._scaled_mm_v2(left, right, [scale_a], [recipe], [], [scale_b], [recipe], [], None, torch.bfloat16)

    for scale_a, scale_b, recipe in ((one, one * 3, 0), (row, column, 1)):
        expected = (a.float() @ b.float() * scale_a * scale_b).bfloat16()
        actual = product("tpu", scale_a, scale_b, recipe=recipe)
        assert actual.dtype == torch.bfloat16
        assert_close(actual.cpu(), expected)
    for device in ("cpu", "tpu"):
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            product(device, row, column, recipe=3)


def test_scaled_grouped_products():
    groups, rows, k, n = 3, 12, 32, 16
    offs = torch.tensor([4, 4, 12], dtype=torch.int32)
    group = torch.tensor([0] * 4 + [2] * 8)
    a, b = float8(rows, k), float8(groups, n, k, seed=1).transpose(1, 2)
    scale_a, scale_b = torch.rand(rows) + 0.5, torch.rand(groups, n) + 0.5

    def run(*args):
        return aten._scaled_grouped_mm(*(t.to("tpu") for t in args)).cpu()

    product = torch.stack([x @ b[g].float() for x, g in zip(a.float(), group, strict=True)])
    expected = (product * scale_a[:, None] * scale_b[group]).bfloat16()
    assert_close(run(a, b, scale_a, scale_b, offs), expected)
    # The other way round the groups are columns; with two batches they are matrices.
    assert_close(run(b.transpose(1, 2), a.t(), scale_b, scale_a, offs), expected.t())
    left, scale = float8(groups, 8, k), torch.rand(groups, 8) + 0.5
    batches = (left.float() @ b.float() * scale[:, :, None] * scale_b[:, None]).bfloat16()
    assert_close(run(left, b, scale, scale_b), batches)
