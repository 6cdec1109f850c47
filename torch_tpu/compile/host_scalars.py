"""0-d CPU tensors of a graph, computed on the device instead: Dynamo passes a Python float that changes as one.

Their values are operands, so a new value needs no new program. Only for graphs that neither return
nor write a CPU tensor, and read none on the host.
"""

from collections.abc import Callable
from typing import Any

import torch


def _tensors(value: Any) -> list[torch.Tensor]:
    return [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)]


def _on_host(node: torch.fx.Node) -> bool:
    return any(v.device.type != "tpu" for v in _tensors(node.meta.get("val")))


def uses_host(graph: torch.fx.GraphModule) -> bool:
    """True if some node makes or takes a tensor that is not on ``tpu``."""
    return any(_on_host(node) for node in graph.graph.nodes)


def can_move(graph: torch.fx.GraphModule) -> bool:
    """True if what is on the host can be computed on the device instead."""
    on_device = False
    for node in graph.graph.nodes:
        if node.op == "output":
            results = [n for n in node.args[0] if isinstance(n, torch.fx.Node)]
            return on_device and not any(_on_host(n) for n in results)
        on_device = on_device or any(v.device.type == "tpu" for v in _tensors(node.meta.get("val")))
        if _on_host(node):
            scalars = all(v.dim() == 0 and v.device.type in ("cpu", "tpu") for v in _tensors(node.meta["val"]))
            writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
            if not scalars or writes or node.op == "get_attr":
                return False
        elif (
            node.op == "call_function"
            and not _tensors(node.meta.get("val"))
            and any(_tensors(a.meta.get("val")) for a in node.all_input_nodes)
        ):
            return False  # reads a value
    return False


def move(graph: torch.fx.GraphModule) -> Callable[[list], None]:
    """Rewrites the graph, and returns what moves a call's arguments in place. REQUIRES: can_move(graph)."""
    tpu = torch.device("tpu")
    positions = []
    for i, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        if _on_host(node):
            positions.append(i)
    for node in graph.graph.nodes:
        device = node.kwargs.get("device")
        if device is not None and torch.device(device).type == "cpu":
            node.kwargs = node.kwargs | {"device": tpu}
    graph.recompile()

    def move_arguments(arguments: list) -> None:
        for i in positions:
            arguments[i] = arguments[i].to(tpu)

    return move_arguments
