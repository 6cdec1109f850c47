"""Lets a script written for CUDA run on ``tpu``: what it asks of CUDA goes there, and is listed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from torch_tpu import _C
from torch_tpu.aot import one_process
from torch_tpu.aot.recording import Finding

# torch.cuda's functions -> what they answer.
_ANSWERS: dict[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": "tpu",
    "get_device_capability": (8, 0),
    "is_bf16_supported": True,
    "is_initialized": True,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
}
_NOTHING = (
    "set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats", "init",
    "ipc_collect",
)  # fmt: skip


def users_line() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _C.is_users_code(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


class _ToTpu(TorchFunctionMode):
    """Sends tensor functions that name a CUDA device to ``tpu``."""

    def __init__(self, note: Callable[[str], None]):
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            self._note(".cuda()")
            return args[0].to("tpu")
        if getattr(func, "__self__", None) is torch.Tensor.is_cuda:
            return args[0].device.type == "tpu"
        if any(map(_is_cuda, args)) or any(map(_is_cuda, kwargs.values())):
            self._note("device='cuda'")
            args = tuple("tpu" if _is_cuda(a) else a for a in args)
            kwargs = {k: "tpu" if _is_cuda(v) else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


@contextmanager
def cuda_to_tpu() -> Iterator[Callable[[], list[Finding]]]:
    """In the block, CUDA is device ``tpu``. Gives a function that lists what was redirected, with Python lines."""
    seen: Counter[tuple[str, str]] = Counter()

    def note(what: str) -> None:
        seen[(what, users_line())] += 1

    def answers(name: str, value: Any) -> Callable[..., Any]:
        plain = getattr(torch.cuda, name)

        def answer(*args: Any, **kwargs: Any) -> Any:
            # PyTorch asks too, where the user never spoke of CUDA; its compiler would go on to use it.
            caller = sys._getframe(1)
            if caller.f_globals.get("__name__", "").startswith("torch._"):
                return plain(*args, **kwargs)
            if _C.is_users_code(caller.f_code.co_filename):
                note(f"torch.cuda.{name}")
            return value

        return answer

    autocast = torch.autocast.__init__

    def cast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            note("torch.autocast('cuda')")
            device_type = "tpu"
        autocast(self, device_type, *args, **kwargs)

    scaler = torch.amp.GradScaler.__init__

    def scale(self: Any, device: str = "tpu", *args: Any, **kwargs: Any) -> None:
        if device == "cuda":
            note("GradScaler('cuda')")
            device = "tpu"
        scaler(self, device, *args, **kwargs)

    def module_cuda(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        note(".cuda()")
        return self.to("tpu")

    with ExitStack() as stack:
        for name, value in (*_ANSWERS.items(), *((name, None) for name in _NOTHING)):
            stack.enter_context(mock.patch.object(torch.cuda, name, answers(name, value)))
        stack.enter_context(mock.patch.object(torch.autocast, "__init__", cast))
        stack.enter_context(mock.patch.object(torch.amp.GradScaler, "__init__", scale))
        stack.enter_context(mock.patch.object(torch.nn.Module, "cuda", module_cuda))
        stack.enter_context(one_process.alone(note))
        stack.enter_context(_ToTpu(note))
        yield lambda: [Finding("redirect", what, where, count) for (what, where), count in seen.items()]
