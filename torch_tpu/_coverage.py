"""How each ATen overload runs on ``tpu``: read from PyTorch's dispatcher and the lowering table, not from lists.

The dispatcher says which kernel answers device ``tpu``; the table says which row that is. What composites call was
traced (``tools/trace_composites.py``), and what the TPU's compiler says was tried (``tools/check_tpu_compile.py``).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from torch_tpu import _C

How = Literal["native", "composite", "fallback", "none"]

# The counting rule, as reports state it.
RULE = {
    "native": "the kernel that the dispatcher has for `tpu` is this project's: a row of the lowering table, or a "
    "kernel of its own (views, factories, copies, what depends on values, sparse COO and CSR).",
    "composite": "PyTorch's own kernel answers, and calls other ops, none of which runs on the CPU as far as known.",
    "fallback": "the kernel for the CPU runs, with copies there and back and a warning: the op has no kernel for "
    "`tpu` but has one for the CPU, or is a composite that was seen to call such an op, or an out= form does so.",
    "none": "not applicable: it has no kernel for `tpu` nor for dense CPU tensors.",
}

_DATA = Path(__file__).parent / "data"

# Keys of the dispatcher that say what kind of tensor an op without a dense kernel is for.
_KINDS = (
    ("Quantized", "quantized tensors"),
    ("NestedTensor", "nested tensors"),
    ("Mkldnn", "tensors in oneDNN's layout"),
    ("SparseCsr", "sparse tensors"),
    ("Sparse", "sparse tensors"),
)
# Parts of names by which PyTorch marks ops of one backend or layout.
_NAMES = (
    ("cudnn", "NVIDIA's cuDNN"),
    ("miopen", "AMD's MIOpen"),
    ("mps", "Apple's MPS"),
    ("mkldnn", "Intel's oneDNN"),
    ("cslt", "NVIDIA's cuSPARSELt"),
    ("triton", "Triton kernels of other devices"),
    ("_flash_attention", "CUDA attention kernels; `tpu` has scaled_dot_product_attention"),
    ("_efficient_attention", "CUDA attention kernels; `tpu` has scaled_dot_product_attention"),
    ("mem_eff", "CUDA attention kernels; `tpu` has scaled_dot_product_attention"),
    ("scaled_dot_product", "CUDA attention kernels; `tpu` has scaled_dot_product_attention"),
    ("_nested_get_", "jagged tensors: their class in Python answers, on any device"),
    ("_nested_view_from_jagged", "jagged tensors: their class in Python answers, on any device"),
    ("_nested_from_padded_tensor", "jagged tensors: their class in Python answers, on any device"),
    ("nested", "nested tensors"),
    ("jagged", "nested tensors"),
    ("quantized", "quantized tensors"),
    ("sparse", "sparse tensors"),
    ("int4pack", "weights packed for a kernel of one backend"),
    ("_philox", "CUDA's random numbers"),
    ("_conv_depthwise2d", "CUDA's convolution"),
    ("conv_depthwise3d", "CUDA's convolution"),
)


@dataclass(frozen=True)
class Op:
    """One overload of one ATen op, and how it runs on device ``tpu``."""

    name: str
    """``aten::add.Tensor``"""
    how: How
    """``native``, ``composite``, ``fallback`` (runs on the CPU) or ``none`` (not applicable)."""
    row: str = ""
    """The row of the lowering table that serves it; empty if it is not native, or has a kernel of its own."""
    source: str = ""
    """Where the kernel is: the family's file of a row, the file of another native kernel, or PyTorch's registration."""
    through: tuple[str, ...] = field(default=())
    """The ops that it calls, if it is a composite for which that is known."""
    method: str = ""
    """How ``through`` is known: ``traced`` (seen in samples), ``generated`` or ``structured`` (PyTorch's code makes
    it so), or empty."""
    reason: str = ""
    """Why it is not native, for ``fallback`` and ``none``."""
    schema: str = ""
    """PyTorch's schema."""


def _table_line(name: str, key: str) -> tuple[str, str]:
    """(where it is registered, what kind of kernel) of the kernel that answers ``key``; empty if none does."""
    found = re.search(rf"^{key}: (.*) \[(.*)\]$", torch._C._dispatch_dump_table(name), re.MULTILINE)
    return (found[1].removeprefix("registered at "), found[2]) if found else ("", "")


def _overload(name: str):
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _writes_out(schema: torch._C.FunctionSchema) -> bool:
    return any(a.is_out for a in schema.arguments)


def _inputs(schema: torch._C.FunctionSchema) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]


@cache
def _schemas() -> dict[str, torch._C.FunctionSchema]:
    """Every ATen overload, in order."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            found[schema.name + ("." + schema.overload_name if schema.overload_name else "")] = schema
    known = set(torch._C._dispatch_get_all_op_names())
    return {name: found[name] for name in sorted(found) if name in known}


# Arguments of factories, which their out= forms do not have.
_OPTIONS = {"dtype", "layout", "device", "pin_memory"}


def _sibling(name: str, out: bool) -> str:
    """The overload of the same op that takes the same inputs and has, or has not, out= arguments; or nothing."""
    schema = _schemas()[name]
    for other, candidate in _schemas().items():
        if candidate.name == schema.name and other != name and _writes_out(candidate) == out:
            written = any(a.alias_info is not None and a.alias_info.is_write for a in candidate.arguments)
            inputs = [[i for i in _inputs(s) if i[0] not in _OPTIONS] for s in (candidate, schema)]
            if written == out and inputs[0] == inputs[1]:
                return other
    return ""


def _in_place_form(name: str) -> str:
    """The in-place overload of a functional op that PyTorch generates from it; or nothing."""
    base, _, overload = name.partition(".")
    other = f"{base}_" + (f".{overload}" if overload else "")
    schema = _schemas()[name]
    written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return other if not written and other in _schemas() and _inputs(_schemas()[other]) == _inputs(schema) else ""


@cache
def _traced() -> dict[str, tuple[str, ...]]:
    lines = (_DATA / "composites.tsv").read_text().splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {name: tuple(calls.split()) for name, calls in rows}


def _calls(name: str, source: str) -> tuple[tuple[str, ...], str]:
    """(the ops that a composite calls, how that is known)."""
    if name in _traced():
        return _traced()[name], "traced"
    schema = _schemas()[name]
    if torch.Tag.generated in _overload(name).tags:
        functional = _sibling(name, out=False)
        if _writes_out(schema) and functional:
            return (functional, "aten::copy_"), "generated"
        in_place = _in_place_form(name)
        if in_place:
            return ("aten::clone", in_place), "generated"
    elif "NonFunctional" in source:
        kernel = _sibling(name, out=True)
        if kernel and torch.Tag.generated not in _overload(kernel).tags:
            return (kernel,), "structured"
    return (), ""


def _why_none(name: str) -> str:
    keys = re.findall(r"^(\w+): registered", torch._C._dispatch_dump(name), re.MULTILINE)
    for part, whose in _NAMES:
        if part in name:
            return f"for {whose}"
    for prefix, kind in _KINDS:
        if any(key.startswith(prefix) for key in keys):
            return f"for {kind}"
    return "PyTorch has no kernel for dense CPU tensors: for other backends or layouts"


def _described(name: str, schema) -> Op:
    where, kind = _table_line(name, "PrivateUse1")
    text = str(schema)
    served = _served().get(name)
    if served:
        return Op(name, "native", served[0], f"csrc/lowerings/{served[1]}.cpp", schema=text)
    if kind == "kernel":
        return Op(name, "native", "", re.sub(r"^.*?(csrc/[^:]*)(:\d+)?$", r"\1", where), schema=text)
    if kind in ("math kernel", "default backend kernel"):
        source = re.sub(r"^.*/(\w+\.\w+):\d+$", r"\1", where)
        through, method = _calls(name, source)
        return Op(name, "composite", "", source, through, method, schema=text)
    for key in ("SparsePrivateUse1", "SparseCsrPrivateUse1"):
        where, kind = _table_line(name, key)
        if kind == "kernel" and "csrc/" in where:
            return Op(name, "native", "", re.sub(r"^.*?(csrc/[^:]*)(:\d+)?$", r"\1", where), schema=text)
    if _table_line(name, "CPU")[1] in ("kernel", "math kernel", "default backend kernel"):
        return Op(name, "fallback", reason="no row: its CPU kernel runs", schema=text)
    return Op(name, "none", reason=_why_none(name), schema=text)


@cache
def _served() -> dict[str, tuple[str, str]]:
    return _C.served_overloads()


def _through_cpu(found: dict[str, Op]) -> None:
    """Composites that call an op which falls back do so too."""
    changed = True
    while changed:
        changed = False
        for name, op in found.items():
            if op.how != "composite":
                continue
            on_cpu = [called for called in op.through if called in found and found[called].how == "fallback"]
            if on_cpu:
                found[name] = Op(
                    name, "fallback", "", op.source, op.through, op.method, f"calls {', '.join(on_cpu)}", op.schema
                )
                changed = True


@cache
def _all() -> dict[str, Op]:
    found = {name: _described(name, schema) for name, schema in _schemas().items()}
    _through_cpu(found)
    return found


def ops(how: How | Iterable[How] | None = None) -> list[Op]:
    """Every ATen overload that PyTorch's dispatcher knows, sorted by name, with how it runs on device ``tpu``.

    how: only those that run so: ``"native"``, ``"composite"``, ``"fallback"``, ``"none"``, or several of them.
    Loads no plugin and runs no op. Raises ValueError for another word.
    """
    wanted = set(RULE) if how is None else {how} if isinstance(how, str) else set(how)
    if unknown := wanted - set(RULE):
        raise ValueError(f"torch_tpu.ops: how={sorted(unknown)}: expected some of {sorted(RULE)}.")
    return [op for op in _all().values() if op.how in wanted]


def totals(rows: Iterable[Op]) -> dict[str, int]:
    """How many of ``rows`` run in each way."""
    counts = dict.fromkeys(RULE, 0)
    for op in rows:
        counts[op.how] += 1
    return counts


@dataclass(frozen=True)
class TpuCompilation:
    """What the TPU's compiler said to the programs of one row."""

    compiler: str
    """The compiler and the topology."""
    dtypes: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    """row -> a cell a dtype: ``ok 3``, ``-`` (no sample), or the refusal with the compiler's reason."""


@cache
def tpu_compilation() -> TpuCompilation:
    """The table that ``tools/check_tpu_compile.py`` wrote."""
    lines = (_DATA / "tpu_compile.tsv").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    head, *body = (line.split("\t") for line in lines[len(comments) :])
    compiler = comments[0].partition(": ")[2].rstrip(".")
    return TpuCompilation(compiler, tuple(head[1:]), {name: tuple(cells) for name, *cells in body})
