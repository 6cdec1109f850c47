"""Mixed precision: ``torch.autocast("tpu")`` and ``torch.amp.GradScaler("tpu")`` under short names."""

import functools

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu", dtype=...)`` takes; bfloat16 is the default."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is the native precision of a TPU."""
    return True


class autocast(torch.autocast):
    """``torch.autocast("tpu")``."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None):
        super().__init__("tpu", dtype, enabled, cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("tpu")``."""

    def __init__(self, *args, **kwargs):
        super().__init__("tpu", *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="tpu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="tpu")
