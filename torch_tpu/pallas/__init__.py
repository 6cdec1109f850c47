"""JAX functions, Pallas kernels among them, as ops of PyTorch programs for a TPU. Needs jax: the extra ``pallas``.

JAX traces a function for the operands' shapes and gives its StableHLO, kernels included as Mosaic custom calls;
it becomes part of the program that calls it, and JAX itself runs nothing and touches no device. Kernels run on a TPU,
and compile ahead of time for one; on the CPU plugin, ops given here take the form they have without.
"""

from torch_tpu.pallas.attention import flash_attention
from torch_tpu.pallas.functions import call, on_tpu, register

__all__ = ["call", "flash_attention", "on_tpu", "register"]
