"""Traces JAX functions for the shapes of tensors, and calls them as ops, with gradients."""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from torch_tpu import _C
from torch_tpu.pallas.parts import Part, between, over_devices, share


@cache
def jax_module() -> Any:
    """The package jax. Raises RuntimeError if it is not installed."""
    # The device is PyTorch's: JAX only traces.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax
    except ImportError:
        raise RuntimeError("tpu: torch_tpu.pallas needs jax.\nInstall it: pip install 'torch_tpu[pallas]'.") from None
    return jax


def on_tpu() -> bool:
    """Whether programs are for a TPU now: there is one, or an ahead-of-time check records."""
    from torch_tpu import platform

    return _C.abstract_active() or platform() == "tpu"


@dataclass(frozen=True)
class _Array:
    """What a function is traced for, or makes: an array, and what a device has of it."""

    dims: tuple[int, ...]
    dtype: torch.dtype
    part: Part | None = None

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def spec(self, whole: bool = False) -> Any:
        jax = jax_module()
        dims = self.dims if whole or self.part is None else self.part.of(self.dims)
        return jax.ShapeDtypeStruct(dims, "bool" if self.name == "bool" else jax.numpy.dtype(self.name))


Arrays = tuple[_Array, ...]


@dataclass(frozen=True)
class _Lowered:
    """A JAX function for certain shapes, as torch_tpu::foreign takes it."""

    functions: str
    made: Arrays
    tree: Any  # of what it makes

    def __call__(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        results = [n for a in self.made for n in (_DTYPE_NUMBERS[a.name], len(a.dims), *a.dims)]
        return torch.ops.torch_tpu.foreign(operands, self.functions, results)


def _arrays(tensors: tuple[torch.Tensor, ...], independent: int) -> Arrays:
    batch, heads = _C.parts()
    return tuple(_Array(tuple(t.shape), t.dtype, share(tuple(t.shape), independent, batch, heads)) for t in tensors)


# c10::ScalarType's numbers, by JAX's names.
_DTYPE_NUMBERS = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
    "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15,
}  # fmt: skip


def _dtype(name: str) -> torch.dtype:
    if name not in _DTYPE_NUMBERS:
        raise TypeError(f"tpu: torch_tpu.pallas: a JAX function returns {name}; expected {', '.join(_DTYPE_NUMBERS)}.")
    return getattr(torch, name)


def _lower(function: Callable, arrays: Arrays, parts: list[Part | None] | None = None) -> _Lowered:
    """``parts``: what a device has of each result; found by tracing the function for whole arrays, if not given."""
    jax = jax_module()
    shared = any(a.part for a in arrays)
    wholes = None
    if shared and parts is None:
        wholes = jax.tree.leaves(jax.eval_shape(function, *(a.spec(whole=True) for a in arrays)))
    lowered = jax.jit(function).trace(*(a.spec() for a in arrays)).lower(lowering_platforms=("tpu",))
    leaves, tree = jax.tree.flatten(lowered.out_info)
    if wholes is not None:
        parts = [between(tuple(w.shape), tuple(p.shape)) for w, p in zip(wholes, leaves, strict=True)]
    parts = parts or [None] * len(leaves)
    functions = _as_functions(lowered.as_text())
    if shared:
        functions = over_devices(functions, [a.part for a in arrays], parts)
    made = tuple(
        _Array(part.whole(leaf.shape) if part else tuple(leaf.shape), _dtype(str(leaf.dtype)), part)
        for leaf, part in zip(leaves, parts, strict=True)
    )
    return _Lowered(functions, made, tree)


def _as_functions(module: str) -> str:
    """The module's functions, its main first, under names that only they have."""
    text = module[module.index("{\n", module.index("module")) + 2 : module.rindex("}")]
    text = re.sub(r" \{jax\.[^}]*\}", "", text)
    mark = f"foreign_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    for name in re.findall(r"func\.func (?:public|private) @([\w.$-]+|\"[^\"]*\")\(", text):
        new = f"@{mark}" if name == "main" else f"@{mark}_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"
        text = re.sub(rf"@{re.escape(name)}(?=[(\s])", new, text)
    text = text.replace("func.func public", "func.func private")
    return re.sub(r"^  ", "", text, flags=re.MULTILINE).strip() + "\n"


@dataclass
class _Function:
    """A JAX function with what was lowered of it: alone, with what its gradient needs, and the gradient."""

    function: Callable
    alone: dict[Arrays, _Lowered] = field(default_factory=dict)
    saving: dict[Arrays, _Lowered] = field(default_factory=dict)
    gradients: dict[Arrays, _Lowered] = field(default_factory=dict)
    pulls: dict[Arrays, Any] = field(default_factory=dict)  # the tree of the function that pulls a cotangent back

    def of(self, arrays: Arrays) -> _Lowered:
        if arrays not in self.alone:
            self.alone[arrays] = _lower(self.function, arrays)
        return self.alone[arrays]

    def of_saving(self, arrays: Arrays) -> _Lowered:
        if arrays not in self.saving:

            def save(*given: Any) -> Any:
                result, pull = jax_module().vjp(self.function, *given)
                saved, self.pulls[arrays] = jax_module().tree.flatten(pull)
                return result, saved

            self.saving[arrays] = _lower(save, arrays)
        return self.saving[arrays]

    def of_gradients(self, arrays: Arrays, tree: Any) -> _Lowered:
        """Of what ``of_saving(arrays)`` returned: it takes what was saved, and cotangents of the results in ``tree``."""
        if arrays not in self.gradients:
            saving = self.of_saving(arrays)
            result, saved = jax_module().tree.unflatten(saving.tree, saving.made)
            count = len(saved)

            def pull(*given: Any) -> Any:
                back = jax_module().tree.unflatten(self.pulls[arrays], given[:count])
                return back(jax_module().tree.unflatten(tree, given[count:]))

            self.gradients[arrays] = _lower(pull, (*saved, *jax_module().tree.leaves(result)), [a.part for a in arrays])
        return self.gradients[arrays]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: _Function, arrays: Arrays, *operands: torch.Tensor) -> Any:
        lowered = function.of_saving(arrays)
        flat = lowered(list(operands))
        result, saved = jax_module().tree.unflatten(lowered.tree, flat)
        results, ctx.tree = jax_module().tree.flatten(result)
        ctx.function, ctx.arrays = function, arrays
        ctx.save_for_backward(*saved)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        lowered = ctx.function.of_gradients(ctx.arrays, ctx.tree)
        return None, None, *lowered([*ctx.saved_tensors, *(c.contiguous() for c in cotangents)])


@cache
def _known(function: Callable) -> _Function:
    return _Function(function)


def call(function: Callable, *operands: torch.Tensor, independent: int = 0) -> Any:
    """Calls a JAX function of arrays on ``tpu`` tensors, as one op of the program; gradients come from ``jax.vjp``.

    Returns what the function returns, an array or a tuple of arrays, as tensors. It is traced once for each set of
    shapes and dtypes. ``independent``: how many leading dimensions of all operands (the batch, then heads) the function
    treats element by element. Devices that share a dimension then each call it on their part; kernels need that, since
    the partitioner cannot cut them. Raises NotImplementedError, when the program is lowered, for a Pallas kernel where
    there is no TPU, and ValueError for operands that do not divide among the devices.
    """
    known, arrays = _known(function), _arrays(operands, independent)
    if torch.is_grad_enabled() and any(t.requires_grad for t in operands):
        flat = _Differentiable.apply(known, arrays, *operands)
    else:
        flat = known.of(arrays)(list(operands))
    return flat[0] if len(flat) == 1 else tuple(flat)


def register(op: str, function: Callable, otherwise: Callable) -> None:
    """Makes a JAX function of arrays what a custom op (``"mylib::op"``) runs on ``tpu`` where the target is a TPU.

    ``otherwise``: a function of tensors, for the CPU plugin. The op's gradient, if it has one, stays what
    ``torch.library.register_autograd`` says.
    """

    def run(*operands: torch.Tensor) -> Any:
        return call(function, *operands) if on_tpu() else otherwise(*operands)

    torch.library.impl(op, "PrivateUse1")(run)
