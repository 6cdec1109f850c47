"""Attention by tiles of the scores: long enough that several are needed, so that the loops run. CPU PyTorch judges."""

import pytest
import torch
import torch.nn.functional as F

from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.aot.check import judge
from torch_tpu.aot.compiler import Compiler
from torch_tpu.aot.steps import step_between

# More scores than a tile holds (8 Mi): lengths that no tile divides, groups of heads, a batch that is cut.
LONG = (1, 2, 2300, 8), (1, 1, 2000, 8)
WIDE = (6, 2, 1000, 8), (6, 2, 1000, 8)
CASES = {
    "plain": (LONG, {"enable_gqa": True, "scale": 0.3}),
    "causal": (LONG, {"enable_gqa": True, "is_causal": True}),
    "causal-batch": (WIDE, {"is_causal": True}),
    "bool-mask": (WIDE, {"attn_mask": lambda: torch.rand(6, 1, 1, 1000) > 0.3}),
    "mask-gradient": (WIDE, {"attn_mask": lambda: torch.randn(1, 2, 1000, 1000).requires_grad_()}),
    "mask-gradient-by-key": (WIDE, {"attn_mask": lambda: torch.randn(6, 1, 1, 1000).requires_grad_()}),
    "few-keys": (((1, 8, 90000, 4), (1, 8, 12, 4)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_tiles_give_what_the_whole_matrix_gives(name):
    torch.manual_seed(0)
    (query, key), keywords = CASES[name]
    tensors = [torch.randn(query), torch.randn(key), torch.randn(key)]
    keywords = {k: v() if callable(v) else v for k, v in keywords.items()}
    cotangent = torch.randn(query)

    def attend(device, dtype=torch.float32):
        inputs = [x.to(device, dtype).requires_grad_() for x in tensors]
        there = dict(keywords)
        if (mask := keywords.get("attn_mask")) is not None:
            mask_dtype = dtype if mask.is_floating_point() else mask.dtype
            there["attn_mask"] = mask.detach().to(device, mask_dtype).requires_grad_(mask.requires_grad)
            inputs += [there["attn_mask"]] * mask.requires_grad
        out = F.scaled_dot_product_attention(*inputs[:3], **there)
        return [
            x.cpu().double() for x in (out.detach(), *torch.autograd.grad(out, inputs, cotangent.to(device, dtype)))
        ]

    # In float64: where many queries share a key, CPU PyTorch's own float32 gradient may be off by 1e-3.
    for actual, expected in zip(attend("tpu"), attend("cpu", torch.float64), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("query", "key"), [((2, 2, 32, 4), (2, 2, 32, 4)), (LONG[0], LONG[1])])
def test_the_gradient_drops_what_the_forward_dropped(query, key):
    torch.manual_seed(3)
    q, k = torch.randn(query).to("tpu"), torch.randn(key).to("tpu")
    q.requires_grad_()
    value = torch.ones(key, device="tpu", requires_grad=True)
    state = torch.tpu.get_rng_state()
    out = F.scaled_dot_product_attention(q, k, value, dropout_p=0.25, enable_gqa=True)
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert out.std().item() > 1e-3
    to_query, to_value = torch.autograd.grad(out.sum(), (q, value))
    # The output is linear in the values, with the same dropped weights.
    assert (to_value * value).sum().item() == pytest.approx(out.sum().item(), rel=1e-4)
    # And changes along the query's gradient by as much as it says.
    with torch.no_grad():
        step = 1e-3 / to_query.norm()
        torch.tpu.set_rng_state(state)
        moved = F.scaled_dot_product_attention(q + step * to_query, k, value, dropout_p=0.25, enable_gqa=True)
        change, expected = (moved - out).sum().item(), (step * to_query.square().sum()).item()
    assert change == pytest.approx(expected, rel=0.1, abs=2e-3)


def recorded(length, batch=1, **parts):
    with aot.topology("v6e", **parts) as recording:
        q = torch.empty(batch, 8, length, 64, dtype=torch.bfloat16, device="tpu").requires_grad_()
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        recording.cut()
    return "".join(p.module for p in recording.programs)


def test_no_square_of_the_length_is_in_the_program():
    assert "1024x1024" in recorded(1024)
    text = recorded(4096)
    assert "4096x4096" not in text
    assert "512x512" in text


def test_devices_that_share_the_batch_keep_it_whole():
    alone, shared = recorded(2048, batch=8), recorded(2048, batch=8, batch_parts=8)
    # Alone, a tile takes a part of the batch; shared, each device has one sequence of a tile.
    assert "tensor<4x8x1x512x512xf32>" in alone
    assert "tensor<8x8x1x512x512xf32>" in shared


def test_devices_that_share_the_heads_have_more_of_the_batch_in_a_tile():
    assert "tensor<8x8x1x512x512xf32>" in recorded(2048, batch=8, head_parts=2)
    # Three devices cannot share eight heads.
    assert "tensor<4x8x1x512x512xf32>" in recorded(2048, batch=8, head_parts=3)


@needs_libtpu
def test_temporaries_grow_with_the_length_and_not_with_its_square():
    length, heads = 8192, 32
    with aot.topology("v6e") as recording:
        q, k = (torch.empty(1, h, length, 128, dtype=torch.bfloat16, device="tpu").requires_grad_() for h in (heads, 8))
        F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum().backward()
        recording.cut()
    with Compiler() as compiler:
        step = step_between(recording, "all of it", 0, len(recording.order))
        report = judge("", recording, step, [recording.target], compiler, "quick", 0)
    step = report.targets[0].steps[-1]
    # The scores alone would take 8.6 GB.
    assert step.memory.temporaries < 4 * heads * length * 128 * 4
    # The loops over the keys end by the query's tile: about half of all tiles are counted.
    assert step.time.flops == pytest.approx(7 * 2 * heads * length * length * 128 * (1 / 2 + 1 / 32))
    assert report.targets[0].steps[-1].verdict == "ok"
