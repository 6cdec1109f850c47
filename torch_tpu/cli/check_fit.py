"""What would make a transformers model fit where it does not: each way is compiled, none is guessed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.report import Report, TargetReport
from torch_tpu.cli.check_text import gib, main_step, verdict


@dataclass(frozen=True)
class Way:
    """How a model is run: the options of ``torch-tpu check`` by these names."""

    topology: str
    batch: int
    checkpoint: str
    shard: str

    def beside(self, other: "Way") -> str:
        """What it has that the other has not, as options."""
        options = ((f"--{name}", getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name} {mine}" for name, mine, theirs in options if mine != theirs)


def _ways(now: Way, train: bool) -> Iterator[Way]:
    slice_ = parse(now.topology)
    again = replace(now, checkpoint="layer")
    if train and now.checkpoint == "none":
        yield again
    parts = slice_.devices if now.shard == "fsdp" else 1
    if now.batch > parts:
        yield replace(now, batch=math.ceil(now.batch / parts / 2) * parts)
    more = slice_.of(max(8, 2 * slice_.chips))
    shard = now.shard if now.shard != "none" else "fsdp" if train else "tp"
    parts = more.devices if shard == "fsdp" else 1
    spread = replace(now, topology=more.name, shard=shard, batch=math.ceil(now.batch / parts) * parts)
    yield spread
    if train and now.checkpoint == "none":
        yield replace(spread, checkpoint="layer")


def _outcome(target: TargetReport) -> str:
    step = main_step(target)
    peak = max((s.memory.peak for s in target.steps if s.memory), default=0)
    if step.verdict == "ok":
        return f"fits, {gib(peak)} of {gib(target.hbm_limit)}"
    return f"{verdict(step)}, {gib(peak)}" if step.verdict == "oom" else verdict(step)


def add_ways_to_fit(report: Report, now: Way, train: bool, check: Callable[[Way], Report]) -> None:
    """Puts what the ways come to among the notes of each target that the program does not fit."""
    for target in report.targets:
        if main_step(target).verdict != "oom":
            continue
        here = replace(now, topology=target.name)
        for way in _ways(here, train):
            try:
                tried = check(way)
            except CheckError as error:  # such as heads that the devices do not divide
                target.notes.append(f"with {way.beside(here)}: {error.what}")
                continue
            target.notes.append(f"with {way.beside(here)} (compiled, layers as loops): {_outcome(tried.targets[0])}")
            if way.topology != here.topology and tried.verdicts() == {"ok"}:
                break
