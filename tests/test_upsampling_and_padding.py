"""Upsampling, with and without antialiasing, padding in up to three dims, and the gradients of both, as on CPU PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from comparison import Comparison

aten = torch.ops.aten


def with_gradient(f):
    """f(x) and its gradient."""

    def both(x):
        leaf = x.clone().requires_grad_()
        out = f(leaf)
        return out, torch.autograd.grad(out, leaf, torch.linspace(-1, 2, out.numel()).view(out.shape).to(out))[0]

    return both


def images(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest(mode):
    calls = Comparison()
    two, three = images(2, 3, 4, 5), images(1, 2, 3, 4, 5)
    for options in ({"size": (7, 3)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}):
        f = with_gradient(lambda x, o=options: F.interpolate(x, mode=mode, **o))
        calls.add(f"{options}", f, two)
        calls.add(f"{options}, channels last", f, two.to(memory_format=torch.channels_last))
        calls.add(f"{options} in bfloat16", f, two.bfloat16())
    for options in ({"size": (4, 3, 9)}, {"scale_factor": 2}, {"scale_factor": (1.5, 2.5, 0.7)}):
        f = with_gradient(lambda x, o=options: F.interpolate(x, mode=mode, **o))
        calls.add(f"{options}", f, three)
        calls.add(f"{options}, channels last", f, three.to(memory_format=torch.channels_last_3d))
    calls.add("bytes", lambda x: F.interpolate(x, size=(7, 3), mode=mode), (two * 50 + 128).to(torch.uint8))
    assert calls.finish() == 3 * 3 + 3 * 2 + 1


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased(mode):
    calls = Comparison(rtol=1e-5, atol=1e-5)
    x = images(2, 3, 9, 8)
    for options in (
        {"size": (4, 3)},
        {"size": (5, 13), "align_corners": True},
        {"scale_factor": (0.4, 1.7)},
        {"scale_factor": 0.37, "recompute_scale_factor": True},
    ):
        calls.add(f"{options}", with_gradient(lambda x, o=options: F.interpolate(x, mode=mode, antialias=True, **o)), x)
    assert calls.finish() == 4


def test_lanczos():
    calls = Comparison(rtol=1e-5, atol=1e-5)
    x = images(2, 3, 9, 8)
    for size, align in (((4, 3), False), ((5, 13), False), ((5, 4), True)):
        f = with_gradient(lambda x, s=size, a=align: aten._upsample_lanczos2d_aa(x, s, a, None, None))
        calls.add(f"{size} {align}", f, x)
    assert calls.finish() == 3


# dims -> paddings
PADDINGS = {
    1: [(1, 2), (0, 3), (-1, 2)],
    2: [(1, 2, 0, 3), (2, 0, 1, 1), (-1, 2, 1, -1)],
    3: [(1, 2, 0, 1, 2, 1), (3, 0, 1, 1, 0, 2), (-1, 2, 1, -1, 1, 0)],
}


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dims", PADDINGS)
def test_padding(dims, mode):
    calls = Comparison()
    x = images(2, 3, 4, 5, 6)[(0, 0)[: 3 - dims]]
    for padding in PADDINGS[dims]:
        if mode == "circular" and min(padding) < 0:
            continue
        f = with_gradient(lambda x, p=padding: F.pad(x, p, mode=mode))
        calls.add(f"{padding}", f, x)
        calls.add(f"{padding} without a batch", f, x[0])
        calls.add(f"{padding} in bfloat16", lambda x, p=padding: F.pad(x, p, mode=mode), x.bfloat16())
        if dims == 2:
            calls.add(f"{padding}, channels last", f, x[None, 0].to(memory_format=torch.channels_last))
        if dims == 3:
            calls.add(f"{padding}, channels last", f, x.to(memory_format=torch.channels_last_3d))
    assert calls.finish() > 5
