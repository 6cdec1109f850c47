"""Runs a user's script, unmodified, without data, until its steps repeat."""

import contextlib
import functools
import inspect
import multiprocessing
import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset

from torch_tpu import _C
from torch_tpu.aot import hardware, one_process
from torch_tpu.aot.attention import Attention, attention_form, check_slices
from torch_tpu.aot.check import Progress, judge, parts_of, silent
from torch_tpu.aot.compiler import Compiler, Depth
from torch_tpu.aot.errors import CheckError, first_line
from torch_tpu.aot.fit import Room, Way, add_ways_to_fit
from torch_tpu.aot.recompute import Checkpoint, recomputing
from torch_tpu.aot.recording import Finding, Recording, topology
from torch_tpu.aot.redirect import cuda_to_tpu, users_line
from torch_tpu.aot.report import Report
from torch_tpu.aot.sharding import Shard
from torch_tpu.aot.steps import FORWARD, step_of_script, training_ends


class _Enough(BaseException):
    """The steps have repeated: the rest of the script would show nothing new."""


class _Stop:
    """Ends the script after so many steps of one optimizer, or calls of a module that is inside no other."""

    def __init__(self, recording: Recording, steps: int, calls: int):
        self._recording = recording
        self._steps, self._calls = steps, calls
        self._optimizers: list[torch.optim.Optimizer] = []
        self._depth = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        module = torch.nn.modules.module
        handles = (
            register_optimizer_step_post_hook(self._after_step),
            module.register_module_forward_pre_hook(self._before_call),
            module.register_module_forward_hook(self._after_call, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _count(self, kind: str, most: int) -> None:
        self._recording.end_step(kind)
        if len(self._recording.ends[kind]) >= most:
            raise _Enough

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not any(o is optimizer for o in self._optimizers):
            self._optimizers.append(optimizer)
        number = next(i for i, o in enumerate(self._optimizers, 1) if o is optimizer)
        self._count(f"optimizer {number}", self._steps)

    def _before_call(self, *_: object) -> None:
        self._depth += 1

    def _after_call(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and not torch.is_grad_enabled():
            self._count(FORWARD, self._calls)


@contextlib.contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as the script expects them; what it prints goes to stderr."""
    argv, search = sys.argv, list(sys.path)
    sys.argv, sys.path[:] = [str(path), *arguments], [str(path.parent), *search]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:] = argv, search


@dataclass
class _Read:
    """Of the DataLoaders that a script read."""

    sizes: set[int | None] = field(default_factory=set)
    uneven: list[Finding] = field(default_factory=list)  # those whose last batch is smaller


def _rest(loader: DataLoader) -> int:
    """How many samples its last batch has, if that is another size than the others have."""
    if loader.batch_size is None or loader.drop_last or isinstance(loader.dataset, IterableDataset):
        return 0
    count = len(loader.sampler)
    return count % loader.batch_size if count > loader.batch_size else 0


@contextlib.contextmanager
def _batches(size: int | None) -> Iterator[_Read]:
    """In the block, DataLoaders give batches of this size (None: of their own)."""
    read = _Read()
    make, iterate = DataLoader.__init__, DataLoader.__iter__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def __init__(self: DataLoader, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        if size is not None and given.get("batch_sampler") is None and given.get("batch_size", 1) is not None:
            given["batch_size"] = size
        make(**given)

    @functools.wraps(iterate)
    def __iter__(self: DataLoader) -> Any:
        read.sizes.add(self.batch_size)
        if rest := _rest(self):
            what = f"a DataLoader's last batch has {rest} of {self.batch_size}"
            read.uneven.append(Finding("last batch", what, users_line(), 1))
        return iterate(self)

    with mock.patch.object(DataLoader, "__init__", __init__), mock.patch.object(DataLoader, "__iter__", __iter__):
        yield read


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class Recorded:
    """What a script would run."""

    recording: Recording
    redirects: list[Finding]
    trains: bool  # an optimizer made a step
    batch: int | None  # of all DataLoaders that it read, if they have one size


def record(
    path: Path,
    arguments: Sequence[str],
    target: hardware.Slice,
    values: Mapping[str, float] | None = None,
    on_read: str = "assume",
    roll: bool | None = None,
    *,
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    checkpoint: Checkpoint = "none",
    shard: Shard = "none",
    attention: Attention = "tiles",
    steps: int = 3,
    calls: int = 16,
) -> Recorded:
    """What the script would run, and which CUDA calls were redirected.

    ``batch``: of its DataLoaders; ``dtype``: PyTorch's default, in place of float32; ``checkpoint``, ``attention``:
    see ``aot.check``.
    Raises CheckError if the script raises before anything ran on the device; later, that is among the findings.
    """
    if not path.is_file():
        raise CheckError(f"There is no script {path}.", "Give the path of a Python file.")
    stopped, needed_at = None, None
    with (
        attention_form(attention),
        topology(target, values=values, on_read=on_read, roll=roll, **parts_of(target, shard)) as recording,
        cuda_to_tpu() as redirects,
        _batches(batch) as read,
        _default_dtype(dtype),
        recomputing(checkpoint) as verify_recomputation,
    ):
        try:
            with (
                _as_main(path, arguments),
                one_process.as_torchrun(path) as needed_at,
                _Stop(recording, steps, calls).watching(),
            ):
                runpy.run_path(str(path), run_name="__main__")
        except _Enough:
            recording.cut("the end of a forward")
        except SystemExit as done:
            if done.code not in (None, 0):
                stopped = CheckError(
                    f"{path} exited with status {done.code}.", "Check its arguments, after the script's name."
                )
        except Exception as error:
            stopped = CheckError(f"{path} raised {type(error).__name__} at {_place(error, path)}: {first_line(error)}")
            stopped.__cause__ = error
        found = [Finding("redirect", "torchrun's environment", f"{path}:{needed_at}", 1)] if needed_at else []
        found += redirects()
        if stopped is None:
            verify_recomputation()
    if stopped is not None and not recording.programs:
        raise stopped
    if stopped is not None:
        # What it did before can be checked; without data a script's own comparisons may fail.
        recording.findings.append(Finding("stopped", stopped.what, "", 1))
    recording.findings += dict.fromkeys(read.uneven)
    size = read.sizes.pop() if len(read.sizes) == 1 else None
    return Recorded(recording, found, bool(training_ends(recording)), size)


def _silent_process() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _record_again(*args: Any, **kwargs: Any) -> Recorded:
    """As ``record`` in another process, since modules that the script has imported keep what they hold; without its prints."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _silent_process) as pool:
        try:
            return pool.submit(record, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise CheckError("The process that ran the script again died.") from error


def check_script(
    path: Path,
    arguments: Sequence[str],
    targets: list[hardware.Slice],
    *,
    batch: int | None = None,
    dtype: torch.dtype | None = None,
    checkpoint: Checkpoint = "none",
    shard: Shard = "none",
    attention: Attention = "tiles",
    depth: Depth = "quick",
    values: Mapping[str, float] | None = None,
    roll: bool | None = None,
    fit: bool = False,
    timeout: float = 1800,
    progress: Progress = silent,
) -> Report:
    """What ``aot.check`` says of a function, of a script: see ``record``. ``fit``: also what may make it fit."""
    check_slices(attention, shard, targets)
    with Compiler(timeout) as compiler:
        compiler.start()
        progress(f"Running {path} without data")
        start = time.monotonic()
        how = {"batch": batch, "dtype": dtype, "checkpoint": checkpoint, "shard": shard, "attention": attention}
        recorded = record(path, arguments, targets[0], values, roll=roll, **how)
        seconds = time.monotonic() - start
        recording, step = recorded.recording, step_of_script(recorded.recording)
        report = judge(
            path.name, recording, step, targets, compiler, depth, seconds, recorded.redirects, progress, shard
        )
        if not fit:
            return report
        now = Way(targets[0].name, recorded.batch, dtype, checkpoint, shard)

        def check_way(way: Way, roll: bool | None) -> Report:
            progress(f"It does not fit: trying {way.beside(now)}")
            slice_ = hardware.parse(way.topology)
            serves = attention == "tiles" or shard == "none" or slice_.devices == targets[0].devices
            if serves and replace(way, topology=now.topology) == now:
                return judge(path.name, recording, step, [slice_], compiler, "quick", 0, shard=way.shard)
            how = {
                "batch": way.batch if way.batch != recorded.batch else batch,
                "dtype": way.dtype,
                "checkpoint": way.checkpoint,
                "shard": way.shard,
                "attention": attention,
            }
            again = _record_again(path, arguments, slice_, values, roll=roll, **how).recording
            stopped = [f.what for f in again.findings if f.kind == "stopped"]
            if stopped and not any(f.kind == "stopped" for f in recording.findings):
                raise CheckError(stopped[0])
            return judge(path.name, again, step_of_script(again), [slice_], compiler, "quick", 0, shard=way.shard)

        add_ways_to_fit(report, now, Room.of(step.programs, recorded.trains, shard), roll, check_way)
        return report


def _place(error: Exception, path: Path) -> str:
    """The innermost line outside of PyTorch; the script's own if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if _C.is_users_code(f.filename)]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else str(path)
