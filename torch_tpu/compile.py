"""``torch.compile(backend="tpu")``: AOTAutograd's graphs, captured once and replayed.

A graph is run once on stand-ins without data, which records its program; the program is compiled,
and each call is then one executable. In-place updates, views and random ops need nothing of
their own: the same kernels serve as in eager mode. A new layout of the inputs (sizes, strides,
storage sharing) is captured anew.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_tpu import _C


def _runs_on_host(graph: torch.fx.GraphModule) -> bool:
    """True if some node makes or takes a CPU tensor: a capture would freeze its value."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(v, torch.Tensor) and v.device.type != "tpu" for v in values):
            return True
    return False


class _Graph:
    """One graph of AOTAutograd: called with a list, which it empties."""

    def __init__(self, graph: torch.fx.GraphModule):
        self._graph = graph
        self._compiled = _C.CompiledGraph()
        self._structure: Any = None
        self._eager = _runs_on_host(graph)

    def __call__(self, arguments: list) -> Any:
        # Under torch_tpu.aot the graph's calls are recorded with all others.
        if self._eager or _C.abstract_active():
            given = list(arguments)
            arguments.clear()
            return self._graph(*given)
        results = self._compiled.run(arguments)
        if results is None:
            self._capture(arguments)
            results = self._compiled.run(arguments)
        return tree_unflatten(results, self._structure)

    def _capture(self, arguments: Sequence) -> None:
        stand_ins = self._compiled.begin_capture(arguments)
        try:
            with torch.no_grad():
                results = self._graph(*stand_ins)
            flat, self._structure = tree_flatten(results)
            del results
            self._compiled.finish_capture(flat)
        except BaseException:
            self._compiled.cancel_capture()
            raise

    def modules(self) -> list[str]:
        """The StableHLO modules captured so far."""
        return self._compiled.modules()


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable:
    """The Dynamo backend ``tpu``. ``mode`` and ``options`` of torch.compile are accepted and change nothing."""
    from torch._dynamo.backends.common import aot_autograd

    def compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
        captured = _Graph(graph)

        # A function, since Dynamo's wrappers carry over the attributes of functions only.
        def run(arguments: list) -> Any:
            return captured(arguments)

        run._boxed_call = True
        run.modules = captured.modules
        return run

    return aot_autograd(fw_compiler=compile_graph, keep_inference_input_mutations=True)(graph, example_inputs)
