"""Random ops that a backward graph repeats (activation checkpointing): their results are kept instead.

PyTorch's partitioner saves the generator's state before such an op and runs the op again under it.
A program has no such state, since each run draws anew. So in the state's place the forward graph saves
what was drawn: the mask of a dropout, the result of any other op.
"""

import operator

import torch

_DROPOUT = torch.ops.aten.native_dropout.default


def keep_random_results(graph: torch.fx.GraphModule) -> None:
    """Rewrites a forward or a backward graph, each for itself. Does nothing to others."""
    higher = torch.ops.higher_order
    nodes = list(graph.graph.nodes)
    for node in nodes:
        if node.target is higher.run_and_save_rng_state:
            _save(graph.graph, node)
        elif node.target is higher.run_with_rng_state:
            _repeat(graph.graph, node)
    if any(node.target in (higher.run_and_save_rng_state, higher.run_with_rng_state) for node in nodes):
        graph.graph.eliminate_dead_code()
        graph.recompile()


def _replace_items(node: torch.fx.Node, items: dict[int, torch.fx.Node]) -> None:
    for user in list(node.users):
        if "val" in user.meta:
            items[user.args[1]].meta.setdefault("val", user.meta["val"])
        user.replace_all_uses_with(items[user.args[1]])


def _save(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    op, *args = node.args
    with graph.inserting_before(node):
        result = graph.call_function(op, tuple(args), node.kwargs)
        drawn = graph.call_function(operator.getitem, (result, 1)) if op is _DROPOUT else result
    for state in (user for user in node.users if user.args[1] == 0):
        state.meta.pop("val", None)  # of the generator's state, which lives on the host
    _replace_items(node, {0: drawn, 1: result})


def _repeat(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    drawn, op, *args = node.args
    drawn.meta.pop("val", None)
    if op is not _DROPOUT:
        node.replace_all_uses_with(drawn)
        return
    x, p, train = args
    with graph.inserting_before(node):
        kept = x
        if train and p > 0:
            masked = graph.call_function(torch.ops.aten.mul.Tensor, (x, drawn))
            kept = graph.call_function(torch.ops.aten.mul.Tensor, (masked, 1 / (1 - p) if p < 1 else 0.0))
    _replace_items(node, {0: kept, 1: drawn})
