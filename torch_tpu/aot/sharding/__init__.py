"""Spreads recorded programs over a slice: how each of their arrays is cut, and annotations that XLA's partitioner follows."""

from dataclasses import dataclass, field
from typing import Literal

from torch_tpu.aot.recording import Program
from torch_tpu.aot.sharding.annotate import annotated
from torch_tpu.aot.sharding.fsdp import fsdp
from torch_tpu.aot.sharding.tensor_parallel import tensor_parallel

# "given": the module says itself.
Shard = Literal["none", "fsdp", "tp", "given"]


@dataclass(frozen=True)
class Spread:
    """Programs as they are compiled, for one device or for several."""

    modules: list[str]
    notes: list[str] = field(default_factory=list)


def spread(programs: list[Program], shard: Shard, devices: int, steps: list[Program] | None = None) -> Spread:
    """The modules of ``steps`` (default: all), of programs that share parameters. Raises CheckError for what cannot be spread like this."""
    steps = programs if steps is None else steps
    if devices > 1 and shard == "fsdp":
        return Spread([annotated(p, fsdp(p, devices)) for p in steps])
    if devices > 1 and shard == "tp":
        plan = tensor_parallel(programs, devices)
        return Spread([annotated(p, plan.cuts(p)) for p in steps], plan.notes)
    return Spread([p.module for p in steps])
