"""JAX functions, Pallas kernels among them, as ops of PyTorch programs for a TPU. Needs jax: the extra ``pallas``.

JAX traces a function for the operands' shapes and gives its StableHLO, kernels included as Mosaic custom calls;
it becomes part of the program that calls it, and JAX itself runs nothing and touches no device. Kernels run on a TPU,
and compile ahead of time for one; on the CPU plugin, ops given here take the form they have without.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from torch_tpu import _C


@cache
def _jax() -> Any:
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
class _Lowered:
    """A JAX function for certain shapes, as torch_tpu::foreign takes it."""

    functions: str
    results: list[int]
    tree: Any  # of the results

    def __call__(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        return torch.ops.torch_tpu.foreign(operands, self.functions, self.results)


def _spec(tensor: torch.Tensor) -> Any:
    jax = _jax()
    name = str(tensor.dtype).removeprefix("torch.")
    return jax.ShapeDtypeStruct(tuple(tensor.shape), "bool" if name == "bool" else jax.numpy.dtype(name))


# c10::ScalarType's numbers, by JAX's names.
_DTYPE_NUMBERS = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
    "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15,
}  # fmt: skip


def _dtype_number(name: str) -> int:
    if name not in _DTYPE_NUMBERS:
        raise TypeError(f"tpu: torch_tpu.pallas: a JAX function returns {name}; expected {', '.join(_DTYPE_NUMBERS)}.")
    return _DTYPE_NUMBERS[name]


def _lower(function: Callable, specs: list[Any]) -> _Lowered:
    jax = _jax()
    lowered = jax.jit(function).trace(*specs).lower(lowering_platforms=("tpu",))
    leaves, tree = jax.tree.flatten(lowered.out_info)
    results = [n for leaf in leaves for n in (_dtype_number(str(leaf.dtype)), len(leaf.shape), *leaf.shape)]
    return _Lowered(_as_functions(lowered.as_text()), results, tree)


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
    alone: dict[tuple, _Lowered] = field(default_factory=dict)
    saving: dict[tuple, _Lowered] = field(default_factory=dict)
    gradients: dict[tuple, _Lowered] = field(default_factory=dict)
    pulls: dict[tuple, Any] = field(default_factory=dict)  # the tree of the function that pulls a cotangent back

    def of(self, operands: tuple[torch.Tensor, ...]) -> _Lowered:
        key = _key(operands)
        if key not in self.alone:
            self.alone[key] = _lower(self.function, [_spec(t) for t in operands])
        return self.alone[key]

    def of_saving(self, operands: tuple[torch.Tensor, ...]) -> _Lowered:
        key = _key(operands)
        if key not in self.saving:

            def save(*given: Any) -> Any:
                result, pull = _jax().vjp(self.function, *given)
                saved, self.pulls[key] = _jax().tree.flatten(pull)
                return result, saved

            self.saving[key] = _lower(save, [_spec(t) for t in operands])
        return self.saving[key]

    def of_gradients(
        self, key: tuple, saved: tuple[torch.Tensor, ...], cotangents: tuple[torch.Tensor, ...], tree: Any
    ) -> _Lowered:
        if key not in self.gradients:
            count = len(saved)

            def pull(*given: Any) -> Any:
                back = _jax().tree.unflatten(self.pulls[key], given[:count])
                return back(_jax().tree.unflatten(tree, given[count:]))

            self.gradients[key] = _lower(pull, [_spec(t) for t in (*saved, *cotangents)])
        return self.gradients[key]


def _key(operands: tuple[torch.Tensor, ...]) -> tuple:
    return tuple((tuple(t.shape), t.dtype) for t in operands)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: _Function, *operands: torch.Tensor) -> Any:
        lowered = function.of_saving(operands)
        flat = lowered(list(operands))
        result, saved = _jax().tree.unflatten(lowered.tree, flat)
        results, ctx.tree = _jax().tree.flatten(result)
        ctx.function, ctx.key = function, _key(operands)
        ctx.save_for_backward(*saved)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        saved = ctx.saved_tensors
        lowered = ctx.function.of_gradients(ctx.key, saved, cotangents, ctx.tree)
        return None, *lowered([*saved, *(c.contiguous() for c in cotangents)])


@cache
def _known(function: Callable) -> _Function:
    return _Function(function)


def call(function: Callable, *operands: torch.Tensor) -> Any:
    """Calls a JAX function of arrays on ``tpu`` tensors, as one op of the program; gradients come from ``jax.vjp``.

    Returns what the function returns, an array or a tuple of arrays, as tensors. It is traced once for each set of
    shapes and dtypes. Raises NotImplementedError, when the program is lowered, for a Pallas kernel where there is no TPU.
    """
    known = _known(function)
    if torch.is_grad_enabled() and any(t.requires_grad for t in operands):
        flat = _Differentiable.apply(known, *operands)
    else:
        flat = known.of(operands)(list(operands))
    return flat[0] if len(flat) == 1 else tuple(flat)


def register(op: str, function: Callable, otherwise: Callable) -> None:
    """Makes a JAX function of arrays what a custom op (``"mylib::op"``) runs on ``tpu`` where the target is a TPU.

    ``otherwise``: a function of tensors, for the CPU plugin. The op's gradient, if it has one, stays what
    ``torch.library.register_autograd`` says.
    """

    def run(*operands: torch.Tensor) -> Any:
        return call(function, *operands) if on_tpu() else otherwise(*operands)

    torch.library.impl(op, "PrivateUse1")(run)


# --- attention

_BLOCK = 512
_LANES = 128


@cache
def _flash(causal: bool, scale: float, rows: int, keys: int) -> Callable:
    _jax()
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    q, k = min(_BLOCK, rows), min(_BLOCK, keys)
    sizes = flash.BlockSizes(
        block_q=q, block_k_major=k, block_k=k, block_b=1,
        block_q_major_dkv=q, block_k_major_dkv=k, block_k_dkv=k, block_q_dkv=q,
        block_k_major_dq=k, block_k_dq=k, block_q_dq=q,
    )  # fmt: skip
    return partial(flash.flash_attention, causal=causal, sm_scale=scale, block_sizes=sizes)


def _fits_flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    tensors = (query, key, value)
    if any(t.device.type != "tpu" or t.dim() != 4 or t.dtype != query.dtype for t in tensors):
        return False
    if key.shape != value.shape or query.shape[1] % key.shape[1] or query.shape[3] % _LANES:
        return False
    return all(n % min(_BLOCK, n) == 0 and n % _LANES == 0 for n in (query.shape[2], key.shape[2]))


class _FlashMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and on_tpu():
            result = self._attend(*args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor | None:
        if attn_mask is not None or dropout_p or not _fits_flash(query, key, value):
            return None
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
        scale = query.shape[3] ** -0.5 if scale is None else scale
        return call(_flash(is_causal, scale, query.shape[2], key.shape[2]), query, key, value)


@contextmanager
def flash_attention() -> Iterator[None]:
    """In the block, ``scaled_dot_product_attention`` is JAX's Pallas flash attention where the target is a TPU.

    For calls without mask and dropout, with lengths that are multiples of 512 (or of 128, up to 512) and heads of
    multiples of 128; all others, and the CPU plugin, keep the form of StableHLO.
    """
    with _FlashMode():
        yield
