"""A graph of fixed sizes: a program for each layout of its arguments, found and replayed by ``_C.CompiledGraph``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_tpu import _C


class OpByOp:
    """A graph whose ops are called one by one under the current policy, since a capture would get it wrong."""

    def __init__(self, graph: torch.fx.GraphModule):
        self._graph = graph

    def __call__(self, arguments: list) -> Any:
        given = list(arguments)
        arguments.clear()
        return self._graph(*given)

    def modules(self) -> list[str]:
        return []


class Exact:
    """``function`` (of tensors, numbers and None, to a flat list of them): called with a list, which it empties.

    ``dying``: the positions of arguments that only the list holds, so that their memory can be used for results.
    ``roll``: layers that repeat become a loop.
    """

    def __init__(self, function: Callable, dying: Sequence[int] = (), roll: bool = False):
        self._function = function
        self._compiled = _C.CompiledGraph(list(dying), roll)
        self._run = self._compiled.run

    def __call__(self, arguments: list) -> list:
        results = self._run(arguments)
        if results is None:
            self._capture(arguments)
            results = self._run(arguments)
        return results

    def _capture(self, arguments: list) -> None:
        stand_ins = self._compiled.begin_capture(arguments)
        try:
            with torch.no_grad():
                results = self._function(*stand_ins)
            self._compiled.finish_capture(results)
        except BaseException:
            self._compiled.cancel_capture()
            raise

    def modules(self) -> list[str]:
        """The StableHLO modules captured so far."""
        return self._compiled.modules()


def saved_arguments(graph: torch.fx.GraphModule) -> list[int]:
    """Of a backward graph: the positions of what its forward graph made and saved. Of another: none."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "placeholder"]
    if not any(name.startswith("tangents") for name in names):
        return []
    return [i for i, name in enumerate(names) if not name.startswith(("primals", "tangents"))]
