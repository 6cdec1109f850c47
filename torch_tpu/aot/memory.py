"""What a program needs of a device's HBM, from the compiler's buffer assignment, and who needs most of it."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_tpu.aot.hlo import HBM, Module


@dataclass(frozen=True)
class Allocation:
    name: str  # of an argument, or the op that makes it
    type: str
    nbytes: int
    where: str  # the Python line


@dataclass(frozen=True)
class Moment:
    """A place in the schedule, and how many bytes of temporaries are alive there."""

    op: str
    nbytes: int


@dataclass
class Memory:
    """Bytes of one device."""

    limit: int
    arguments: int = 0
    outputs: int = 0  # that take no argument's place
    temporaries: int = 0
    constants: int = 0
    code: int | None = None  # known after a full compile
    resident: int = 0  # of other values that are alive while the program runs
    needed: int | None = None  # the compiler's own figure, where it refused the program
    largest: list[Allocation] = field(default_factory=list)
    over_program: list[Moment] = field(default_factory=list)  # in the schedule's order; a loop's body once

    @property
    def peak(self) -> int:
        own = self.arguments + self.outputs + self.temporaries + self.constants + (self.code or 0)
        return self.resident + (self.needed if self.needed is not None else own)

    @property
    def fits(self) -> bool:
        return self.peak <= self.limit


def measure(assignment: Any, module: Module, limit: int, names: list[str], resident: int) -> Memory:
    """Reads a BufferAssignment (``protos.buffer_assignment``). ``names``: of the program's arguments, in order."""
    memory = Memory(limit, resident=resident)
    logical = {b.id: b for b in assignment.logical_buffers}
    found = []
    for a in assignment.allocations:
        if a.color != HBM or a.is_thread_local:
            continue
        if a.is_entry_parameter:
            memory.arguments += a.size
            name = names[a.parameter_number] if a.parameter_number < len(names) else "numbers"
            found.append(Allocation(f"argument {a.parameter_number} {name}".strip(), "", a.size, ""))
        elif a.is_constant:
            memory.constants += a.size
        elif a.maybe_live_out:
            memory.outputs += a.size
            found.extend(_parts(a, logical, module))
        else:
            memory.temporaries += a.size
            found.extend(_parts(a, logical, module))
    memory.largest = sorted(found, key=lambda a: -a.nbytes)[:20]
    memory.over_program = _over_program(assignment, module)
    return memory


_FREE, _SHARE = 1, 2  # HeapSimulatorTrace.Event.Kind
_MOST_MOMENTS = 300


def _over_program(assignment: Any, module: Module) -> list[Moment]:
    """What is alive of the largest allocation of temporaries, as the compiler's simulation of its heap had it."""
    of_hbm = {a.index: a.size for a in assignment.allocations if a.color == HBM and not a.is_entry_parameter}
    traces = [t for t in assignment.heap_traces if t.allocation_index in of_hbm]
    if not traces:
        return []
    found = list(_alive(max(traces, key=lambda t: of_hbm[t.allocation_index]).events, assignment))
    by_name = {i.name: i for i in module.instructions.values()}
    moments: list[Moment] = []
    # Of neighbours, the one with most alive. What the compiler added by itself goes by what came before it.
    size = -(-len(found) // _MOST_MOMENTS)
    for i in range(0, len(found), size):
        name, alive = max(found[i : i + size], key=lambda f: f[1])
        op = module.line(by_name[name]).op if name in by_name else ""
        moments.append(Moment(op or (moments[-1].op if moments else ""), alive))
    return moments


def _alive(events: Any, assignment: Any) -> Iterator[tuple[str, int]]:
    """(instruction, bytes alive) after each event."""
    sizes = {b.id: b.size for b in assignment.logical_buffers}
    place: dict[int, int] = {}  # of each buffer: the first that was there; some share one
    users: Counter[int] = Counter()
    alive = 0
    for event in events:
        if event.kind == _FREE:
            at = place.get(event.buffer_id, event.buffer_id)
            users[at] -= 1
            alive -= sizes.get(at, 0) if users[at] == 0 else 0
        else:
            first = event.shared_with if event.kind == _SHARE else event.buffer_id
            at = place[event.buffer_id] = place.get(first, first)
            users[at] += 1
            alive += sizes.get(at, 0) if users[at] == 1 else 0
        yield event.instruction_name, alive


def _parts(allocation: Any, logical: dict, module: Module) -> list[Allocation]:
    """The largest values that live in an allocation; they take turns in it."""
    parts = []
    for assigned in sorted(allocation.assigned, key=lambda x: -x.size)[:8]:
        buffer = logical.get(assigned.logical_buffer_id)
        instruction = module.instructions.get(buffer.defined_at.instruction_id) if buffer else None
        if instruction is None:
            continue
        line = module.line(instruction)
        parts.append(Allocation(line.op or instruction.name, _shape_text(instruction.shape), assigned.size, line.where))
    return parts


_NAMES = {
    1: "bool",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    16: "bf16",
}


def _shape_text(shape: Any) -> str:
    if shape.tuple_shapes:
        return "tuple"
    return f"{_NAMES.get(shape.element_type, 'array')}[{','.join(map(str, shape.dimensions))}]"


# --- a program that does not fit: the compiler's error and the files it leaves

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def overflow(error: str, dump: Path, limit: int, names: list[str], resident: int) -> Memory:
    """What can be said of a program that the compiler found too large. ``dump``: where it wrote its reports."""
    stated = [int(float(n) * _UNITS[unit]) for n, unit in re.findall(r"\(([\d.]+)([KMGT]?)\) exceeds", error)]
    memory = Memory(limit, resident=resident, needed=max([*stated, limit + 1]))
    for file in dump.glob("*memory-usage-report.txt"):
        if total := re.search(r"\(color=0\)\s+Total bytes: (\d+)", file.read_text(errors="replace")):
            memory.needed = max(memory.needed, int(total[1]))
    for file in dump.glob("*live-range.txt"):
        memory.largest = _at_peak(file.read_text(errors="replace"), names)
    return memory


def _at_peak(report: str, names: list[str]) -> list[Allocation]:
    """The values that are alive at the peak, by the name of what made them, from the compiler's tree of them."""
    tree = report.partition("Stack trace breakdown for peak usage")[2]
    found = []
    for match in re.finditer(r"([^\s│├└─][^\n]*?) \([\d.]+%, total: [\d ]+ bytes, current: ([\d ]+) bytes", tree):
        if nbytes := int(match[2].replace(" ", "")):
            name = f"argument {match[1]}" if match[1] in names else match[1]
            found.append(Allocation(name, "", nbytes, ""))
    return sorted(found, key=lambda a: -a.nbytes)[:20]
