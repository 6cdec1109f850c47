"""The forms of batch norm that composites, functionalization and SyncBatchNorm call, weight norm, and masked softmax."""

import itertools

import pytest
import torch
from comparison import Comparison
from torch.testing import assert_close

aten = torch.ops.aten
EPS, MOMENTUM = 1e-4, 0.3
TIGHT = {"rtol": 1e-5, "atol": 1e-5}
BFLOAT16 = {"rtol": 2e-2, "atol": 2e-2}


def channels(dtype=torch.float32, n: int = 3) -> tuple[torch.Tensor, ...]:
    """Weight, bias, running mean and running variance."""
    generator = torch.Generator().manual_seed(1)
    weight, bias, mean, variance = torch.randn(4, n, generator=generator).to(dtype)
    return weight, bias, mean, variance.abs() + 0.5


def images(dtype=torch.float32, last: bool = False) -> torch.Tensor:
    x = torch.randn(4, 3, 5, 2, generator=torch.Generator().manual_seed(2)).to(dtype) * 2 + 1
    return x.to(memory_format=torch.channels_last) if last else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_in_its_forms(dtype):
    calls = Comparison(**(TIGHT if dtype == torch.float32 else BFLOAT16))

    def with_statistics(op, saves: bool, **options):
        """The results and the running statistics after.

        What is saved for the gradient is the device's own: other than the CPU's in evaluation and in bfloat16, where
        PyTorch's Meta kernels also have the running statistics in float32.
        """

        def f(x, w, b, mean, variance):
            mean, variance = mean.clone(), variance.clone()
            out, *saved = op(x, w, b, mean, variance, **options)
            if not saves or dtype != torch.float32:
                del saved[:2]
            return out, [t.float() for t in saved if t.dtype != torch.uint8], mean, variance

        return f

    numbers = {"momentum": MOMENTUM, "eps": EPS}
    for last in (False, True):
        x = images(dtype, last)
        given = channels(dtype)
        for training in (True, False):
            for op in (aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional):
                calls.add(f"{op} {training}", with_statistics(op, training, training=training, **numbers), x, *given)
        calls.add(
            "no training", with_statistics(aten._native_batch_norm_legit_no_training, False, **numbers), x, *given
        )
        for op in (aten._batch_norm_with_update, aten._batch_norm_with_update_functional, aten._batch_norm_no_update):
            calls.add(op, with_statistics(op, op is not aten._batch_norm_no_update, **numbers), x, *given)
        no_stats = lambda x, w, b: aten._native_batch_norm_legit.no_stats(x, w, b, True, MOMENTUM, EPS)[0]  # noqa: E731
        calls.add("no statistics", no_stats, x, *given[:2])
        calls.add("no weight", no_stats, x, None, None)
    assert calls.finish() == 2 * 10


def test_batch_norm_into_given_tensors():
    calls = Comparison(**TIGHT)

    def legit(x, w, b, mean, variance):
        mean, variance = mean.clone(), variance.clone()
        out = [torch.empty_like(t) for t in (x, mean, mean)]
        named = dict(zip(("out", "save_mean", "save_invstd"), out, strict=True))
        aten._native_batch_norm_legit.out(x, w, b, mean, variance, True, MOMENTUM, EPS, **named)
        return out, mean, variance

    def updated(x, w, b, mean, variance):
        mean, variance = mean.clone(), variance.clone()
        out = [torch.empty_like(t) for t in (x, mean, mean)]
        named = dict(zip(("out", "save_mean", "save_invstd"), out, strict=True))
        reserve = torch.empty(0, dtype=torch.uint8, device=x.device)
        aten._batch_norm_with_update.out(x, w, b, mean, variance, MOMENTUM, EPS, **named, reserve=reserve)
        return out, mean, variance

    calls.add("legit", legit, images(), *channels())
    calls.add("with update", updated, images(), *channels())
    assert calls.finish() == 2


def there(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.to("tpu") for t in tensors]


def test_the_pieces_of_synchronized_batch_norm():
    """Two processes' halves of a batch give what batch norm gives for the whole. CPU PyTorch has no such kernels."""
    x, (weight, bias, mean, variance) = images(), channels()
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    running = mean.clone(), variance.clone()
    whole = torch.nn.functional.batch_norm(leaves[0], *running, *leaves[1:], True, MOMENTUM, EPS)
    gradients = torch.autograd.grad(whole, leaves, cotangent)

    halves, w, b = there(x[:3], x[3:]), *there(weight, bias)
    statistics = [aten.batch_norm_stats(half, EPS) for half in halves]
    for half, (m, invstd) in zip((x[:3], x[3:]), statistics, strict=True):
        assert_close(m.cpu(), half.mean((0, 2, 3)))
        assert_close(invstd.cpu(), (half.var((0, 2, 3), correction=0) + EPS).rsqrt())
    counts = torch.tensor([30.0, 10.0], device="tpu")
    moved = there(mean, variance)
    m, invstd = aten.batch_norm_gather_stats_with_counts(
        halves[0], *map(torch.stack, zip(*statistics, strict=True)), *moved, MOMENTUM, EPS, counts
    )
    assert_close([t.cpu() for t in moved], list(running))
    out = torch.cat([aten.batch_norm_elemt(half, w, b, m, invstd, EPS) for half in halves])
    assert_close(out.cpu(), whole.detach(), rtol=1e-5, atol=1e-5)

    grads = there(cotangent[:3], cotangent[3:])
    sums = [
        aten.batch_norm_backward_reduce(g, half, m, invstd, w, True, True, True)
        for g, half in zip(grads, halves, strict=True)
    ]
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = (sum(parts) for parts in zip(*sums, strict=True))
    grad = torch.cat([
        aten.batch_norm_backward_elemt(g, half, m, invstd, w, sum_dy, sum_dy_xmu, counts.int())
        for g, half in zip(grads, halves, strict=True)
    ])  # fmt: skip
    for actual, expected in zip((grad, grad_weight, grad_bias), gradients, strict=True):
        assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_norm(dtype):
    calls = Comparison(**(TIGHT if dtype == torch.float32 else BFLOAT16))

    def normalized(dim):
        def f(v, g):
            v, g = v.clone().requires_grad_(), g.clone().requires_grad_()
            w, norms = aten._weight_norm_interface(v, g, dim)
            return w, norms, torch.autograd.grad(w, (v, g), torch.linspace(-1, 2, w.numel()).view(w.shape).to(w))

        return f

    v = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(4)).to(dtype)
    calls.add("rows", normalized(0), v, torch.tensor([0.5, 1.0, -2.0]).to(dtype).reshape(3, 1, 1))
    calls.add("columns", normalized(2), v, torch.tensor([0.5, 1.0, -2.0, 3.0, 0.1]).to(dtype).reshape(1, 1, 5))
    assert calls.finish() == 2


def test_masked_softmax():
    calls = Comparison()
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 3, 5, 5, generator=generator)
    full = torch.rand(2, 3, 5, 5, generator=generator) > 0.6
    masks = {0: full[0, 0], 1: full[:, 0, 0], 2: full}  # of queries and keys, of keys, of all

    def both(mask_type):
        def f(x, mask):
            x = x.clone().requires_grad_()
            y = aten._masked_softmax(x, mask, 3, mask_type)
            return y, torch.autograd.grad(y, x, torch.linspace(-1, 1, x.numel(), device=x.device).view(x.shape))[0]

        return f

    calls.add("of all", both(2), x, full)
    for kind in (0, 1):
        calls.add(f"type {kind}", lambda x, mask, k=kind: aten._masked_softmax(x, mask, 3, k), x, masks[kind])
    for dim in (0, 2, None):
        calls.add(f"dim {dim}", lambda x, mask, d=dim: aten._masked_softmax(x, mask, d, 2), x, full)
    grad = lambda g, y, mask: aten._masked_softmax_backward(g, y, mask, 3)  # noqa: E731
    calls.add("backward", grad, x.flip(0), x.softmax(3), full)
    assert calls.finish() == 7


def test_norms_in_another_dtype():
    calls = Comparison()
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(6))
    for p, keep, dtype in itertools.product((None, 1, 2.5), (False, True), (torch.float32, torch.float64)):
        norm = lambda x, p=p, k=keep, d=dtype: aten.norm.ScalarOpt_dim_dtype(x, p, [1, 2], k, dtype=d)  # noqa: E731
        calls.add(f"{p} {keep} {dtype}", norm, x if dtype == torch.float64 else x.bfloat16())
    assert calls.finish() == 12
