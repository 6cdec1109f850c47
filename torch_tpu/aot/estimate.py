"""The time of a program from its scheduled HLO and published figures of the chip: lower, expected, upper.

Matrix products take the compiler's cycles where it gives them (a full compile), else their operations at the share of
the peak that its cycles give large ones on such a chip; everything else takes its HBM bytes at 85 % of the bandwidth,
or its transcendental functions. A Pallas kernel takes its products and its vector work one after the other, as its own
program has them. Copies that the compiler made asynchronous hide behind other work as far as that leaves HBM idle.
Loops count as often as they run. Nothing here was measured on a TPU: docs/check.md says what the figures are worth.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch_tpu.aot import layout, mosaic
from torch_tpu.aot.hardware import Slice
from torch_tpu.aot.hlo import HBM, Line, Module, plain_bytes, shape_bytes
from torch_tpu.aot.trips import Frame, Loops

HBM_EFFICIENCY = 0.85
SLOW = 0.5  # of both peaks, for the upper figure
LAUNCH = 1.2e-6  # seconds, for each step of the schedule
# Of a core's vector unit, each cycle, one vector of 8 x 128 numbers: transcendental functions; of other work it makes
# four (https://jax-ml.github.io/scaling-book/tpus, for v5p).
_TRANSCENDENTALS_A_CYCLE = 1024
_ELEMENTS_A_CYCLE = 4096

_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "opt-barrier", "domain", "add-dependency", "iota", "copy-done", "async-update", "slice-done",
    "send-done", "recv-done",
}  # fmt: skip
_ASYNC = {"copy-start", "slice-start", "async-start"}
_DONE = {"all-gather-done", "all-reduce-done", "collective-permute-done", "async-done"}
_TRANSCENDENTAL = {
    "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "power", "rsqrt", "sqrt", "cbrt",
    "sine", "cosine", "tan", "atan2", "erf",
}  # fmt: skip
# Custom calls that the compiler makes itself, which compute nothing: halves of 64-bit numbers, promises.
_PLUMBING = ("X64", "Assume", "ConcatBitcast", "Sharding", "SPMD")
# Collective of n devices -> bytes that come in at each of them, for each byte of its operands.
_COLLECTIVES = {
    "all-gather": lambda n: n - 1,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
}


@dataclass
class Step:
    """One instruction of the schedule, with all its runs."""

    name: str
    opcode: str
    line: Line
    runs: float
    seconds: float
    flops: float
    bytes: float
    bound: str  # "MXU", "HBM", "VPU", "ICI", or "launch": too little work to tell
    relaid: float = 0.0  # bytes of the values whose layout it changes, if it does nothing else


class _Links:
    """When the collectives end that were started in a run of a computation: they take turns."""

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self._free = 0.0

    def start(self, instruction: int, now: float, seconds: float) -> None:
        self._free = self.ends[instruction] = max(self._free, now) + seconds


@dataclass
class Estimate:
    lower: float = 0.0  # seconds
    expected: float = 0.0
    upper: float = 0.0
    flops: float = 0.0  # of matrix products
    passes: float = 0.0  # the same, times the MXU's passes for float32
    bytes: float = 0.0  # to and from HBM
    link_bytes: float = 0.0
    seconds_by_bound: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: list[Step] = field(default_factory=list)
    padded_bytes: float = 0.0
    unknown_loops: int = 0
    uncosted_calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    has_cycles: bool = False

    @property
    def bound(self) -> str:
        """What most of the time goes to."""
        return max(self.seconds_by_bound, key=self.seconds_by_bound.get) if self.seconds_by_bound else "nothing"

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes if self.bytes else 0.0


def estimate(module: Module, target: Slice) -> Estimate:
    """The time that one run of the program takes on one device of a slice."""
    return _Walk(module, target).run()


class _Walk:
    def __init__(self, module: Module, target: Slice):
        self._module = module
        self._target = target
        self._chip = target.chip
        self._result = Estimate()
        self._loops = Loops(module)

    def run(self) -> Estimate:
        result, chip = self._result, self._chip
        self._computation(self._module.entry, 1, lambda: [{}])
        result.lower = max(
            result.passes / chip.flops, result.bytes / chip.hbm_bandwidth, self._link_seconds(result.link_bytes)
        )
        result.upper = max(result.upper, result.expected)
        return result

    def _link_seconds(self, amount: float) -> float:
        return amount / self._target.gather_bandwidth

    def _computation(self, computation: Any, runs: float, frames: Callable[[], list[Frame] | None]) -> None:
        """Adds a computation that runs so often. ``frames``: what steers its loops, of which each stands for as many runs."""
        if not runs:
            return
        pending = 0.0  # seconds of HBM that asynchronous copies still need
        begun = self._result.expected
        links = _Links()
        for instruction in self._module.scheduled(computation):
            opcode = instruction.opcode
            if exchange := self._begun(instruction):
                now = (self._result.expected - begun) / runs
                links.start(exchange.id, now, self._link_seconds(self._sent(exchange)) + LAUNCH)
                continue
            if opcode in _FREE:
                continue
            sent = self._sent(instruction)
            if opcode.endswith("-start") and sent is not None:
                continue  # an update begins it
            elif opcode in _DONE:
                now = (self._result.expected - begun) / runs
                self._wait(instruction, links, now, runs)
            elif opcode == "while":
                self._loop(instruction, runs, frames)
            elif opcode in ("call", "conditional"):
                for called in instruction.called_computation_ids[-1:]:
                    self._computation(self._module.computations[called], runs, lambda: None)
            elif opcode in _ASYNC:
                moved = self._copied(instruction)
                self._result.bytes += moved * runs
                self._result.upper += runs * moved / (SLOW * self._chip.hbm_bandwidth)
                pending += moved / (HBM_EFFICIENCY * self._chip.hbm_bandwidth)
            elif sent is not None:
                seconds = self._link_seconds(sent) + LAUNCH
                self._exchange(instruction, sent, seconds, runs)
                pending = max(0.0, pending - seconds)
            else:
                idle = self._step(instruction, runs)
                pending = max(0.0, pending - idle)
        self._result.expected += pending * runs
        self._result.seconds_by_bound["HBM"] += pending * runs

    def _loop(self, loop: Any, runs: float, frames: Callable[[], list[Frame] | None]) -> None:
        outside = cache(frames)
        inside = cache(lambda: None if outside() is None else self._loops.frames(loop, outside()))
        trips = self._module.trip_count(loop)
        if trips is None and inside() is not None:
            trips = len(inside()) / len(outside())
        if trips is None:
            self._result.unknown_loops += 1
            trips = 1
        self._computation(self._module.computations[loop.called_computation_ids[0]], runs * trips, inside)

    def _copied(self, instruction: Any) -> float:
        """Bytes that an asynchronous copy moves from or to HBM: the smaller side is what moves."""
        operands = sum(plain_bytes(o.shape) for o in self._module.operands(instruction))
        results = [s for s in instruction.shape.tuple_shapes if s.element_type != 13]
        moved = min((plain_bytes(s) for s in results if s.dimensions), default=operands)
        return min(moved, operands) if operands else moved

    def _step(self, instruction: Any, runs: float) -> float:
        """Adds one instruction; returns the seconds a run of it leaves HBM idle."""
        result, chip, module = self._result, self._chip, self._module
        target = instruction.custom_call_target
        if self._is_scalar(instruction) or target == "AllocateBuffer":  # a place that is written later
            return 0.0
        flops, passes = module.matmul_flops(instruction)
        moved = self._hbm_bytes(instruction)
        functions = sum(_elements(p.shape) for p in module.inside(instruction) if p.opcode in _TRANSCENDENTAL)
        vpu = functions / (_TRANSCENDENTALS_A_CYCLE * chip.vector_rate)
        kernel = self._kernel(instruction)
        if kernel is not None:
            flops, passes, moved = kernel.flops, kernel.padded_flops(chip.mxu), kernel.bytes or moved
            vpu = max(kernel.elements / _ELEMENTS_A_CYCLE, kernel.transcendentals / _TRANSCENDENTALS_A_CYCLE)
            vpu /= chip.vector_rate
        if target and not flops and not vpu and not target.startswith(_PLUMBING):
            result.uncosted_calls[target] += runs
        cycles = _cycles(instruction)
        result.has_cycles |= cycles > 0
        by_cycles = cycles / chip.clock
        mxu = by_cycles if flops and cycles else passes / (chip.mxu_share * chip.flops)
        hbm = moved / (HBM_EFFICIENCY * chip.hbm_bandwidth)
        busy = {"MXU": mxu, "HBM": hbm, "VPU": vpu}
        slow = max(passes / (SLOW * chip.flops), moved / (SLOW * chip.hbm_bandwidth), vpu) + LAUNCH
        if kernel is not None:
            # A block's products and what is done with them depend on each other.
            busy["MXU"] = passes / chip.flops + vpu
            slow = max(busy["MXU"] / SLOW, moved / (SLOW * chip.hbm_bandwidth)) + LAUNCH
        bound = max(busy, key=busy.get) if max(busy.values()) > LAUNCH else "launch"
        seconds = max(busy.values()) + LAUNCH
        result.expected += seconds * runs
        result.upper += max(seconds, by_cycles or slow) * runs
        result.flops += flops * runs
        result.passes += passes * runs
        result.bytes += moved * runs
        result.seconds_by_bound[bound] += seconds * runs
        self._add(instruction, runs, seconds, flops, moved, bound)
        return seconds - hbm

    def _kernel(self, instruction: Any) -> mosaic.Work | None:
        """What a Pallas kernel does; what its author says of it, where it cannot be counted."""
        text = self._module.config(instruction) if instruction.custom_call_target == "tpu_custom_call" else b""
        if not text:
            return None
        config = json.loads(text).get("custom_call_config", {})
        scalars = tuple(self._module.numbers(o) for o in self._module.operands(instruction))
        counted = mosaic.work(config["body"], scalars) if "body" in config else None
        if counted is None and "cost_estimate" in config:
            said = {name: float(amount) for name, amount in config["cost_estimate"].items()}
            return mosaic.Work(said_flops=said.get("flops", 0), transcendentals=said.get("transcendentals", 0))
        return counted

    def _is_scalar(self, instruction: Any) -> bool:
        """True for single numbers made of single numbers, such as a loop's count: the scalar core's, beside the rest."""
        made = (instruction, *self._module.operands(instruction))
        return not (instruction.custom_call_target or any(i.shape.dimensions or i.shape.tuple_shapes for i in made))

    # --- collectives

    def _sent(self, instruction: Any, sliced: bool = False) -> float | None:
        """Bytes that come in over the links for a run of a collective, or of a fusion or an asynchronous call made for one.

        None: there is none. ``sliced``: each device takes a slice of the sum, so that the compiler only scatters it.
        """
        kind = instruction.opcode.removesuffix("-start")
        if kind in _COLLECTIVES:
            groups = [*instruction.replica_groups, *instruction.device_list.replica_groups]
            sizes = [len(g.replica_ids) for g in groups] or [instruction.device_list.iota.size or self._target.devices]
            share = _COLLECTIVES["reduce-scatter" if sliced and kind == "all-reduce" else kind](max(2, *sizes))
            return share * sum(plain_bytes(o.shape) for o in self._module.operands(instruction))
        # What SparseCores run is a computation of a custom call.
        if instruction.opcode not in ("fusion", "async-start", "custom-call"):
            return None
        inner = [p for c in instruction.called_computation_ids for p in self._module.computations[c].instructions]
        slices = instruction.opcode == "fusion" and any(p.opcode == "dynamic-slice" for p in inner)
        found = [sent for p in inner if (sent := self._sent(p, slices)) is not None]
        return sum(found) if found else None

    def _begun(self, instruction: Any) -> Any | None:
        """The start of the asynchronous collective that has its operands from this instruction on, if there is one.

        SparseCores are first told what to run: such a start has no operands, and an update brings them.
        """
        start = self._module.operands(instruction)[0] if instruction.opcode == "async-update" else instruction
        if not start.opcode.endswith("-start") or (start is instruction) != bool(start.operand_ids):
            return None
        return None if self._sent(start) is None else start

    def _exchange(self, instruction: Any, sent: float, seconds: float, runs: float) -> None:
        """Adds a collective's bytes, and those seconds of a run of it that nothing hides."""
        result = self._result
        result.link_bytes += sent * runs
        result.expected += seconds * runs
        result.upper += 2 * (self._link_seconds(sent) + LAUNCH) * runs
        result.seconds_by_bound["ICI"] += seconds * runs
        self._add(instruction, runs, seconds, 0, sent, "ICI")

    def _wait(self, done: Any, links: "_Links", now: float, runs: float) -> None:
        """The end of what was started earlier: the rest of a collective's time."""
        start = done
        while start.id not in links.ends and start.operand_ids and start.opcode in {*_DONE, "async-update"}:
            start = self._module.operands(start)[0]
        if start.id in links.ends:
            exposed = max(0.0, links.ends.pop(start.id) - now)
            self._exchange(start, self._sent(start) or 0.0, exposed, runs)

    def _add(self, instruction: Any, runs: float, seconds: float, flops: float, moved: float, bound: str) -> None:
        relays = layout.only_changes_layout(self._module, instruction)
        self._result.steps.append(
            Step(
                instruction.name,
                instruction.opcode,
                (layout.line if relays else Module.line)(self._module, instruction),
                runs,
                seconds * runs,
                flops * runs,
                moved * runs,
                bound,
                plain_bytes(instruction.shape) * runs if relays else 0.0,
            )
        )

    def _hbm_bytes(self, instruction: Any) -> float:
        """Bytes that an instruction reads from and writes to HBM; of an operand that it slices, the slices."""
        module = self._module
        written = shape_bytes(instruction.shape, HBM)
        self._result.padded_bytes += max(0, written - plain_bytes(instruction.shape)) if written else 0
        operands = module.operands(instruction)
        if instruction.opcode == "dynamic-update-slice":
            return 2 * shape_bytes(operands[1].shape)
        if instruction.opcode in ("dynamic-slice", "slice", "gather"):
            return written + min(written, shape_bytes(operands[0].shape, HBM))
        read = 0
        for position, operand in enumerate(operands):
            whole = shape_bytes(operand.shape, HBM)
            if not whole:
                continue
            part, updates = self._read_by_fusion(instruction, position) if instruction.opcode == "fusion" else (None, 0)
            read += whole if part is None else min(part, whole)
            if updates and part is not None:
                # In place: of this part of the result, only the slice is written.
                written = max(0, written - max(0, whole - updates))
        return read + written

    def _users(self, fusion: Any, position: int) -> Iterator[tuple[Any, list[int]]]:
        """What uses an operand of a fusion, and at which places; users in fusions within it included."""
        computation = self._module.computations[fusion.called_computation_ids[0]]
        ids = {i.id for i in computation.instructions if i.opcode == "parameter" and i.parameter_number == position}
        for inner in computation.instructions:
            places = [k for k, o in enumerate(inner.operand_ids) if o in ids]
            if not places:
                continue
            if inner.opcode == "bitcast":
                ids.add(inner.id)
            elif inner.opcode == "fusion":
                for place in places:
                    yield from self._users(inner, place)
            else:
                yield inner, places

    def _read_by_fusion(self, fusion: Any, position: int) -> tuple[int | None, int]:
        """The bytes of slices, if a fusion only slices this operand, else None; and those that it updates in place."""
        total = updated = 0
        for user, places in self._users(fusion, position):
            if user.opcode in ("dynamic-slice", "slice", "gather") and places == [0]:
                total += shape_bytes(user.shape)
            elif user.opcode == "dynamic-update-slice" and places == [0]:
                updated += shape_bytes(self._module.operands(user)[1].shape)
            else:
                return None, 0
        return (total + updated) or None, updated


def _elements(shape: Any) -> int:
    total = 1
    for d in shape.dimensions:
        total *= d
    return total


def _cycles(instruction: Any) -> int:
    config = instruction.backend_config
    if b"estimated_cycles" not in config:
        return 0
    return int(json.loads(config).get("window_config", {}).get("estimated_cycles", 0))
