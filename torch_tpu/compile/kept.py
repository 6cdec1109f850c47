"""Graphs that AOTAutograd's cache keeps on disk, so that another process does not trace them again.

PyTorch keeps what it made of a graph (the forward and the backward graph, and what surrounds them) under a key of the
graph, its inputs and its own settings, in the folder of inductor's cache. What it keeps of ours is the graphs: their
programs are in the compile cache. Entries are PyTorch's, and so is the switch
(``torch._functorch.config.enable_autograd_cache``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._functorch.config
from torch._inductor import codecache
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.output_code import OutputCode
from torch.fx._graph_pickler import GraphPickler, Options


class KeptGraph(OutputCode):
    """A graph and ``build(graph)``, which runs it; in the cache the graph alone."""

    def __init__(self, graph: torch.fx.GraphModule, build: Callable[[torch.fx.GraphModule], Callable]):
        super().__init__()
        self._boxed_call = True
        self._build = build
        self._bytes = _dumps(graph)
        self._run: Callable | None = build(graph)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self._run(inputs)

    def prepare_for_serialization(self) -> None:
        self._run = None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        if self._run is None:
            fake_mode = torch._guards.detect_fake_mode(example_inputs)
            graph = GraphPickler.loads(self._bytes, fake_mode)
            graph.recompile()
            self._run = self._build(graph)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing here is of Triton."""


def _dumps(graph: torch.fx.GraphModule) -> bytes:
    return GraphPickler.dumps(graph, Options(ops_filter=None, node_metadata_key_filter=lambda key: key == "val"))


class _Version(CustomGraphPass):
    """Makes this package a part of the cache's keys: a pass that runs nowhere, as inductor is not asked."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Does nothing."""

    def uuid(self) -> Any:
        import torch_tpu

        return "torch_tpu", torch_tpu.__version__


@contextmanager
def keys_of_ours() -> Iterator[None]:
    """While AOTAutograd compiles: entries hold our graphs, and no other backend finds them."""
    with (
        # The backward graph at once, since what is made at the first backward pass is made under other settings.
        torch._functorch.config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True),
        torch._inductor.config.patch(post_grad_custom_pre_pass=_Version()),
        # Inductor's code generators take half a second to import, and generate nothing here.
        mock.patch.object(codecache, "init_backend_registration", lambda: None),
    ):
        yield
