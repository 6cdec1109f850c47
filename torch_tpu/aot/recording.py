"""Runs user code on device ``tpu`` without data: nothing executes, and the programs that would have run are kept."""

import functools
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torch_tpu import _C
from torch_tpu.aot import hardware
from torch_tpu.aot.errors import CheckError


@dataclass(frozen=True)
class Argument:
    """A device array that a program takes or returns."""

    name: str  # of the parameter, buffer or optimizer state that it is the value of; empty if none is known
    type: str
    nbytes: int
    donated: bool
    stacked: int = 0  # arrays that it is a stack of, named "model.layers.*.weight"; 0: it is none


@dataclass(frozen=True)
class Program:
    """What would have been compiled and run as one."""

    module: str  # StableHLO
    parts: dict[str, str]  # its calls, inputs and results for people: what tells programs apart
    arguments: list[Argument]
    results: list[Argument]
    rows: dict[str, dict[str, int]]  # ATen op -> Python line -> calls
    loops: list[tuple[int, int]]  # that stand for layers: calls, times
    ended_by: str  # what would have run it, the first time
    runs: int
    resident_bytes: int  # of device values that were alive beside the program's own, at most
    host_bytes: int  # sent from the host for a run, at most

    @property
    def multiplies(self) -> bool:
        """Whether it has products of matrices, or convolutions."""
        return any(op in self.module for op in ("stablehlo.dot_general", "stablehlo.convolution"))

    @property
    def is_setup(self) -> bool:
        """True if it only makes arrays, such as parameters: it takes none, and multiplies no matrices."""
        return not self.arguments and not self.multiplies


@dataclass(frozen=True)
class Finding:
    """Something in the user's code that a TPU would not do by itself.

    ``kind``: ``host read`` (the program waits for the device), ``unsupported`` (an op that runs on the host),
    ``stopped`` (the script raised: the check covers what ran before).
    """

    kind: str
    what: str
    where: str
    count: int


@dataclass
class Recording:
    """What a ``with topology(...)`` block recorded. Filled when the block ends."""

    target: hardware.Slice
    programs: list[Program] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # which of the programs each run was of
    ends: dict[str, list[int]] = field(default_factory=dict)  # of steps of a kind: the runs before each end
    findings: list[Finding] = field(default_factory=list)

    def cut(self, why: str = "a cut") -> None:
        """Ends the program being recorded: later calls begin another."""
        _C.abstract_cut(why)

    def run_count(self) -> int:
        """How many programs would have run so far, each time that one came again counted."""
        return _C.abstract_runs()

    def end_step(self, kind: str) -> None:
        """Says that a step of this kind has ended, such as that of an optimizer."""
        self.ends.setdefault(kind, []).append(self.run_count())


# Calls of a program from which on its layers that repeat become loops, unless the caller says.
ROLL_FROM = 4000

# What stands for a value that the host reads: enough for a loop's end test, a log line or a scaler's check to go on.
# int64 values are mostly counts, and a count of nothing would leave nothing to check.
# transformers asks whether nothing is padded or packed: the usual case, in which it gives attention no mask but a flag.
_USUALLY_TRUE = ("packed_sequence_mask[:, -1] == 0", "fast_all(")


def default_value(type_: str, where: str = "") -> float:
    if type_ == "tensor<i1>":
        file, _, number = where.rpartition(":")
        asked = linecache.getline(file, int(number)) if "/transformers/" in file else ""
        return float(any(question in asked for question in _USUALLY_TRUE) or _is_validation())
    return 1.0 if type_.endswith("xi64>") or type_ == "tensor<i64>" else 0.0


def _is_validation() -> bool:
    """Whether torch.distributions is looking at its arguments, which are valid in what works."""
    frame = sys._getframe()
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("torch.distributions."):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "__init__"


def _reader(values: Mapping[str, float] | None, refuse: bool) -> Callable[[str, str], float | None]:
    values = dict(values or {})

    def assume(type_: str, where: str) -> float | None:
        for line, value in values.items():
            if where == line or where.endswith("/" + line):
                return float(value)
        return None if refuse else default_value(type_, where)

    return assume


class _Names:
    """Knows the names of modules, parameters and optimizer state, and tells the core as they come up."""

    def __init__(self) -> None:
        self._of_module: dict[int, str] = {}
        self._of_parameter: dict[int, str] = {}
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._depth = 0

    def before_call(self, module: torch.nn.Module, _: Any) -> None:
        if self._depth == 0:
            self._adopt(module)
        self._depth += 1
        _C.enter_scope(self._of_module.get(id(module), type(module).__name__))

    def after_call(self, *_: Any) -> None:
        self._depth = max(0, self._depth - 1)
        _C.leave_scope()

    def _adopt(self, root: torch.nn.Module) -> None:
        if id(root) in self._of_module and root not in self._roots:
            return  # a part of a model, called by itself: a checkpoint computes it again in the backward
        if root not in self._roots:
            # Making the parameters is a program of its own.
            _C.abstract_cut("a module's first call")
            self._roots.add(root)
            prefix = type(root).__name__
            for name, module in root.named_modules():
                self._of_module[id(module)] = f"{prefix}.{name}" if name else prefix
            for name, parameter in root.named_parameters():
                self._of_parameter[id(parameter)] = name
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            _C.abstract_name(tensor, name)

    def before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._of_parameter.get(id(parameter), "parameter")
                if parameter.grad is not None:
                    _C.abstract_name(parameter.grad, f"gradient of {name}")
                for key, state in optimizer.state.get(parameter, {}).items():
                    if isinstance(state, torch.Tensor):
                        _C.abstract_name(state, f"{key} of {name}")


def _goes_to_tpu(args: tuple, kwargs: dict) -> torch.device | None:
    device = torch._C._nn._parse_to(*args, **kwargs)[0]
    return device if device is not None and device.type == "tpu" else None


@contextmanager
def _meta_tensors_move() -> Iterator[None]:
    """Lets tensors and modules without data go to ``tpu``, where they have none either; modules keep their parameters."""
    plain_to, plain_to_empty = torch.Tensor.to, torch.nn.Module.to_empty

    @functools.wraps(plain_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not self.is_meta or (device := _goes_to_tpu(args, kwargs)) is None:
            return plain_to(self, *args, **kwargs)
        dtype = torch._C._nn._parse_to(*args, **kwargs)[1] or self.dtype
        moved = torch.empty_strided(self.size(), self.stride(), dtype=dtype, device=device)
        _C.abstract_name(moved, "")
        return moved

    @functools.wraps(plain_to_empty)
    def to_empty(self: torch.nn.Module, **kwargs: Any) -> torch.nn.Module:
        moved = plain_to_empty(self, **kwargs)
        for tensor in (*moved.parameters(), *moved.buffers()):
            _C.abstract_name(tensor, "")
        return moved

    future = torch.__future__
    swaps = future.get_swap_module_params_on_conversion()
    torch.Tensor.to, torch.nn.Module.to_empty = to, to_empty
    future.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.Tensor.to, torch.nn.Module.to_empty = plain_to, plain_to_empty
        future.set_swap_module_params_on_conversion(swaps)


@contextmanager
def _printing_reads_once() -> Iterator[None]:
    """Printing a tensor is one read by the host, not a dozen ops that look for the widest number."""
    plain = torch.Tensor.__repr__

    @functools.wraps(plain)
    def __repr__(self: torch.Tensor, **kwargs: Any) -> str:
        if self.device.type != "tpu":
            return plain(self, **kwargs)
        self.detach().cpu()
        return f"tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"

    torch.Tensor.__repr__ = __repr__
    try:
        yield
    finally:
        torch.Tensor.__repr__ = plain


def _roll_from(roll: bool | None) -> int:
    """How many calls a program has at least for its layers to become loops."""
    return ROLL_FROM if roll is None else 0 if roll else sys.maxsize


@contextmanager
def topology(
    name: str | hardware.Slice,
    *,
    values: Mapping[str, float] | None = None,
    on_read: str = "raise",
    roll: bool | None = False,
    batch_parts: int = 1,
    head_parts: int = 1,
) -> Iterator[Recording]:
    """User code in the block runs unchanged on device ``tpu``, on tensors that have shapes and no data.

    Nothing executes and no memory is taken for tensors, whatever their size: the programs that would have run
    are in the recording that the block gets, once it has ended. ``name``: a slice, such as ``"v6e:2x2"``,
    ``"v6e-8"`` or ``"ironwood"``.

    A value that the host reads (``.item()``, ``nonzero``, printing) is not there. ``values`` gives it, by
    Python line (``{"train.py:31": 7}``); otherwise the read raises RuntimeError, or with ``on_read="assume"``
    gets 0 (1 for int64). Either way it is among the findings.

    ``roll``: layers that repeat become loops over stacked parameters, as someone would write them by hand. None: in
    programs of at least ``ROLL_FROM`` calls, which take the compiler minutes otherwise.

    ``batch_parts``, ``head_parts``: how many devices will share the batch, or attention's heads, where the program is to
    be spread over several: some ops choose their form by a device's part.

    Tensors made in the block have no data afterwards either. Blocks do not nest, and a process records one at a time.
    """
    if on_read not in ("raise", "assume"):
        raise ValueError(f"on_read: got {on_read!r}; expected 'raise' or 'assume'.")
    if _C.abstract_active():
        raise CheckError("torch_tpu.aot is recording already.", "Blocks do not nest: end the outer one first.")
    recording = Recording(name if isinstance(name, hardware.Slice) else hardware.parse(name))
    names = _Names()
    module = torch.nn.modules.module
    with ExitStack() as stack:
        for handle in (
            module.register_module_forward_pre_hook(names.before_call),
            module.register_module_forward_hook(names.after_call, always_call=True),
            register_optimizer_step_pre_hook(names.before_step),
        ):
            stack.callback(handle.remove)
        stack.enter_context(_meta_tensors_move())
        stack.enter_context(_printing_reads_once())
        _C.set_parts(batch_parts, head_parts)
        stack.callback(_C.set_parts, 1, 1)
        _C.abstract_begin(_reader(values, on_read == "raise"), _roll_from(roll))
        try:
            yield recording
        finally:
            _C.settle_autograd_threads()  # while its tensors need no device
            recording.findings = [Finding(*f) for f in _C.abstract_findings()]
            programs, recording.order = _C.abstract_end()
            recording.programs = [_program(p, recording.order.count(i)) for i, p in enumerate(programs)]


def _program(kept: dict[str, Any], runs: int) -> Program:
    return Program(**kept | {key: [Argument(*a) for a in kept[key]] for key in ("arguments", "results")}, runs=runs)


def line(where: str) -> str:
    """A Python line for people: the path from here, or from the folder of installed packages."""
    file, _, number = where.rpartition(":")
    for folder in (f"{Path.cwd()}/", "/site-packages/", "/dist-packages/"):
        if folder in file:
            file = file.partition(folder)[2]
    return f"{file}:{number}"
