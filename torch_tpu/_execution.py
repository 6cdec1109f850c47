"""How the process executes: the plugin, the policy, the counters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch_tpu import _C

Mode = Literal["strict", "debug", "defer"]


def platform() -> Literal["cpu", "tpu", ""]:
    """Which kind of PJRT plugin executes: ``"tpu"``, or ``"cpu"`` where there is no TPU.

    Answers without loading the plugin. Empty if none is installed.
    """
    return _C.platform()


def plugin_path() -> str:
    """The path of the PJRT plugin that executes. Empty if none is installed."""
    return _C.plugin_path()


def set_mode(name: Mode) -> None:
    """Chooses the execution policy of the process, after running what is recorded.

    ``"strict"`` runs each op at once, ``"debug"`` also waits for it and checks it, ``"defer"``
    (the default) records ops and runs them together. All give the same numbers.
    The environment variable ``TORCH_TPU_MODE`` sets it at start. Raises ValueError for another name.
    """
    _C.set_mode(name)


def get_mode() -> Mode:
    """The name of the current execution policy."""
    return _C.get_mode()


@contextmanager
def mode(name: Mode) -> Iterator[None]:
    """Runs the calls of a ``with`` block under another execution policy."""
    previous = get_mode()
    set_mode(name)
    try:
        yield
    finally:
        set_mode(previous)


def set_background_compile(on: bool) -> None:
    """In ``defer`` mode, compiles on another thread while the steps go on, with the same numbers.

    A recorded program that comes a second time is compiled so; until it is ready, its ops run one by one, each a small
    program that compiles soon. First steps are slower than with the program, but there is no stall before them.
    The environment variable ``TORCH_TPU_BACKGROUND_COMPILE=1`` sets it at start. Off, what is being compiled is
    waited for when it comes again.
    """
    _C.set_background_compile(on)


def counters() -> dict[str, int]:
    """Counts since the process started.

    ``compiles``, ``cache_hits``, ``disk_hits`` (programs), ``flushes`` (runs of recorded programs),
    ``fallbacks`` (ops that ran on the CPU), ``host_reads`` (values read by the host), and others.
    """
    return dict(_C.counters())
