"""What the host costs: imports, a call, recording, a compiled call, a step with little to compute."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Figures, in_mode, installed, on_tpu, ratios, rounds, timed

ROOT = Path(__file__).parent.parent


def imports() -> Figures:
    """Seconds and MB of ``import torch``, without and with this backend, and seconds of a first tensor after it."""
    program = (
        "import time,resource;a=time.perf_counter();import torch;b=time.perf_counter();{then};c=time.perf_counter();"
        "print(b-a, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024, c-b)"
    )

    def run(loaded: bool, then: str = "0") -> list[float]:
        env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(loaded))}
        out = subprocess.run(
            [sys.executable, "-c", program.format(then=then)], env=env, capture_output=True, text=True, check=True
        )
        return [float(x) for x in out.stdout.split()]

    first = "torch.randn(2,2,device='tpu').cpu()"
    run(True, first)
    pairs = [(run(False), run(True, first)) for _ in range(7)]
    return {
        "import torch, s": statistics.median(a[0] for a, _ in pairs),
        "import torch with torch_tpu, s": statistics.median(b[0] for _, b in pairs),
        "difference, s": statistics.median(b[0] - a[0] for a, b in pairs),
        "difference, MB": run(True)[1] - run(False)[1],
        "first torch.randn(2, 2, device='tpu').cpu() after it, s": statistics.median(b[2] for _, b in pairs),
    }


def package() -> Figures:
    """MB of the package's files, as installed."""
    files = [f for f in (ROOT / "torch_tpu").rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    return {"torch_tpu, MB": sum(f.stat().st_size for f in files) / 1e6}


def _per_call(run: Callable, finish: Callable, n: int = 2000) -> Callable[[], float]:
    def measure() -> float:
        for _ in range(100):
            run()
        finish()
        start = time.perf_counter()
        for _ in range(n):
            run()
        seconds = time.perf_counter() - start
        finish()
        return seconds / n * 1e6

    return measure


def dispatch() -> Figures:
    """Microseconds from Python of one 8x8 float32 add, steady."""
    import torch

    x, y = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
    a, b = torch.ones(8, 8), torch.ones(8, 8)

    on_device = _per_call(lambda: torch.add(x, y), torch.tpu.synchronize)
    candidates = {
        "Strict, us": in_mode("strict", on_device),
        "DeferAndFuse (recording), us": in_mode("defer", on_device),
        "CPU torch, us": _per_call(lambda: torch.add(a, b), lambda: None),
    }
    if installed("jax"):
        import jax.numpy as jnp

        p, q = jnp.ones((8, 8)), jnp.ones((8, 8))
        candidates["JAX eager, us"] = _per_call(lambda: jnp.add(p, q), lambda: jnp.add(p, q).block_until_ready())
    return ratios(rounds(candidates), ("Strict, us", "JAX eager, us"))


def chain() -> Figures:
    """Milliseconds of a chain of 100 pointwise ops on a 64x64 tensor."""
    import torch

    x = torch.randn(64, 64, device="tpu")

    def run_chain() -> torch.Tensor:
        y = x
        for _ in range(50):
            y = (y * 1.01).tanh()
        return y

    def measure() -> float:
        run_chain()
        torch.tpu.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            y = run_chain()
            torch.tpu.synchronize()
        del y
        return (time.perf_counter() - start) / 10 * 1e3

    candidates = {"Strict, ms": in_mode("strict", measure), "DeferAndFuse, ms": in_mode("defer", measure)}
    return ratios(rounds(candidates), ("Strict, ms", "DeferAndFuse, ms"))


def call() -> Figures:
    """Microseconds until a compiled call of 150 tensors (16x16) returns to Python: host time, not the work."""
    import torch

    n = 150
    tensors = [torch.ones(16, 16, device="tpu") for _ in range(n)]
    leaves = [torch.ones(16, 16, device="tpu", requires_grad=True) for _ in range(n)]
    in_place = torch.compile(lambda xs: torch._foreach_mul_(xs, 0.99))
    functional = torch.compile(lambda xs: torch._foreach_mul(xs, 0.99))
    training = torch.compile(lambda xs: [x * 0.99 for x in xs])
    bare = _compiled_graph_of(lambda *xs: [x * 0.99 for x in xs], tensors)

    def until_it_returns(run: Callable, finish: Callable = torch.tpu.synchronize) -> Callable[[], float]:
        def measure() -> float:
            seconds = []
            for _ in range(50):
                start = time.perf_counter()
                kept = run()
                seconds.append(time.perf_counter() - start)
                finish()
                del kept
            return statistics.median(seconds) * 1e6

        return measure

    candidates = {
        "in place, us": until_it_returns(lambda: in_place(tensors)),
        "150 results, us": until_it_returns(lambda: functional(tensors)),
        "150 results that need gradients, us": until_it_returns(lambda: training(leaves)),
        "150 results, this backend's part (C++ and PJRT), us": until_it_returns(lambda: bare(list(tensors))),
    }
    if installed("jax"):
        import jax
        import jax.numpy as jnp

        jitted = jax.jit(lambda xs: [x * 0.99 for x in xs])
        arrays = [jnp.ones((16, 16)) for _ in range(n)]
        last: list = []

        def run_jax() -> list:
            last[:] = jitted(arrays)
            return last

        candidates["jax.jit, 150 results, us"] = until_it_returns(run_jax, lambda: jax.block_until_ready(last))
    return rounds(candidates)


def _compiled_graph_of(function: Callable, arguments: list) -> Callable:
    from torch_tpu.compile.exact import Exact

    graph = Exact(function)
    graph(list(arguments))
    return graph


def mlp() -> Figures:
    """Microseconds of a training step of a small MLP, batch 8 (mlp.py), optimizer included."""
    from benchmarks.mlp import make_jax_step, make_one_graph_step, make_step

    n = 200
    candidates = {
        "torch.compile, us": on_tpu(make_one_graph_step, n, unit=1e6),
        "DeferAndFuse, us": on_tpu(make_step, n, unit=1e6),
    }
    if installed("jax"):
        candidates["jax.jit, us"] = timed(make_jax_step(), lambda loss: loss.block_until_ready(), n, unit=1e6, warm=5)
    return ratios(rounds(candidates), ("torch.compile, us", "jax.jit, us"))
