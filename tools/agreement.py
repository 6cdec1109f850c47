"""Holds a model on device ``tpu`` against the same on the CPU: what it returns, and the gradients of its parameters."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch

# Of the largest number of a result, or of any gradient: float32's rounding over a few layers, and ten times that.
RESULTS, GRADIENTS = 1e-5, 1e-4
# Where that is not met, float64 decides: how many times the CPU's error the error may be.
RATIO = 4

Tensors = dict[str, torch.Tensor]


def _floats(x: Any) -> Iterator[torch.Tensor]:
    """The floating-point tensors of what a transformers model returns, its caches left out."""
    if isinstance(x, torch.Tensor):
        if x.is_floating_point():
            yield x
    elif isinstance(x, dict):
        yield from itertools.chain.from_iterable(map(_floats, x.values()))
    elif isinstance(x, list | tuple):
        yield from itertools.chain.from_iterable(map(_floats, x))


def _run(model: torch.nn.Module, inputs: Tensors, backward: bool) -> tuple[Tensors, Tensors]:
    """Results and gradients, on the CPU, by name."""
    like = next(model.parameters())
    torch.manual_seed(0)
    given = {name: x.to(like) if x.is_floating_point() else x.to(like.device) for name, x in inputs.items()}
    results = list(_floats(dict(model(**given))))
    if backward:
        sum(r.float().square().mean() for r in results if r.requires_grad).backward()
    gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return {f"result {i}": r.detach().cpu() for i, r in enumerate(results)}, gradients


def _scale(tensors: Tensors) -> float:
    return max((t.nan_to_num(0, 0, 0).abs().max().item() for t in tensors.values() if t.numel()), default=0.0) or 1.0


def _worst(there: Tensors, here: Tensors) -> tuple[float, str]:
    """The largest difference over the largest number of all, and whose; infinite where one is no number and the other is."""
    found, scale = (0.0, ""), _scale(here)
    for name, b in here.items():
        a = there[name].double()
        finite = b.isfinite()
        if a.shape != b.shape or not torch.equal(finite, a.isfinite()):
            return float("inf"), name
        if finite.any():
            found = max(found, ((a - b)[finite].abs().max().item() / scale, name))
    return found


def agreement(model: torch.nn.Module, inputs: Tensors) -> tuple[str, str]:
    """(``agrees`` or ``differs``, what differs): forward, and backward where the CPU has one. Raises what ``tpu`` raises."""
    backward, why = True, ""
    try:
        here = _run(copy.deepcopy(model), inputs, backward)
    except (RuntimeError, AssertionError) as error:
        backward, why = False, f"forward alone: the CPU has no backward ({str(error).splitlines()[0][:80]})"
        here = _run(copy.deepcopy(model), inputs, backward)
    there = _run(copy.deepcopy(model).to("tpu"), inputs, backward)
    exact = None
    for what, limit in enumerate((RESULTS, GRADIENTS)):
        if odd := here[what].keys() ^ there[what].keys():
            return "differs", f"one device has no {min(odd)}"
        off, name = _worst(there[what], here[what])
        if off <= limit:
            continue
        differs = "differs", f"{name} by {off:.1e} of the largest"
        try:
            exact = exact or _run(copy.deepcopy(model).double(), inputs, backward)
        except RuntimeError:  # an op that the CPU does not have in float64
            return differs
        if _worst(there[what], exact[what])[0] > max(limit, RATIO * _worst(here[what], exact[what])[0]):
            return differs
    return "agrees", why
