"""What kernels do, counted from their programs: JAX lowers them, and nothing runs."""

import base64
import json
import re
from collections import Counter
from functools import partial

import pytest

from torch_tpu.aot import mosaic

jax = pytest.importorskip("jax")

HEADS, LENGTH, BLOCK, HEAD = 2, 1024, 512, 128


def bodies(function, *shapes, dtype="bfloat16"):
    """The kernels in what JAX makes of a function, in order."""
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    text = jax.jit(function).trace(*given).lower(lowering_platforms=("tpu",)).as_text()
    configs = re.findall(r'backend_config = "((?:[^"\\]|\\.)*)"', text)
    return [
        json.loads(re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), config))["custom_call_config"]["body"]
        for config in configs
    ]


def test_blocks_above_the_diagonal_are_not_counted():
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    sizes = flash.BlockSizes(block_q=BLOCK, block_k_major=BLOCK, block_k=BLOCK, block_b=1)
    (body,) = bodies(partial(flash.flash_attention, causal=True, block_sizes=sizes), *[(1, HEADS, LENGTH, HEAD)] * 3)
    found = mosaic.work(body, ())
    # Of 2 x 2 blocks of each head, three.
    assert found.products == Counter({(BLOCK, HEAD, BLOCK): 3 * HEADS, (BLOCK, BLOCK, HEAD): 3 * HEADS})
    assert found.flops == 3 * HEADS * 2 * (2 * BLOCK * BLOCK * HEAD)
    assert 3 * HEADS * BLOCK * BLOCK <= found.transcendentals < found.elements


def test_a_block_that_stays_is_fetched_once():
    def add(x, y):
        from jax.experimental import pallas as jax_pallas

        def kernel(left, right, out):
            out[...] = left[...] + right[...]

        return jax_pallas.pallas_call(
            kernel,
            grid=(4,),
            in_specs=[
                jax_pallas.BlockSpec((8, 128), lambda i: (i, 0)),
                jax_pallas.BlockSpec((8, 128), lambda i: (0, 0)),
            ],
            out_specs=jax_pallas.BlockSpec((8, 128), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        )(x, y)

    (body,) = bodies(add, (32, 128), (8, 128), dtype="float32")
    found = mosaic.work(body, ())
    assert found.bytes == (4 + 1 + 4) * 8 * 128 * 4
    assert found.elements == 4 * 8 * 128
    assert found.flops == 0


def test_products_of_batches_are_those_of_each():
    def product(x, y):
        from jax.experimental import pallas as jax_pallas

        def kernel(left, right, out):
            out[...] = jax.lax.dot_general(left[...], right[...], (((2,), (1,)), ((0,), (0,))))

        return jax_pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((3, 8, 256), "float32"))(x, y)

    (body,) = bodies(product, (3, 8, 128), (3, 128, 256), dtype="float32")
    assert mosaic.work(body, ()).products == Counter({(8, 128, 256): 3})


def test_a_kernel_that_cannot_be_read_is_not_counted():
    assert mosaic.work(base64.b64encode(b"module { nonsense }").decode(), ()) is None


def splash():
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH))] * HEADS)
    sizes = kernel.BlockSizes(block_q=BLOCK, block_kv=BLOCK, block_kv_compute=BLOCK)
    attend = kernel.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
    (body,) = bodies(attend, *[(HEADS, LENGTH, HEAD)] * 3)
    steering = attend.fwd_mask_info
    return body, tuple(tuple(part.flatten().tolist()) for part in (steering.data_next, steering.block_mask))


def test_numbers_in_operands_steer_a_kernel():
    body, scalars = splash()
    assert mosaic.work(body, scalars).products[BLOCK, HEAD, BLOCK] == 3 * HEADS


def test_a_branch_on_what_is_not_known_counts_as_taken():
    body, _ = splash()
    assert mosaic.work(body, ()).products[BLOCK, HEAD, BLOCK] == 4 * HEADS


def test_a_product_with_a_short_side_does_not_fill_a_larger_unit():
    narrow = mosaic.Work(Counter({(512, 128, 512): 1}))
    assert narrow.padded_flops(128) == narrow.flops
    assert narrow.padded_flops(256) == 2 * narrow.flops
    assert mosaic.Work(Counter({(512, 512, 128): 1})).padded_flops(256) == 2 * narrow.flops
