"""Which devices there are, which is current, and waiting for one."""

from dataclasses import dataclass

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index
from torch_tpu.tpu.memory import mem_get_info


def is_available() -> bool:
    """True if a PJRT plugin is installed, be it for a TPU or for the CPU. Never raises."""
    return device_count() > 0


def device_count() -> int:
    """The number of tpu devices. Never raises, and loads no plugin."""
    return _C.device_count()


def init() -> None:
    """Opens the device now rather than at its first use. Raises RuntimeError if it cannot be opened."""
    _C.device_kind(-1)


def is_initialized() -> bool:
    """True once the device has been opened."""
    return _C.is_initialized()


def current_device() -> int:
    """The index of this thread's current device."""
    return _C.current_device()


def set_device(device) -> None:
    """Makes ``device`` this thread's current one. Does nothing for a negative index."""
    _C.exchange_device(_get_device_index(device))


class device:
    """Makes ``device`` current in a ``with`` block. Does nothing for None or a negative index."""

    def __init__(self, device):
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *exc_info):
        _C.exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Makes the device of a tensor or storage current in a ``with`` block, if it is a tpu one."""

    def __init__(self, obj):
        super().__init__(obj.device.index if obj.device.type == "tpu" else None)


def synchronize(device=None) -> None:
    """Runs what is recorded for ``device`` (the current one by default) and waits until it is done."""
    _C.synchronize(_get_device_index(device, optional=True))


def get_device_name(device=None) -> str:
    """PJRT's name for the kind of device: ``"TPU v6 lite"``; ``"cpu"`` on the CPU plugin."""
    return _C.device_kind(_get_device_index(device, optional=True))


@dataclass(frozen=True)
class DeviceProperties:
    """``total_memory`` is in bytes: the device's, or the host's on the CPU plugin."""

    name: str
    platform: str
    total_memory: int


def get_device_properties(device=None) -> DeviceProperties:
    """What is known of ``device`` (the current one by default)."""
    index = _get_device_index(device, optional=True)
    return DeviceProperties(_C.device_kind(index), _C.platform(), mem_get_info(index)[1])
