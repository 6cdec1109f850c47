"""In which form a check has attention."""

from contextlib import AbstractContextManager, nullcontext
from importlib import util
from typing import Literal

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.hardware import Slice
from torch_tpu.aot.sharding import Shard

Attention = Literal["tiles", "pallas"]


def attention_form(attention: Attention) -> AbstractContextManager[None]:
    """A block in which ``scaled_dot_product_attention`` has this form. Raises CheckError where jax is missing."""
    if attention == "tiles":
        return nullcontext()
    if util.find_spec("jax") is None:
        raise CheckError(
            "Attention by a Pallas kernel needs the package jax.", "Install it: pip install 'torch_tpu[pallas]'"
        )
    from torch_tpu import pallas

    return pallas.flash_attention()


def check_slices(attention: Attention, shard: Shard, targets: list[Slice]) -> None:
    """Raises CheckError for slices for which one recording does not serve: a kernel is made for a device's part."""
    counts = sorted({target.devices for target in targets})
    if attention == "pallas" and shard != "none" and len(counts) > 1:
        raise CheckError(
            f"Attention by kernels is made for a device's part, and the slices have {', '.join(map(str, counts))} devices.",
            "Check slices with different numbers of devices one by one.",
        )
