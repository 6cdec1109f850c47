"""Fills PyTorch's seams for a backend that lives outside of it. Runs once, when torch is imported,
so it must stay cheap: it imports nothing that torch has not imported, and loads no plugin.
"""

import atexit
import functools
import sys
import threading

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_REQUIRES = "2.13."
_registered = False


def register() -> None:
    """Makes device ``tpu`` known to PyTorch. Does nothing the second time.

    Raises ImportError if the installed torch is not the one that this package is built for.
    """
    global _registered
    if _registered:
        return
    _registered = True
    if not torch.__version__.startswith(_REQUIRES):
        raise ImportError(
            f"torch_tpu: built for torch {_REQUIRES}*: got torch {torch.__version__}.\n"
            f"Install the right one: pip install 'torch=={_REQUIRES}*'"
        )
    torch.utils.rename_privateuse1_backend("tpu")

    # The core needs the right torch.
    from torch_tpu import _C, _plugins
    from torch_tpu.compile.default import serve_default_backend

    _C.set_plugin_candidates(*_plugins.candidates())
    if _C.prefers_other_accelerator():
        _C.yield_accelerator()

    from torch_tpu import tpu

    torch._register_device_module("tpu", tpu)
    for name in ("amp", "memory", "random", "streams"):
        sys.modules[f"torch.tpu.{name}"] = getattr(tpu, name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

    _keep_parameters_when_modules_move()
    _make_bfloat16_the_autocast_default()
    _send_tensors_between_processes()
    _refuse_slices_of_storages()
    serve_default_backend()
    _recompute_apart()
    register_optimizer_step_post_hook(_end_step)
    # Threads that compile end before the compiler does.
    atexit.register(_C.compile_finish)
    # Compiled programs are written to disk in the background: what is not written in this time is left out.
    atexit.register(_C.cache_finish, 5.0)
    atexit.register(_C.settle_autograd_threads)


def _end_step(optimizer, args, kwargs) -> None:
    from torch_tpu import _C

    if not torch.compiler.is_compiling():
        _C.step_end()


def _keep_parameters_when_modules_move() -> None:
    """Lets a module that moves to or from ``tpu`` keep its Parameter objects.

    PyTorch would make new ones (it cannot point a CPU parameter at PrivateUse1 memory), which
    unties tied weights and leaves an optimizer with the old ones. Swapping their contents keeps
    them. It is on for these moves only: swapping fails where a weak reference to a parameter
    exists, so other devices keep PyTorch's default.
    """
    future = torch.__future__
    parse_to = torch._C._nn._parse_to

    def crosses(module: torch.nn.Module, device: torch.device | None) -> bool:
        first = next(module.parameters(), None)
        return (
            device is not None
            and first is not None
            and first.device.type != device.type
            and "meta" not in (first.device.type, device.type)
            and "tpu" in (first.device.type, device.type)
        )

    def moving(method, target):
        @functools.wraps(method)
        def wrapper(self, *args, **kwargs):
            if future.get_swap_module_params_on_conversion() or not crosses(self, target(*args, **kwargs)):
                return method(self, *args, **kwargs)
            future.set_swap_module_params_on_conversion(True)
            try:
                return method(self, *args, **kwargs)
            finally:
                future.set_swap_module_params_on_conversion(False)

        return wrapper

    module = torch.nn.Module
    module.to = moving(module.to, lambda *args, **kwargs: parse_to(*args, **kwargs)[0])
    module.cpu = moving(module.cpu, lambda: torch.device("cpu"))
    module.tpu = moving(module.tpu, lambda device=None: torch.device("tpu"))


def _make_bfloat16_the_autocast_default() -> None:
    """PyTorch's default for PrivateUse1 is float16, anew in each thread."""
    local = threading.local()
    init = torch.autocast.__init__

    def set_default() -> None:
        if not getattr(local, "done", False):
            local.done = True
            torch.set_autocast_dtype("tpu", torch.bfloat16)

    @functools.wraps(init)
    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "tpu":
            set_default()
        init(self, device_type, dtype, enabled, cache_enabled)

    set_default()
    torch.autocast.__init__ = __init__


def _rebuild_tensor(cls, on_cpu, device, requires_grad):
    tensor = on_cpu.to(device)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _send_tensors_between_processes() -> None:
    """Sends ``tpu`` tensors to other processes through CPU memory: no PJRT plugin shares its own."""
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing.reductions import reduce_tensor

    def reduce(tensor):
        if tensor.device.type != "tpu":
            return reduce_tensor(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            return reduce_tensor(tensor)  # raises PyTorch's own error
        return _rebuild_tensor, (type(tensor), tensor.detach().cpu(), tensor.device, tensor.requires_grad)

    for cls in (*torch._tensor_classes, torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, reduce)


def _refuse_slices_of_storages() -> None:
    """PyTorch makes a slice of a storage by adding to its address, and a tpu storage has none."""
    item = torch.UntypedStorage.__getitem__

    @functools.wraps(item)
    def __getitem__(self, index):
        if isinstance(index, slice) and self.device.type == "tpu":
            raise NotImplementedError(
                f"tpu: a slice of a storage of {self.nbytes()} bytes: device memory has no addresses.\n"
                "Slice a tensor over it, or storage.cpu()."
            )
        return item(self, index)

    torch.UntypedStorage.__getitem__ = __getitem__


def _recompute_apart() -> None:
    """Keeps what ``torch.utils.checkpoint`` computes again apart from the first time.

    Both are in one program where calls are recorded and fused, and XLA would find them equal and keep the values of
    the first time alive, which checkpointing is there to avoid.
    """
    from torch.utils import checkpoint

    def apart(value):
        if not isinstance(value, torch.Tensor) or value.device.type != "tpu":
            return value
        return torch.ops.torch_tpu.barrier(value.detach()).requires_grad_(value.requires_grad)

    generator = checkpoint._checkpoint_without_reentrant_generator
    detach = checkpoint.detach_variable

    @functools.wraps(generator)
    def _checkpoint_without_reentrant_generator(fn, *args, **kwargs):
        # The generator calls this function only to compute again.
        def again(*given, **named):
            return fn(*map(apart, given), **named)

        return generator(again, *args, **kwargs)

    @functools.wraps(detach)
    def detach_variable(inputs):
        return detach(tuple(map(apart, inputs)) if isinstance(inputs, tuple) else inputs)

    checkpoint._checkpoint_without_reentrant_generator = _checkpoint_without_reentrant_generator
    checkpoint.detach_variable = detach_variable
