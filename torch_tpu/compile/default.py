"""Lets ``torch.compile`` without ``backend=`` use the backend ``tpu`` for graphs on ``tpu``.

PyTorch's default backend, inductor, has no code generator for this device. Its wrapper is asked
for each graph: one that has a tensor on ``tpu`` goes to our backend, any other to inductor as before.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch


def _on_tpu(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    def is_tpu(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return any(is_tpu(v) for v in value)
        return isinstance(value, torch.Tensor) and value.device.type == "tpu"

    return is_tpu(list(example_inputs)) or any(is_tpu(node.meta.get("example_value")) for node in graph.graph.nodes)


def serve_default_backend() -> None:
    """Wraps the default backend of ``torch.compile``. Call once."""
    wrapper = torch._TorchCompileInductorWrapper
    inductor = wrapper.__call__

    @functools.wraps(inductor)
    def __call__(self, model_, inputs_, **kwargs):
        if not _on_tpu(model_, inputs_):
            return inductor(self, model_, inputs_, **kwargs)
        from torch_tpu.compile import backend

        return backend(model_, inputs_)

    wrapper.__call__ = __call__
