"""What a check found: plain data, which prints as JSON. The schema is described in docs/check.md."""

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from torch_tpu.aot.compiles import Compiles
from torch_tpu.aot.emulated import Emulated
from torch_tpu.aot.estimate import Estimate, Step
from torch_tpu.aot.hlo import family
from torch_tpu.aot.memory import Memory
from torch_tpu.aot.recording import Finding, Program

SCHEMA = 1


@dataclass
class Cost:
    """What an op costs in the compiled program, at one Python line, in all layers of a stack together."""

    op: str
    where: str
    seconds: float
    share: float
    bound: str
    flops: float
    bytes: float


@dataclass
class LayoutCopies:
    """What only changes the layout of values: where the compiler wants one in another order in memory than it is."""

    count: int  # in the program
    runs: float  # of a run of the program, loops included
    bytes: float  # of the values
    seconds: float
    share: float  # of the expected time
    largest: list[Cost]  # by time


@dataclass
class Time:
    """Of one run on one device; seconds. ``method`` says how matrix products were timed."""

    lower: float
    expected: float
    upper: float
    method: str
    flops: float
    bytes: float
    link_bytes: float
    intensity: float  # operations a byte of HBM traffic
    ridge: float  # the chip's own
    mfu: float  # share of the bfloat16 peak, by the expected time
    bound: str
    share_by_bound: dict[str, float]
    float32_passes: float  # MXU work over operations: 1 for bfloat16, 6 for float32 at PyTorch's precision
    padding: float  # share of written bytes that pads tiles
    seconds_by_module: dict[str, float]  # the layers of a stack as one: model.layers.*.mlp
    most_expensive: list[Cost]
    layout_copies: LayoutCopies
    unknown_loops: int
    uncosted_calls: dict[str, int]


@dataclass
class StepReport:
    """One program on one target."""

    title: str
    runs: int  # in what the report covers
    arguments: int
    argument_bytes: int
    gradient_bytes: int  # of gradients that are alive at the end, and so are among the outputs
    calls: int
    host_bytes: int
    text_bytes: int
    loops: list[
        tuple[int, int]
    ]  # that stand for layers: calls, times; parameters are stacked, as one writes it by hand
    verdict: str  # "ok", "oom", "refused", "crashed"
    message: str = ""  # the compiler's, if it refused
    memory: Memory | None = None
    time: Time | None = None
    compile_seconds: float = 0.0  # of the compiler, when it was asked first
    emulated: list[Emulated] = field(default_factory=list)


@dataclass
class Tried:
    """A way to make a program fit that was tried. ``options``: of ``torch-tpu check``, beside those of the check."""

    options: str
    verdict: str = ""  # as a step's, of its worst program; none if it could not be compiled: ``message`` says why
    peak: int = 0
    limit: int = 0  # as the target's hbm_limit
    rolled: bool = False  # with layers as loops
    message: str = ""


@dataclass
class TargetReport:
    name: str  # "v6e:2x2"
    device_kind: str
    chips: int
    devices: int
    hbm_limit: int  # bytes of a device that a program can use
    depth: str  # "quick", "full"
    steps: list[StepReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shard: str = "none"  # "fsdp", "tp", or as "given" by the module: one program of all devices
    ways: list[Tried] = field(default_factory=list)  # to make it fit, where it does not


@dataclass
class Op:
    """An ATen op as the programs call it. ``runs_on``: ``native`` (lowered), ``unsupported`` (runs on the host)."""

    name: str
    runs_on: str
    calls: int
    lines: list[str]


@dataclass
class Report:
    title: str
    covers: str  # what the steps are the programs of: "a training step", "a call", "what came again", "the script"
    is_one_step: bool  # so that the times of its programs, each so often as it runs, add up
    targets: list[TargetReport]
    ops: list[Op]
    findings: list[Finding]
    redirects: list[Finding]  # CUDA calls that were sent to tpu
    setup_programs: int  # the others: of set-up, and of steps before; not compiled
    compiles: Compiles
    capture_seconds: float
    libtpu: str
    schema: int = SCHEMA

    @property
    def unsupported(self) -> list[Op]:
        return [op for op in self.ops if op.runs_on == "unsupported"]

    def verdicts(self) -> set[str]:
        return {step.verdict for target in self.targets for step in target.steps}

    def to_dict(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        for target, plain in zip(self.targets, data["targets"], strict=True):
            for step, row in zip(target.steps, plain["steps"], strict=True):
                if step.memory is not None:
                    row["memory"] |= {"peak": step.memory.peak, "fits": step.memory.fits}
        return data


def ops_of(programs: list[Program], findings: list[Finding]) -> list[Op]:
    """Every op, the most called first, with up to three of the lines that call it most."""
    calls: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for program in programs:
        for row, lines in program.rows.items():
            for where, count in lines.items():
                calls[row][where] += count
    ops = [
        Op(row, "native", sum(lines.values()), sorted((w for w in lines if w), key=lambda w: -lines[w])[:3])
        for row, lines in calls.items()
    ]
    refused: dict[str, list[Finding]] = defaultdict(list)
    for f in findings:
        if f.kind == "unsupported":
            refused[f.what.split("(")[0]].append(f)
    ops += [
        Op(name, "unsupported", sum(f.count for f in found), [f.where for f in found][:3])
        for name, found in refused.items()
    ]
    return sorted(ops, key=lambda op: (op.runs_on == "native", -op.calls))


def _costs(steps: list[Step], total: float) -> list[Cost]:
    """By op and Python line, the longest first."""
    merged: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        merged[(family(step.line.op or step.name), step.line.where)].append(step)
    costs = [
        Cost(
            op,
            where,
            sum(s.seconds for s in alike),
            sum(s.seconds for s in alike) / total,
            max(alike, key=lambda s: s.seconds).bound,
            sum(s.flops for s in alike),
            sum(s.bytes for s in alike),
        )
        for (op, where), alike in merged.items()
    ]
    return sorted(costs, key=lambda c: -c.seconds)


def time_of(e: Estimate, peak: float, bandwidth: float) -> Time:
    total = sum(e.seconds_by_bound.values()) or 1.0
    by_module: dict[str, float] = defaultdict(float)
    for step in e.steps:
        scope = step.line.op.rpartition("/")[0].removesuffix("/backward")
        by_module[family(f"{scope}/")[:-1] or "(no module)"] += step.seconds
    copies = [s for s in e.steps if s.relaid]
    copying = sum(s.seconds for s in copies)
    return Time(
        lower=e.lower,
        expected=e.expected,
        upper=e.upper,
        method="the compiler's cycles for matrix products" if e.has_cycles else "roofline",
        flops=e.flops,
        bytes=e.bytes,
        link_bytes=e.link_bytes,
        intensity=e.intensity,
        ridge=peak / bandwidth,
        mfu=e.flops / (e.expected * peak) if e.expected else 0.0,
        bound=e.bound,
        share_by_bound={k: v / total for k, v in e.seconds_by_bound.items()},
        float32_passes=e.passes / e.flops if e.flops else 1.0,
        padding=e.padded_bytes / e.bytes if e.bytes else 0.0,
        seconds_by_module=dict(sorted(by_module.items(), key=lambda kv: -kv[1])[:200]),
        most_expensive=_costs(e.steps, total)[:10],
        layout_copies=LayoutCopies(
            count=len(copies),
            runs=sum(s.runs for s in copies),
            bytes=sum(s.relaid for s in copies),
            seconds=copying,
            share=copying / total,
            largest=_costs(copies, total)[:5],
        ),
        unknown_loops=e.unknown_loops,
        uncosted_calls=dict(e.uncosted_calls),
    )
