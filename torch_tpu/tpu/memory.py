"""Memory statistics, in the form of ``torch.cuda.memory``.

Allocated bytes are those of live device buffers. Nothing is cached, so what is reserved is what is
allocated. Asking runs what is recorded first, so that a tensor counts from its creation on.
"""

from collections import OrderedDict
from typing import Any

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index


def memory_stats_as_nested_dict(device=None) -> dict[str, Any]:
    """The statistics of ``device`` (the current one by default) as nested dicts."""
    bytes_, buffers = _C.memory_counts(_get_device_index(device, optional=True))
    stats: dict[str, Any] = {
        name: {"all": dict(bytes_)} for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    }
    stats |= {name: {"all": dict(buffers)} for name in ("allocation", "segment", "active")}
    return stats | {"num_device_alloc": buffers["allocated"], "num_device_free": buffers["freed"]}


def memory_stats(device=None) -> "OrderedDict[str, Any]":
    """The statistics of ``device`` under flat names such as ``"allocated_bytes.all.current"``."""
    flat: dict[str, Any] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    flatten("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(flat.items()))


def memory_allocated(device=None) -> int:
    """Bytes of live buffers on ``device`` (the current one by default)."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None) -> int:
    """The most bytes at once since the start or the last :func:`reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None) -> int:
    """The same as :func:`memory_allocated`: nothing is cached."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None) -> int:
    """The same as :func:`max_memory_allocated`: nothing is cached."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None) -> None:
    """Starts the peaks again from what is allocated now."""
    _C.reset_peak_memory(_get_device_index(device, optional=True))


def reset_max_memory_allocated(device=None) -> None:
    """The same as :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device=None) -> None:
    """Starts the ``allocated`` and ``freed`` counts again from zero."""
    _C.reset_accumulated_memory(_get_device_index(device, optional=True))


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total) bytes of ``device``; of the host on the CPU plugin."""
    return _C.memory_info(_get_device_index(device, optional=True))


def empty_cache() -> None:
    """Returns the host memory that the CPU plugin keeps for its next execution to the system.

    Device memory needs nothing: a buffer is freed as soon as nothing needs it.
    """
    _C.empty_cache()


def ipc_collect() -> None:
    """Does nothing: device memory is not shared between processes."""


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of the statistics of ``device``, to print."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats_as_nested_dict(index)
    rows = {"Allocated memory (bytes)": stats["allocated_bytes"]["all"], "Buffers": stats["allocation"]["all"]}
    head = f"{'tpu:' + str(index):<26}" + "".join(
        f"{column:>18}" for column in ("current", "peak", "total made", "total freed")
    )
    lines = [head, "-" * len(head)]
    for name, counts in rows.items():
        cells = (counts[key] for key in ("current", "peak", "allocated", "freed"))
        lines.append(f"{name:<26}" + "".join(f"{cell:>18,}" for cell in cells))
    return "\n".join(lines)
