"""Device arguments in all their forms. PyTorch's ``torch.load`` asks for this module by name."""

import torch

from torch_tpu import _C


def _get_device_index(device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that ``device`` names: an int, ``"tpu"``, ``"tpu:1"``, a torch.device, or None.

    No index means the current device if ``optional``, else ValueError. With ``allow_cpu`` a CPU
    device gives -1.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise ValueError(f"Expected a torch.device, a str, an int or None, but got: {device!r}")
    if not optional:
        raise ValueError(f"Expected a tpu device with an index, or an integer, but got: {device}")
    return _C.current_device()
