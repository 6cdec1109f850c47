"""A graph of fixed sizes: a program for each layout of its arguments, found and replayed by ``_C.CompiledGraph``."""

from collections.abc import Callable
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
    """``function`` (of tensors, numbers and None, to a flat list of them): called with a list, which it empties."""

    def __init__(self, function: Callable):
        self._function = function
        self._compiled = _C.CompiledGraph()
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
