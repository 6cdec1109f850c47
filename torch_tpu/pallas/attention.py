"""Attention as JAX's splash kernel, in place of scaled_dot_product_attention."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from torch_tpu import _C
from torch_tpu.pallas.functions import call, jax_module, on_tpu

_LANES = 128
_BLOCK = 512
# The backward makes the query's gradient once for each block of keys, in HBM, and adds these up.
_BLOCKS_OF_KEYS = 8
_LARGEST_BLOCK = 2048

_in_place = False  # whether a block of flash_attention() runs


def _block(length: int, at_most: int) -> int:
    """The largest part of a length, a multiple of the vector unit's lanes, that is no longer than that."""
    return max(b for b in range(_LANES, min(length, at_most) + 1, _LANES) if length % b == 0)


@cache
def splash(
    heads: int, key_heads: int, rows: int, keys: int, causal: bool, scale: float, interpret: bool = False
) -> Callable:
    """Attention of (batch, heads, rows, size), where each key head serves ``heads / key_heads`` query heads.

    A causal mask lets row i see keys 0 to i, as PyTorch's. ``interpret``: as plain JAX, without a kernel.
    """
    jax = jax_module()
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    group = heads // key_heads
    row_block, key_block = _block(rows, _BLOCK), _block(keys, _BLOCK)
    long = _block(keys, min(_LARGEST_BLOCK, max(_BLOCK, keys // _BLOCKS_OF_KEYS)))
    sizes = kernel.BlockSizes(
        block_q=row_block, block_kv=key_block, block_kv_compute=key_block,
        block_q_dkv=row_block, block_kv_dkv=long, block_kv_dkv_compute=_block(long, _BLOCK),
        use_fused_bwd_kernel=True,
    )  # fmt: skip
    mask = masks.CausalMask((rows, keys)) if causal else masks.FullMask((rows, keys))
    one = kernel.make_splash_mqa_single_device(
        masks.MultiHeadMask([mask] * group), block_sizes=sizes, interpret=interpret
    )

    def attend(query: Any, key: Any, value: Any) -> Any:
        batch, here, _, size = query.shape
        scaled = (query.astype("float32") * scale).astype(query.dtype)
        grouped = scaled.reshape(batch, here // group, group, rows, size)
        return jax.vmap(jax.vmap(one))(grouped, key, value).reshape(query.shape)

    return attend


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, groups: bool) -> bool:
    tensors = (query, key, value)
    if (
        any(t.device.type != "tpu" or t.dim() != 4 or t.dtype != query.dtype for t in tensors)
        or key.shape != value.shape
    ):
        return False
    if (query.shape[0], query.shape[3]) != (key.shape[0], key.shape[3]) or query.shape[3] % _LANES:
        return False
    if query.shape[1] % key.shape[1] or not (groups or query.shape[1] == key.shape[1]):
        return False
    batch, heads = _C.parts()
    if query.shape[0] % batch or key.shape[1] % heads:
        return False
    return query.dtype in (torch.bfloat16, torch.float32) and not (query.shape[2] % _LANES or key.shape[2] % _LANES)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if not on_tpu() or attn_mask is not None or dropout_p or not _fits(query, key, value, enable_gqa):
        return torch.ops.aten.scaled_dot_product_attention.default._op_dk(
            torch._C.DispatchKey.CompositeImplicitAutograd,
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        )  # fmt: skip
    scale = query.shape[3] ** -0.5 if scale is None else scale
    (_, heads, rows, _), (_, key_heads, keys, _) = query.shape, key.shape
    return call(splash(heads, key_heads, rows, keys, is_causal, scale), query, key, value, independent=2)


@contextmanager
def flash_attention() -> Iterator[None]:
    """In the block, ``scaled_dot_product_attention`` is JAX's Pallas splash attention where the target is a TPU.

    For calls without mask and dropout, in bfloat16 or float32, with lengths and heads of multiples of 128; all others, and the
    CPU plugin, keep the form of StableHLO. In all threads, so that what the backward computes again is the same.
    """
    global _in_place
    if _in_place:
        yield
        return
    jax_module()
    with torch.library._scoped_library("aten", "IMPL") as library:
        for key in ("AutogradPrivateUse1", "PrivateUse1"):
            library.impl("scaled_dot_product_attention", _attend, key)
        _in_place = True
        try:
            yield
        finally:
            _in_place = False
