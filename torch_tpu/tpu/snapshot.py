"""Which tensors hold device memory, by the line of Python that made them, in the form of ``torch.cuda.memory``'s snapshots.

Opt-in, since noting the lines costs about ten microseconds a tensor: ``torch.tpu.memory._record_memory_history()``.
"""

import pickle
from typing import Any, NamedTuple

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index


class AllocationSite(NamedTuple):
    """A place in the user's code, and what the tensors made there hold now."""

    bytes: int
    tensors: int
    where: str  # "train.py:12"; with " (gradient)" where autograd made them; "" where no Python runs
    frames: list[dict[str, Any]]  # innermost first: name, filename, line


def _record_memory_history(enabled: str | bool | None = "all", *args: Any, **kwargs: Any) -> None:
    """Notes where each tensor that is made from now on is made. ``None`` or ``False`` stops, and forgets.

    The other arguments of ``torch.cuda``'s function are accepted and mean nothing: no history of freed memory is kept.
    """
    if enabled not in ("all", "state", True, False, None):
        raise ValueError(
            f"tpu: _record_memory_history(enabled={enabled!r}): got no such kind; expected 'all', 'state' or None."
        )
    _C.record_sites(bool(enabled))


def _devices(device: Any) -> list[int]:
    return list(range(_C.device_count())) if device is None else [_get_device_index(device)]


def memory_snapshot(device: Any = None) -> list[dict[str, Any]]:
    """The live buffers of all devices (or of ``device``) as CUDA's list of segments: one segment with one block a buffer.

    Runs what is recorded first. Only tensors made since :func:`_record_memory_history` are in it.
    REQUIRES: no other thread writes or frees tensors meanwhile.
    """
    segments = []
    for index in _devices(device):
        for address, size, type_, frames, backward in _C.live_buffers(index):
            block = {
                "address": address,
                "size": size,
                "requested_size": size,
                "state": "active_allocated",
                "frames": frames,
                "type": type_,
                "backward": backward,
            }
            segments.append(
                {
                    "device": index,
                    "address": address,
                    "total_size": size,
                    "allocated_size": size,
                    "active_size": size,
                    "requested_size": size,
                    "stream": 0,
                    "segment_type": "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": frames,
                    "blocks": [block],
                }
            )
    return segments


def _snapshot(device: Any = None) -> dict[str, Any]:
    """:func:`memory_snapshot` as the dict that ``torch.cuda._memory_viz`` and pytorch.org/memory_viz read."""
    return {"segments": memory_snapshot(device), "device_traces": [[] for _ in _devices(device)]}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes :func:`_snapshot` to a file, pickled."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def allocation_sites(device: Any = None) -> list[AllocationSite]:
    """What is held, by the line that made it, most bytes first: :func:`memory_snapshot` summed up."""
    found: dict[str, list[dict[str, Any]]] = {}
    for segment in memory_snapshot(device):
        (block,) = segment["blocks"]
        frame = block["frames"][0] if block["frames"] else None
        where = f"{frame['filename']}:{frame['line']}{' (gradient)' if block['backward'] else ''}" if frame else ""
        found.setdefault(where, []).append(block)
    sites = [AllocationSite(sum(b["size"] for b in bs), len(bs), where, bs[0]["frames"]) for where, bs in found.items()]
    return sorted(sites, key=lambda site: -site.bytes)
