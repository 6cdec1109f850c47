"""Captures what a function, a module or a recording would run, and asks the TPU compiler about it."""

import contextlib
import copy
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_tpu import _C
from torch_tpu.aot import hardware, memory, protos
from torch_tpu.aot.attention import Attention, attention_form, check_slices
from torch_tpu.aot.compiler import Compiler, Depth, libtpu_version
from torch_tpu.aot.compiles import compiles_of
from torch_tpu.aot.emulated import emulated_ops
from torch_tpu.aot.errors import CheckError, CompilerError, first_line
from torch_tpu.aot.estimate import estimate
from torch_tpu.aot.fit import Room, Way, add_ways_to_fit
from torch_tpu.aot.hlo import Module
from torch_tpu.aot.recompute import Checkpoint, recomputing
from torch_tpu.aot.recording import Finding, Program, Recording, line, topology
from torch_tpu.aot.report import Report, StepReport, TargetReport, ops_of, time_of
from torch_tpu.aot.sharding import Shard, spread
from torch_tpu.aot.steps import Step, step_between

MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
Progress = Callable[[str], None]


def silent(_: str) -> None:
    """No progress is shown."""


# --- user code


@dataclass(frozen=True)
class _Changes:
    """How a module and its inputs are run otherwise than as they were given."""

    batch: int | None = None
    dtype: torch.dtype | None = None  # of what is float32

    def abstract(self, tensor: torch.Tensor, name: str = "") -> torch.Tensor:
        """A tensor like this one on ``tpu``, without data."""
        dtype = self.dtype if self.dtype and tensor.dtype == torch.float32 else tensor.dtype
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype, device="tpu")
        _C.abstract_name(made, name)
        return made

    def abstract_input(self, given: Any) -> Any:
        if not isinstance(given, torch.Tensor):
            return given
        if self.batch is not None:
            given = torch.empty(self.batch, *given.shape[1:], dtype=given.dtype, device="meta")
        return self.abstract(given)

    def abstract_copy(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module with its parameters and buffers on ``tpu``, without data; the given one stays as it is."""
        memo: dict[int, Any] = {}
        for name, parameter in module.named_parameters():
            memo[id(parameter)] = torch.nn.Parameter(self.abstract(parameter.data, name), parameter.requires_grad)
        for name, buffer in module.named_buffers():
            memo[id(buffer)] = self.abstract(buffer, name)
        return copy.deepcopy(module, memo)


def _batch_of(inputs: Any) -> int | None:
    """The first dimension of all tensors of the inputs, if they have one in common."""
    sizes = {t.shape[:1] for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)}
    return next(iter(sizes))[0] if len(sizes) == 1 and sizes != {()} else None


def _loss_of(output: Any) -> torch.Tensor:
    """A model's loss: its output's ``loss``, a scalar, or the mean of the first floating-point tensor."""
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return output.loss
    found = [t for t in tree_leaves(output) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not found:
        raise CheckError(
            "train=True needs a loss: the function returned no floating-point tensor.", "Give loss=f(output)."
        )
    return found[0] if found[0].dim() == 0 else found[0].float().mean()


def _run(
    call: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    train: bool,
    optimizer: MakeOptimizer | None,
    loss: Callable[[Any], torch.Tensor] | None,
    changes: _Changes,
    recording: Recording,
) -> int:
    """Runs the steps; returns how many programs ran before the last one."""
    if isinstance(call, torch.nn.Module):
        call = changes.abstract_copy(call)
        call.train(train)
    inputs, kwargs = tree_map(changes.abstract_input, (tuple(inputs), dict(kwargs)))
    if not train:
        with torch.no_grad():
            recording.cut("set-up")
            before = recording.run_count()
            output = call(*inputs, **kwargs)
            recording.cut("the end of the call")
            del output
        return before
    stepper = None
    if isinstance(call, torch.nn.Module):
        make = optimizer or (lambda parameters: torch.optim.AdamW(parameters))
        stepper = make([p for p in call.parameters() if p.requires_grad])
    # The first step makes the optimizer's state; the second finds it, as all later ones do.
    before = 0
    for _ in range(2):
        recording.cut("set-up")
        before = recording.run_count()
        value = (loss or _loss_of)(call(*inputs, **kwargs))
        value.backward()
        if stepper is not None:
            stepper.step()
            recording.cut("an optimizer's step")
            stepper.zero_grad(set_to_none=True)
        recording.cut("the end of the step")
        recording.end_step("step")
        del value
    return before


def check(
    fn_or_module: Callable[..., Any],
    *example_inputs: Any,
    topology: str | Sequence[str] = "v6e:1x1",
    train: bool = False,
    optimizer: MakeOptimizer | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    checkpoint: Checkpoint = "none",
    depth: Depth = "quick",
    values: Mapping[str, float] | None = None,
    on_read: str = "assume",
    shard: Shard = "none",
    roll: bool | None = None,
    attention: Attention = "tiles",
    fit: bool = False,
    timeout: float = 1800,
    progress: Progress = silent,
    compiler: Compiler | None = None,
) -> Report:
    """Would this run on a TPU: which ops are missing, does it fit, how long would a step take, what bounds it?

    The real TPU compiler answers, with no TPU. A module is copied without its data, so neither it nor the example
    inputs (tensors on any device, ``meta`` included: only sizes and dtypes count) change or take memory.

    ``topology``: a slice's name, or several to compare. ``train``: a forward, a backward and a step of ``optimizer``
    (a function from parameters to an optimizer; AdamW by default) with ``loss(output)`` (default: the output's
    ``loss``, a scalar output, or a mean). ``batch``: of the inputs, where the first dimension of all tensors is one, in place
    of theirs; ``dtype``: what parameters, buffers and inputs in float32 have instead; ``checkpoint``: with ``"layer"``, layers
    are computed again in the backward (by the model's own switch, or those of its lists and sequences).
    ``fit``: where memory does not suffice, what may make it fit is compiled too.
    ``depth``: ``"quick"`` runs the compiler's first phase (seconds), ``"full"`` all of it (minutes; errors that only code
    generation finds, and cycles). ``shard`` makes one program of all devices of
    the slice: ``"fsdp"`` cuts parameters and optimizer state, and the inputs along their first dimension, the batch of all;
    ``"tp"`` (tensor parallelism) each product's weight, so that devices share a layer's work on the same inputs.
    ``roll``: layers that repeat are checked as a loop over stacked parameters; False: as PyTorch runs them, one by one;
    None: as a loop in programs so long that the compiler would take minutes. ``attention``: ``"pallas"`` makes
    ``scaled_dot_product_attention`` a Mosaic kernel (``torch_tpu.pallas.flash_attention``; needs jax).
    ``values``, ``on_read``: see ``torch_tpu.aot.topology``. ``compiler``: one that is open, whose process several checks
    share; ``timeout`` is then its own. Raises CheckError for what cannot be checked; what the compiler refuses is in the report.
    """
    targets = [hardware.parse(name) for name in ([topology] if isinstance(topology, str) else topology)]
    check_slices(attention, shard, targets)
    title = getattr(fn_or_module, "__qualname__", type(fn_or_module).__name__)
    own_batch = _batch_of((example_inputs, example_kwargs))
    if batch is not None and own_batch is None:
        raise CheckError(
            f"A batch of {batch}: the inputs have no first dimension in common.", "Give the inputs in that size."
        )
    changes = _Changes(batch, dtype)
    with contextlib.nullcontext(compiler) if compiler else Compiler(timeout) as compiler:
        compiler.start()
        start = time.monotonic()
        recording, before = capture(
            lambda r: _run(fn_or_module, example_inputs, example_kwargs or {}, train, optimizer, loss, changes, r),
            targets[0],
            values,
            on_read,
            roll,
            checkpoint if train else "none",
            attention,
            **parts_of(targets[0], shard),
        )
        seconds = time.monotonic() - start
        step = step_between(recording, "a training step" if train else "a call", before, len(recording.order))
        report = judge(title, recording, step, targets, compiler, depth, seconds, progress=progress, shard=shard)
        if not fit:
            return report
        now = Way(targets[0].name, batch or own_batch, dtype, checkpoint, shard)

        def check_way(way: Way, roll: bool | None) -> Report:
            progress(f"It does not fit: trying {way.beside(now)}")
            try:
                return check(
                    fn_or_module,
                    *example_inputs,
                    topology=way.topology,
                    train=train,
                    optimizer=optimizer,
                    loss=loss,
                    example_kwargs=example_kwargs,
                    batch=way.batch,
                    dtype=way.dtype,
                    checkpoint=way.checkpoint,
                    values=values,
                    on_read=on_read,
                    shard=way.shard,
                    roll=roll,
                    attention=attention,
                    compiler=compiler,
                )
            except CheckError:
                raise
            except Exception as error:  # the model's own, such as of a size that it has fixed
                raise CheckError(f"{type(error).__name__}: {first_line(error)}") from error

        add_ways_to_fit(report, now, Room.of(step.programs, train, shard), roll, check_way)
        return report


def parts_of(target: hardware.Slice, shard: Shard) -> dict[str, int]:
    """Of ``topology``: how many devices will share what."""
    return {
        "batch_parts": target.devices if shard == "fsdp" else 1,
        "head_parts": target.devices if shard == "tp" else 1,
    }


def check_module(
    path: Path,
    *,
    topology: str | Sequence[str] = "v6e:1x1",
    depth: Depth = "quick",
    timeout: float = 1800,
    progress: Progress = silent,
) -> Report:
    """What ``check`` says of a StableHLO module in a file, from anywhere: to compare it with another program.

    A module of several partitions says itself how it is spread over the slice, which has to have as many devices.
    """
    targets = [hardware.parse(name) for name in ([topology] if isinstance(topology, str) else topology)]
    if not path.is_file():
        raise CheckError(f"There is no file {path}.", "Give the path of a StableHLO module.")
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise CheckError(f"{path} is no text.", "Give the module as text, not as bytecode.") from error
    found = re.search(r"mhlo\.num_partitions = (\d+)", text)
    parts = int(found[1]) if found else 1
    for target in targets:
        if parts > 1 and target.devices != parts:
            raise CheckError(
                f"{path} is for {parts} devices; {target.name} has {target.devices}.", "Give another slice."
            )
    program = Program(text, {}, [], [], {}, [], "the end of the module", 1, 0, 0)
    recording = Recording(targets[0], [program], [0])
    with Compiler(timeout) as compiler:
        shard = "given" if parts > 1 else "none"
        step = Step("the module", [program], [1])
        return judge(path.name, recording, step, targets, compiler, depth, 0.0, progress=progress, shard=shard)


def capture(
    body: Callable[[Recording], int],
    target: hardware.Slice,
    values: Mapping[str, float] | None,
    on_read: str,
    roll: bool | None,
    checkpoint: Checkpoint,
    attention: Attention,
    **parts: int,
) -> tuple[Recording, int]:
    with (
        attention_form(attention),
        topology(target, values=values, on_read=on_read, roll=roll, **parts) as recording,
        recomputing(checkpoint) as verify,
    ):
        before = body(recording)
        verify()
    return recording, before


# --- the compiler's answers


def judge(
    title: str,
    recording: Recording,
    step: Step,
    targets: list[hardware.Slice],
    compiler: Compiler,
    depth: Depth,
    capture_seconds: float,
    redirects: list[Finding] | None = None,
    progress: Progress = silent,
    shard: Shard = "none",
) -> Report:
    """Compiles a step's programs for each target."""
    steps = step.programs
    if not steps:
        raise CheckError(
            "Nothing ran on device tpu whose result was read, so there is nothing to check.",
            "Move the model and its inputs: .to('tpu'); and read a result: print it, or .item() or .cpu() of it.",
        )
    reports = []
    for target in targets:
        found = compiler.describe(target)
        kind, attributes = found["devices"][0]
        used: Depth = depth if depth == "full" or found["has_phases"] else "full"
        devices = len(found["devices"])
        modules = spread(recording.programs, shard, devices, steps)
        notes = [] if used == depth else ["this libtpu cannot run its first phase alone: compiled in full"]
        report = TargetReport(
            target.name,
            kind,
            target.chips,
            devices,
            attributes.get("device_memory_bytes_limit", 0),
            used,
            notes=notes + modules.notes,
            shard=shard,
        )
        for number, (program, runs, text) in enumerate(zip(steps, step.runs, modules.modules, strict=True), 1):
            progress(f"{target.name}: compiling program {number} of {len(steps)} ({len(text) >> 10} kB of text)")
            report.steps.append(_step(program, runs, text, target, report, compiler, used, found["has_phases"]))
        reports.append(report)
    return Report(
        title=title,
        covers=step.what,
        is_one_step=step.is_one,
        targets=reports,
        ops=ops_of(steps, recording.findings),
        findings=recording.findings,
        redirects=redirects or [],
        setup_programs=len(recording.programs) - len(steps),
        compiles=compiles_of(recording),
        capture_seconds=capture_seconds,
        libtpu=libtpu_version(),
    )


def _step(
    program: Program,
    runs: int,
    text: str,
    target: hardware.Slice,
    report: TargetReport,
    compiler: Compiler,
    depth: Depth,
    has_phases: bool,
) -> StepReport:
    """``text``: the program's module, as it is spread over the devices."""
    step = StepReport(
        title=f"ended by {_shown(program.ended_by)}",
        runs=runs,
        arguments=len(program.arguments),
        argument_bytes=sum(a.nbytes for a in program.arguments),
        gradient_bytes=sum(r.nbytes for r in program.results if r.name.startswith("gradient of")),
        calls=sum(sum(lines.values()) for lines in program.rows.values()),
        host_bytes=program.host_bytes,
        text_bytes=len(program.module),
        loops=program.loops,
        verdict="ok",
        emulated=emulated_ops(program.module),
    )
    names = [a.name for a in program.arguments]
    parts = report.devices if report.shard != "none" else 1
    resident = program.resident_bytes // parts
    start, seconds = time.monotonic(), 0.0
    try:
        module = None
        if has_phases:
            reply = compiler.compile(text, target, "quick", parts)
            seconds += reply["seconds"]
            found = protos.partial_programs(reply["programs"])
            module = Module(protos.hlo_module(found["opt_hlo"], with_config=True))
            assignment = protos.buffer_assignment(found["buffer_assignment"])
            step.memory = memory.measure(assignment, module, report.hbm_limit, names, resident)
        if depth == "full":
            reply = compiler.compile(text, target, "full", parts)
            seconds += reply["seconds"]
            module = Module(protos.hlo_module(reply["program"], reply["format"] == "hlo_with_config"))
            stats = reply["memory"]
            if step.memory is None:
                step.memory = memory.Memory(
                    report.hbm_limit,
                    arguments=stats["argument"],
                    outputs=stats["output"] - stats["alias"],
                    temporaries=stats["temp"],
                    resident=resident,
                )
            step.memory.code = stats["code"]
        step.time = time_of(estimate(module, target), target.chip.flops, target.chip.hbm_bandwidth)
        if not step.memory.fits:
            step.verdict = "oom"
            step.message = "It compiles, but with the other values that are alive it does not fit."
    except CompilerError as error:
        step.verdict, step.message = error.kind, error.what
        if error.kind == "oom":
            step.memory = _explain_overflow(text, parts, names, resident, target, report, compiler, depth, error.what)
    step.compile_seconds = seconds or time.monotonic() - start
    return step


def _shown(ended_by: str) -> str:
    """With a short path, if it names a Python line."""
    what, at, where = ended_by.rpartition(" at ")
    return f"{what} at {line(where)}" if at else ended_by


def _explain_overflow(
    text: str,
    partitions: int,
    names: list[str],
    resident: int,
    target: hardware.Slice,
    report: TargetReport,
    compiler: Compiler,
    depth: Depth,
    error: str,
) -> memory.Memory:
    """Compiles again with the compiler's reports on, which name the largest buffers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            compiler.compile(text, target, depth, partitions, {"xla_dump_to": folder})
        except CompilerError as again:
            error = again.what
        return memory.overflow(error, Path(folder), report.hbm_limit, names, resident)
