"""Layers that are computed again in the backward rather than kept, in models that were not written so."""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint

from torch_tpu.aot.errors import CheckError

Checkpoint = Literal["none", "layer"]


def _own_switch(model: torch.nn.Module) -> tuple[Callable[[], None], Callable[[], None]] | None:
    """On and off, if the model is one of transformers' that can."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        return None
    # The first is the name in newer transformers, where the older one warns.
    name = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    enable = getattr(model, f"{name}_checkpointing_enable")
    return functools.partial(enable, {"use_reentrant": False}), getattr(model, f"{name}_checkpointing_disable")


def _repeated(container: torch.nn.Module) -> list[torch.nn.Module]:
    """Of the parts of a list or a sequence, those that are made of parts and come at least twice."""
    if not isinstance(container, torch.nn.ModuleList | torch.nn.Sequential):
        return []
    parts = [part for part in container if next(part.children(), None) is not None]
    count = Counter(map(type, parts))
    return [part for part in parts if count[type(part)] > 1]


class _Recomputation:
    """Makes models' layers be computed again: by the model's own switch, else those of its outermost lists and sequences."""

    def __init__(self) -> None:
        self._done = False
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._undo = ExitStack()

    def before_call(self, module: torch.nn.Module, _: Any) -> None:
        # The first that is called is the outermost; its parts are called later.
        if torch.is_grad_enabled() and module not in self._seen:
            self._seen.update(module.modules())
            self._add(module)

    def _add(self, model: torch.nn.Module) -> None:
        if switch := _own_switch(model):
            on, off = switch
            on()
            self._undo.callback(off)
            self._done = True
            return
        layers = _repeated(model)
        for layer in layers:
            self._undo.enter_context(mock.patch.object(layer, "forward", self._again(layer.forward)))
        for part in model.children():
            if part not in layers:
                self._add(part)

    def _again(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._done |= torch.is_grad_enabled()
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

        return run

    def verify(self) -> None:
        if not self._done:
            raise CheckError(
                "--checkpoint layer: no layers were found that could be computed again in a backward.",
                "They are parts of a ModuleList or a Sequential, of one class and called as modules.",
            )

    def undo(self) -> None:
        self._undo.close()


@contextmanager
def recomputing(how: Checkpoint) -> Iterator[Callable[[], None]]:
    """In the block, every model that is called with gradients computes its layers again.

    Gives a function that raises CheckError if none did.
    """
    if how == "none":
        yield lambda: None
        return
    recomputation = _Recomputation()
    handle = torch.nn.modules.module.register_module_forward_pre_hook(recomputation.before_call)
    try:
        yield recomputation.verify
    finally:
        handle.remove()
        recomputation.undo()
