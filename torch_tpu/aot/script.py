"""Runs a user's script, unmodified, without data, until its steps repeat."""

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_tpu import _C
from torch_tpu.aot import hardware, one_process
from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.recording import Finding, Recording, topology
from torch_tpu.aot.redirect import cuda_to_tpu


class _Enough(BaseException):
    """The steps have repeated: the rest of the script would show nothing new."""


@contextlib.contextmanager
def _stopping(steps: int, calls: int) -> Iterator[None]:
    """Ends the script after so many optimizer steps, or calls of a module that is inside no other."""
    left = {"steps": steps, "calls": calls}
    depth = 0

    def count(what: str) -> None:
        left[what] -= 1
        if left[what] <= 0:
            raise _Enough

    def before(*_: object) -> None:
        nonlocal depth
        depth += 1

    def after(*_: object) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0 and not torch.is_grad_enabled():
            count("calls")

    module = torch.nn.modules.module
    handles = (
        register_optimizer_step_post_hook(lambda *_: count("steps")),
        module.register_module_forward_pre_hook(before),
        module.register_module_forward_hook(after, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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


def record(
    path: Path,
    arguments: Sequence[str],
    target: hardware.Slice,
    values: Mapping[str, float] | None = None,
    on_read: str = "assume",
    roll: bool | None = None,
    steps: int = 3,
    calls: int = 16,
) -> tuple[Recording, list[Finding]]:
    """What the script would run, and which CUDA calls were redirected.

    Raises CheckError if the script raises before anything ran on the device; later, that is among the findings.
    """
    if not path.is_file():
        raise CheckError(f"There is no script {path}.", "Give the path of a Python file.")
    stopped, needed_at = None, None
    with topology(target, values=values, on_read=on_read, roll=roll) as recording, cuda_to_tpu() as redirects:
        try:
            with _as_main(path, arguments), one_process.as_torchrun(path) as needed_at, _stopping(steps, calls):
                runpy.run_path(str(path), run_name="__main__")
        except _Enough:
            recording.cut("an optimizer's step")
        except SystemExit as done:
            if done.code not in (None, 0):
                stopped = CheckError(
                    f"{path} exited with status {done.code}.", "Check its arguments, after the script's name."
                )
        except Exception as error:
            stopped = CheckError(f"{path} raised {type(error).__name__} at {_place(error, path)}: {_first_line(error)}")
            stopped.__cause__ = error
        found = [Finding("redirect", "torchrun's environment", f"{path}:{needed_at}", 1)] if needed_at else []
        found += redirects()
    if stopped is not None and not recording.programs:
        raise stopped
    if stopped is not None:
        # What it did before can be checked; without data a script's own comparisons may fail.
        recording.findings.append(Finding("stopped", stopped.what, "", 1))
    return recording, found


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _place(error: Exception, path: Path) -> str:
    """The innermost line outside of PyTorch; the script's own if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if _C.is_users_code(f.filename)]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else str(path)
