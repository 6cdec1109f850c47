"""Lets a script of several processes run as the only one: a check is of one device's program.

A process group of any backend has one member, whose collectives do nothing; a module under DistributedDataParallel is
itself. What the others would add to a step (the collectives) is not in the program, and each redirect is listed.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

# What torchrun gives the only process of one.
_TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
_BACKEND = "torch_tpu_check"


class OneReplica(torch.nn.Module):
    """Stands for DistributedDataParallel: the module itself, with no other replica to agree with."""

    def __init__(self, module: torch.nn.Module, *_: Any, **__: Any):
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        return nullcontext()

    @classmethod
    def _get_active_ddp_module(cls) -> None:
        """Asked by torch.compile, which cuts graphs where replicas agree on gradients: here they never do."""

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """There is no communication to hook into."""


def line_that_needs_torchrun(script: Path) -> int | None:
    """The first line that cannot run without the environment that torchrun makes."""
    needs = re.compile(r"""environ\[["'](LOCAL_)?(RANK|WORLD_SIZE)["']\]""")
    lines = script.read_text(errors="replace").splitlines()
    return next((i for i, text in enumerate(lines, 1) if needs.search(text)), None)


@contextmanager
def as_torchrun(script: Path) -> Iterator[int | None]:
    """In the block the environment is as torchrun makes it, if the script needs it. Gives the line that does."""
    line = None if "RANK" in os.environ else line_that_needs_torchrun(script)
    with mock.patch.dict(os.environ, _TORCHRUN) if line else nullcontext():
        yield line


def _register_backend() -> None:
    if _BACKEND not in dist.Backend.backend_list:
        from torch._C._distributed_c10d import FakeProcessGroup

        def create(options: Any, _: Any) -> Any:
            return FakeProcessGroup._create_internal(options.group_rank, options.group_size)

        dist.Backend.register_backend(_BACKEND, create, extended_api=True, devices=["cpu", "tpu"])


@contextmanager
def alone(note: Callable[[str], None]) -> Iterator[None]:
    """In the block this process is the only one of its process group. ``note`` is told of each redirect."""
    if not dist.is_available():
        yield
        return
    start, make_group = dist.init_process_group, dist.new_group
    started = False

    def init(backend: str | None = None, *_: Any, **__: Any) -> None:
        nonlocal started
        note(f"init_process_group({backend!r})" if backend else "init_process_group()")
        _register_backend()
        start(_BACKEND, store=dist.HashStore(), rank=0, world_size=1)
        started = True

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return make_group(ranks, timeout, _BACKEND, *args, **kwargs)

    class Replica(OneReplica):
        def __init__(self, *args: Any, **kwargs: Any):
            note("DistributedDataParallel")
            super().__init__(*args, **kwargs)

    def spawn(fn: Callable[..., Any], args: tuple = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        note("torch.multiprocessing.spawn")
        fn(0, *args)

    with ExitStack() as stack:
        for module, name, substitute in (
            (dist, "init_process_group", init),
            (dist, "new_group", new_group),
            (torch.nn.parallel, "DistributedDataParallel", Replica),
            (torch.nn.parallel.distributed, "DistributedDataParallel", Replica),
            (torch.multiprocessing, "spawn", spawn),
        ):
            stack.enter_context(mock.patch.object(module, name, substitute))
        try:
            yield
        finally:
            if started and dist.is_initialized():
                dist.destroy_process_group()
