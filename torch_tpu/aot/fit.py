"""What would make a program fit where it does not: each way is compiled, none is guessed."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.recompute import Checkpoint
from torch_tpu.aot.recording import Program
from torch_tpu.aot.report import Report, TargetReport, Tried
from torch_tpu.aot.sharding import Shard

# Calls of a program from which on its layers are loops in the ways too, since there are several to compile.
_ROLL_FROM = 1000


@dataclass(frozen=True)
class Way:
    """How a program is run: the options of ``torch-tpu check``, and the arguments of ``aot.check``, by these names."""

    topology: str
    batch: int | None = None  # None: as the inputs have it
    dtype: torch.dtype | None = None  # None: likewise
    checkpoint: Checkpoint = "none"
    shard: Shard = "none"

    def beside(self, other: "Way") -> str:
        """What it has that the other has not, as options."""
        options = ((f"--{name}", getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name} {mine}".replace("torch.", "") for name, mine, theirs in options if mine != theirs)


@dataclass(frozen=True)
class Room:
    """What of a program can be changed."""

    layers: bool  # it keeps activations for a backward
    float32: bool  # its parameters are float32
    shard: Shard  # how it is spread over several devices; "none": it cannot be

    @staticmethod
    def of(programs: list[Program], train: bool, shard: Shard) -> "Room":
        """``shard``: as it is spread already."""
        named = {a.name: a for p in programs for a in p.arguments if a.name and " of " not in a.name}.values()
        float32 = sum(a.nbytes for a in named if a.type.endswith(("xf32>", "<f32>")))
        again = any("torch_tpu::barrier" in p.rows for p in programs)  # which checkpointing leaves
        spread = shard if shard != "none" else ("fsdp" if train else "tp") if named else "none"
        return Room(train and not again, 2 * float32 > sum(a.nbytes for a in named), spread)


def _halved(way: Way) -> Way:
    parts = parse(way.topology).devices if way.shard == "fsdp" else 1
    return replace(way, batch=math.ceil(way.batch / parts / 2) * parts) if (way.batch or 1) > parts else way


def _savings(now: Way, room: Room) -> Iterator[Way]:
    """On the same chips."""
    if room.layers:
        yield replace(now, checkpoint="layer")
    if (half := _halved(now)) != now:
        yield half
    if room.float32:
        yield replace(now, dtype=torch.bfloat16)


def _together(now: Way, ways: list[Way]) -> Way:
    changed = {name: value for way in ways for name, value in vars(way).items() if value != getattr(now, name)}
    return replace(now, **changed)


def _spread(now: Way, room: Room) -> Iterator[Way]:
    """Over more chips."""
    if room.shard == "none":
        return
    slice_ = parse(now.topology)
    more = slice_.of(max(8, 2 << (slice_.chips - 1).bit_length()))
    parts = more.devices if room.shard == "fsdp" else 1
    batch = now.batch and math.ceil(now.batch / parts) * parts
    yield (spread := replace(now, topology=more.name, shard=room.shard, batch=batch))
    if room.layers:
        yield replace(spread, checkpoint="layer")


def _try(way: Way, beside: Way, check: Callable[[Way], Report]) -> Tried:
    tried = Tried(way.beside(beside))
    try:
        (found,) = check(way).targets
    except CheckError as error:  # such as heads that the devices do not divide, or a batch that the model has fixed
        tried.message = error.what.rstrip(".")
        return tried
    tried.verdict = max((s.verdict for s in found.steps), key=lambda verdict: (verdict != "ok", verdict != "oom"))
    tried.peak = max((s.memory.peak for s in found.steps if s.memory), default=0)
    tried.limit = found.hbm_limit
    tried.rolled = any(s.loops for s in found.steps)
    return tried


def _add_to(target: TargetReport, others: set[str], now: Way, room: Room, check: Callable[[Way], Report]) -> None:
    savings = [(way, _try(way, now, check)) for way in _savings(now, room)]
    target.ways += [tried for _, tried in savings]
    compiled = [way for way, tried in savings if tried.verdict]
    if len(compiled) > 1 and not any(tried.verdict == "ok" for tried in target.ways):
        target.ways.append(_try(_together(now, compiled), now, check))
    larger = (replace(now, topology=slice_.name) for slice_ in parse(now.topology).with_more_memory())
    for ways in ((way for way in larger if way.topology not in others), _spread(now, room)):
        for way in ways:
            target.ways.append(_try(way, now, check))
            if target.ways[-1].verdict in ("ok", ""):
                break


def add_ways_to_fit(
    report: Report, now: Way, room: Room, roll: bool | None, check: Callable[[Way, bool | None], Report]
) -> None:
    """Tries the ways for each target that the program does not fit.

    ``roll``: as the program was checked. ``check`` takes a way, and how to roll its layers: as that, but as loops where so
    many compilations would take minutes. It raises CheckError for what cannot be tried.
    """
    others = {target.name for target in report.targets}
    if max(step.calls for target in report.targets for step in target.steps) >= _ROLL_FROM:
        roll = True
    of_way = functools.cache(lambda way: check(way, roll))
    for target in report.targets:
        if any(step.verdict == "oom" for step in target.steps):
            _add_to(target, others, replace(now, topology=target.name), room, of_way)
