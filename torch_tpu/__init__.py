"""A PyTorch backend for the ``tpu`` device.

``import torch`` is enough: PyTorch loads this package through the ``torch.backends`` entry point,
and ``device="tpu"`` works. This module holds what ``torch.tpu`` has no place for: which plugin
runs, the execution policy, the counters, and export.
"""

import importlib

__version__ = "0.1.0"


# Before `import torch`, which loads this package's entry point, maybe while it is half imported.
def _autoload() -> None:
    """The entry point: makes the device known to PyTorch. Does nothing the second time."""
    from torch_tpu import _registration

    _registration.register()


import torch  # noqa: F401

_autoload()

from torch_tpu._execution import counters, get_mode, mode, platform, plugin_path, set_background_compile, set_mode


# Imported at first use, so that `import torch` stays cheap: name -> module.
_LATER = {
    "Op": "_coverage",
    "explain": "_explain",
    "export": "exported",
    "load_exported": "exported",
    "ops": "_coverage",
}


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module 'torch_tpu' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torch_tpu.{_LATER[name]}"), name)


__all__ = [
    "Op",
    "__version__",
    "counters",
    "explain",
    "export",
    "get_mode",
    "load_exported",
    "mode",
    "ops",
    "platform",
    "plugin_path",
    "set_background_compile",
    "set_mode",
]
