"""Holds a model on device ``tpu`` against the same on the CPU: what it returns, and the gradients of its parameters."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch

# Of the largest number of a result, or of any gradient: float32's rounding over a few layers, and ten times that.
RESULTS, GRADIENTS = 1e-5, 1e-4


def _floats(x: Any) -> Iterator[torch.Tensor]:
    """The floating-point tensors of what a transformers model returns, its caches left out."""
    if isinstance(x, torch.Tensor):
        if x.is_floating_point():
            yield x
    elif isinstance(x, dict):
        yield from itertools.chain.from_iterable(map(_floats, x.values()))
    elif isinstance(x, list | tuple):
        yield from itertools.chain.from_iterable(map(_floats, x))


def _difference(there: torch.Tensor, here: torch.Tensor, scale: float) -> float:
    """The largest difference over ``scale``, infinite where one is NaN or infinite and the other is not."""
    a, b = there.detach().cpu().double(), here.detach().double()
    if a.shape != b.shape:
        return float("inf")
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()):
        return float("inf")
    return ((a - b)[finite].abs().max() / scale).item() if finite.any() else 0.0


def _scale(tensors: list[torch.Tensor]) -> float:
    return max((t.detach().nan_to_num(0, 0, 0).abs().max().item() for t in tensors if t.numel()), default=0.0) or 1.0


def agreement(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[str, str]:
    """(``agrees`` or ``differs``, what differs): forward, and backward where the CPU has one. Raises what ``tpu`` raises."""
    there = copy.deepcopy(model).to("tpu")
    runs = []
    for m, device in ((model, "cpu"), (there, "tpu")):
        torch.manual_seed(0)
        runs.append(list(_floats(dict(m(**{k: x.to(device) for k, x in inputs.items()})))))
    here_results, there_results = runs
    if len(here_results) != len(there_results):
        return "differs", f"{len(there_results)} results, {len(here_results)} on the CPU"
    off = max(_difference(a, b, _scale([b])) for a, b in zip(there_results, here_results, strict=True))
    if off > RESULTS:
        return "differs", f"results by {off:.1e} of the largest"
    loss = lambda results: sum(r.float().square().mean() for r in results if r.requires_grad)  # noqa: E731
    try:
        loss(here_results).backward()
    except RuntimeError as error:
        return "agrees", f"forward alone: the CPU has no backward ({str(error).splitlines()[0][:80]})"
    loss(there_results).backward()
    named = [(n, p.grad, q.grad) for (n, p), q in zip(model.named_parameters(), there.parameters(), strict=True)]
    if missing := [n for n, here, elsewhere in named if (here is None) != (elsewhere is None)]:
        return "differs", f"which parameters have gradients: {missing[0]}"
    gradients = [(n, here, elsewhere) for n, here, elsewhere in named if here is not None]
    scale = _scale([here for _, here, _ in gradients])
    worst = max(((_difference(elsewhere, here, scale), n) for n, here, elsewhere in gradients), default=(0.0, ""))
    if worst[0] > GRADIENTS:
        return "differs", f"the gradient of {worst[1]} by {worst[0]:.1e} of the largest"
    return "agrees", ""
