"""Memory statistics, in the form of ``torch.cuda.memory``.

Allocated bytes are those of live device buffers. No buffer is cached, so what is reserved is what is allocated; its
peak also counts what programs took while they ran. Asking runs what is recorded first, so that a tensor counts from its creation on.
"""

from collections import OrderedDict
from typing import Any

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index
from torch_tpu.tpu.snapshot import (
    AllocationSite,
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    allocation_sites,
    memory_snapshot,
)

__all__ = [
    "AllocationSite",
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "allocation_sites",
    "memory_snapshot",
]

_BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
_BUFFERS = ("allocation", "segment", "active")
# CUDA's allocator splits segments, and serves small requests from a pool of their own: nothing of it is here.
_NONE = ("inactive_split", "inactive_split_bytes")


def memory_stats_as_nested_dict(device=None) -> dict[str, Any]:
    """The statistics of ``device`` (the current one by default) as nested dicts, under CUDA's names.

    ``num_alloc_retries``: how often, on any device, what can be freed was freed and something done again for want of
    memory; ``num_ooms``: how often in vain. All is in ``large_pool``, since there are no pools.
    """
    index = _get_device_index(device, optional=True)
    bytes_, buffers, with_scratch = _C.memory_counts(index)
    retries, failures = _C.room_counts()
    nothing = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)

    def pools(counts: dict[str, int]) -> dict[str, dict[str, int]]:
        return {"all": dict(counts), "large_pool": dict(counts), "small_pool": dict(nothing)}

    stats: dict[str, Any] = {name: pools(bytes_) for name in _BYTES}
    stats["reserved_bytes"] = pools(bytes_ | {"peak": with_scratch})
    stats |= {name: pools(buffers) for name in _BUFFERS}
    stats |= {name: pools(nothing) for name in _NONE}
    return stats | {
        "oversize_allocations": dict(nothing),
        "oversize_segments": dict(nothing),
        "num_alloc_retries": retries,
        "num_ooms": failures,
        "num_sync_all_streams": retries,
        "num_device_alloc": buffers["allocated"],
        "num_device_free": buffers["freed"],
        "max_split_size": -1,
    }


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
    """The same as :func:`memory_allocated`: no buffer is cached."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None) -> int:
    """:func:`max_memory_allocated`, with what programs took beside buffers while they ran, as PJRT states it."""
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


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """Lets buffers of this process take a part of the memory of ``device`` only: more raises OutOfMemoryError.

    ``TORCH_TPU_MEMORY_LIMIT=2G`` sets it in bytes, for each device. What the compiler sets aside while a program runs
    is not counted.
    """
    if not isinstance(fraction, (int, float)):
        raise TypeError(f"tpu: set_per_process_memory_fraction: got {fraction!r}; expected a number from 0 to 1.")
    if not 0 < fraction <= 1:
        raise ValueError(f"tpu: set_per_process_memory_fraction: got {fraction}; expected more than 0 and at most 1.")
    index = _get_device_index(device, optional=True)
    _C.set_memory_limit(index, 0 if fraction == 1 else int(mem_get_info(index)[1] * fraction))


def get_per_process_memory_fraction(device=None) -> float:
    """What :func:`set_per_process_memory_fraction` or ``TORCH_TPU_MEMORY_LIMIT`` set; 1 if nothing did."""
    index = _get_device_index(device, optional=True)
    limit = _C.memory_limit(index)
    return limit / mem_get_info(index)[1] if limit else 1.0


def empty_cache() -> None:
    """Returns the host memory that the CPU plugin keeps for its next execution to the system.

    Device memory needs nothing: a buffer is freed as soon as nothing needs it.
    """
    _C.empty_cache()


def ipc_collect() -> None:
    """Does nothing: device memory is not shared between processes."""


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of the statistics of ``device``, to print; with the lines that made what is held, where they are noted."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats_as_nested_dict(index)
    rows = {
        "Allocated memory (bytes)": stats["allocated_bytes"]["all"],
        "With programs' own (bytes)": stats["reserved_bytes"]["all"],
        "Buffers": stats["allocation"]["all"],
    }
    head = f"{'tpu:' + str(index):<28}" + "".join(
        f"{column:>18}" for column in ("current", "peak", "total made", "total freed")
    )
    lines = [head, "-" * len(head)]
    for name, counts in rows.items():
        cells = (counts[key] for key in ("current", "peak", "allocated", "freed"))
        lines.append(f"{name:<28}" + "".join(f"{cell:>18,}" for cell in cells))
    lines.append(f"Done again for want of memory: {stats['num_alloc_retries']}; in vain: {stats['num_ooms']}")
    if not abbreviated and _C.records_sites():
        lines += ["", f"{'bytes':>18}{'tensors':>10}  made at"]
        sites = allocation_sites(index)
        lines += [f"{s.bytes:>18,}{s.tensors:>10}  {s.where or 'no line of Python'}" for s in sites[:20]]
        rest = stats["allocated_bytes"]["all"]["current"] - sum(s.bytes for s in sites[:20])
        lines.append(f"{rest:>18,}{'':>10}  elsewhere, or before _record_memory_history()")
    return "\n".join(lines)
