"""Streams and events. A device runs its work in one queue, in the order it was submitted, so a
stream is a label: work on two of them is ordered, and waiting for one waits for the device.
"""

import torch

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index


class Stream(torch.Stream):
    """A stream of a tpu device: a new one, or the one with ``stream_id``."""

    def __new__(cls, device=None, priority: int = 0, *, stream_id: int | None = None):
        index = _get_device_index(device, optional=True)
        if stream_id is not None:
            return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=_device_type())
        return super().__new__(cls, f"tpu:{index}", priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest): there is one priority."""
        return 0, 0


class _TpuEvents(type):
    def __instancecheck__(cls, obj) -> bool:
        return isinstance(obj, torch.Event) and obj.device.type == "tpu"


class Event(metaclass=_TpuEvents):
    """Makes a ``torch.Event`` of a tpu device (PyTorch takes no subclass of it).

    With ``enable_timing`` recording waits for the work before it, so that the time between two
    events is the time of the work between them.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)


def current_stream(device=None) -> Stream:
    """This thread's current stream of ``device`` (the current one by default)."""
    index = _get_device_index(device, optional=True)
    return Stream(index, stream_id=_C.current_stream(index))


def default_stream(device=None) -> Stream:
    """The default stream of ``device``."""
    return Stream(device, stream_id=0)


def set_stream(stream: torch.Stream) -> None:
    """Makes ``stream`` the current one of its device, and its device current. Does nothing for None."""
    if stream is not None:
        _C.exchange_device(stream.device_index)
        _C.exchange_stream(stream.device_index, stream.stream_id)


class StreamContext:
    """Makes a stream and its device current in a ``with`` block. Does nothing for None."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.device = _C.exchange_device(self.stream.device_index)
            self.previous = _C.exchange_stream(self.stream.device_index, self.stream.stream_id)

    def __exit__(self, *exc_info):
        if self.stream is not None:
            _C.exchange_stream(self.stream.device_index, self.previous)
            _C.exchange_device(self.device)
        return False


def stream(stream: torch.Stream | None) -> StreamContext:
    """Makes ``stream`` the current one in a ``with`` block."""
    return StreamContext(stream)
