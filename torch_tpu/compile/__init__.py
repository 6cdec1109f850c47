"""``torch.compile`` on ``tpu``: AOTAutograd's graphs, captured once and replayed.

A graph is run once on stand-ins without data, which records its program; the program is compiled,
and each call is then one executable. In-place updates, views and random ops need nothing of
their own: the same kernels serve as in eager mode. A new layout of the inputs (sizes, strides,
storage sharing) is captured anew; graphs with dynamic sizes run padded programs (``bucketed``).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_tpu import _C


def _compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any] = (),
    *,
    saved: dict | None = None,
    roll_layers: bool = False,
) -> Callable:
    """What runs an AOTAutograd graph: a function of a list of arguments, which it empties.

    ``saved`` is shared by the forward and the backward graph of a function with dynamic sizes: see ``Bucketed``.
    ``roll_layers``: of fixed sizes, layers that repeat become a loop.
    """
    from torch_tpu.compile.bucketed import Bucketed, has_dynamic_sizes
    from torch_tpu.compile.exact import Exact, OpByOp, saved_arguments
    from torch_tpu.compile.host_scalars import can_move, move, uses_host
    from torch_tpu.compile.recomputed_random import keep_random_results

    keep_random_results(graph)
    op_by_op = OpByOp(graph)
    prepare = None
    if uses_host(graph):
        if not can_move(graph):
            return _boxed(op_by_op, op_by_op)
        prepare = move(graph)
    dynamic = saved is not None and has_dynamic_sizes(graph)
    compiled = Bucketed(graph, saved) if dynamic else Exact(graph, saved_arguments(graph), roll_layers)
    return _boxed(compiled, op_by_op, prepare)


def _boxed(compiled: Any, op_by_op: Any, prepare: Callable[[list], None] | None = None) -> Callable:
    """A function, since Dynamo's wrappers carry over the attributes of functions only."""
    call = compiled.__call__

    def run(arguments: list) -> Any:
        if prepare is not None:
            prepare(arguments)
        # Under torch_tpu.aot the graph's calls are recorded with all others.
        return op_by_op(arguments) if _C.abstract_active() else call(arguments)

    run._boxed_call = True
    run.modules = compiled.modules
    return run


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable:
    """The Dynamo backend ``tpu``.

    ``options={"roll_layers": True}``: layers that repeat become a loop over their stacked parameters.
    ``mode`` is accepted and changes nothing: every graph is one executable, which is what ``reduce-overhead`` asks
    for, and XLA always optimizes as far as it can, which is what ``max-autotune`` asks for.
    """
    roll_layers = bool((options or {}).get("roll_layers", False))
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

    from torch_tpu.compile.kept import KeptGraph, keys_of_ours

    settings = {"keep_inference_input_mutations": True}
    if roll_layers or any(_is_dynamic(x) for x in example_inputs):
        # Which sizes are padded is known only while AOTAutograd traces; and its key knows nothing of our options.
        compiler = functools.partial(_compile_graph, saved={}, roll_layers=roll_layers)
        return aot_autograd(fw_compiler=compiler, **settings)(graph, example_inputs)
    forward, backward = (SerializableAOTDispatchCompiler(KeptGraph, _keep) for _ in range(2))
    with keys_of_ours():
        return aot_autograd(fw_compiler=forward, bw_compiler=backward, **settings)(graph, example_inputs)


def _keep(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
    from torch_tpu.compile.kept import KeptGraph

    return KeptGraph(graph, _compile_graph)


def _is_dynamic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(s, torch.SymInt) for s in value.shape)
    return isinstance(value, (torch.SymInt, torch.SymFloat))
