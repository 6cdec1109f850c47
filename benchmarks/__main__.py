"""Prints figures side by side, measured in turn in one run: quote the ratios, machines are noisy.

    python -m benchmarks                  # all
    python -m benchmarks gpt --json out.json

JAX is measured where it is installed. Each figure is the median of several rounds, in which the
candidates take turns.
"""

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
QUIET = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def rounds(candidates: dict[str, Callable[[], float]], n: int = 7) -> dict[str, float]:
    """Calls each candidate, which returns its time, in turn; the median of each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(n):
        for name, run in candidates.items():
            times[name].append(run())
    return {name: statistics.median(values) for name, values in times.items()}


def imports() -> dict[str, float]:
    """Seconds and MB of ``import torch``, without and with this backend, and seconds of a first tensor after it."""
    program = (
        "import time,resource;a=time.perf_counter();import torch;b=time.perf_counter();{then};c=time.perf_counter();"
        "print(b-a, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024, c-b)"
    )

    def run(loaded: bool) -> list[float]:
        then = "torch.randn(2,2,device='tpu').cpu()" if loaded else "0"
        env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(loaded))}
        out = subprocess.run(
            [sys.executable, "-c", program.format(then=then)], env=env, capture_output=True, text=True, check=True
        )
        return [float(x) for x in out.stdout.split()]

    def memory(loaded: bool) -> float:
        env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(loaded))}
        out = subprocess.run(
            [sys.executable, "-c", program.format(then="0")], env=env, capture_output=True, text=True, check=True
        )
        return float(out.stdout.split()[1])

    run(True)
    pairs = [(run(False), run(True)) for _ in range(7)]
    return {
        "import torch, s": statistics.median(a[0] for a, _ in pairs),
        "import torch with torch_tpu, s": statistics.median(b[0] for _, b in pairs),
        "difference, s": statistics.median(b[0] - a[0] for a, b in pairs),
        "difference, MB": memory(True) - memory(False),
        "first torch.randn(2, 2, device='tpu').cpu() after it, s": statistics.median(b[2] for _, b in pairs),
    }


def package() -> dict[str, float]:
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


def dispatch() -> dict[str, float]:
    """Microseconds from Python of one 8x8 float32 add, steady."""
    import torch

    import torch_tpu

    x, y = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
    a, b = torch.ones(8, 8), torch.ones(8, 8)

    def in_mode(name: str) -> Callable[[], float]:
        measure = _per_call(lambda: torch.add(x, y), torch.tpu.synchronize)

        def run() -> float:
            with torch_tpu.mode(name):
                return measure()

        return run

    candidates = {
        "Strict, us": in_mode("strict"),
        "DeferAndFuse (recording), us": in_mode("defer"),
        "CPU torch, us": _per_call(lambda: torch.add(a, b), lambda: None),
    }
    if importlib.util.find_spec("jax"):
        import jax.numpy as jnp

        p, q = jnp.ones((8, 8)), jnp.ones((8, 8))
        candidates["JAX eager, us"] = _per_call(lambda: jnp.add(p, q), lambda: jnp.add(p, q).block_until_ready())
    figures = rounds(candidates)
    if "JAX eager, us" in figures:
        figures["Strict / JAX eager"] = figures["Strict, us"] / figures["JAX eager, us"]
    return figures


def _module_inputs(module: str):
    """Tensors for the arguments of a module's main, and the module without donation."""
    import torch

    dtypes = {"f32": torch.float32, "i32": torch.int32, "i64": torch.int64, "bf16": torch.bfloat16}
    module = re.sub(r"tf.aliasing_output = [0-9]+ : i32,? ?|jax.buffer_donor = true,? ?", "", module)
    signature = module[module.index("@main(") : module.index(") ->", module.index("@main("))]
    tensors = []
    for dims, dtype in re.findall(r"tensor<([0-9x]*)(f32|i32|i64|bf16)>", signature):
        shape = [int(d) for d in dims.split("x") if d]
        n = 1
        for d in shape:
            n *= d
        values = 0.02 * ((torch.arange(n) * 7919 % 13) - 6) / 6 if dtype == "f32" else torch.zeros(n)
        tensors.append(values.to(dtypes[dtype]).reshape(shape).to("tpu"))
    return module, tensors


def gpt() -> dict[str, float]:
    """Milliseconds of a GPT training step (gpt.py), and of the module that JAX makes of it, bare."""
    import torch

    import torch_tpu
    from benchmarks.gpt import make_step

    module, tensors = _module_inputs((HERE / "gpt_step.mlir").read_text())
    n = 5

    def timed(step: Callable, finish: Callable) -> Callable[[], float]:
        def run() -> float:
            step()
            finish()
            start = time.perf_counter()
            for _ in range(n):
                step()
            finish()
            return (time.perf_counter() - start) / n * 1e3

        return run

    def in_mode(name: str, compiled: bool = False) -> Callable[[], float]:
        with torch_tpu.mode(name):
            step = make_step("tpu", compiled)
            for _ in range(4):
                step()
            torch.tpu.synchronize()
        measure = timed(step, torch.tpu.synchronize)

        def run() -> float:
            with torch_tpu.mode(name):
                return measure()

        return run

    candidates = {
        "DeferAndFuse, ms": in_mode("defer"),
        "Strict, ms": in_mode("strict"),
        "torch.compile, ms": in_mode("defer", compiled=True),
        "JAX-written module bare, ms": lambda: (
            statistics.median(torch_tpu._C.time_module(module, tensors, n + 1)[2:]) * 1e3
        ),
        "CPU torch eager, ms": timed(make_step("cpu"), lambda: None),
    }
    figures = rounds(candidates, 5)
    bare = figures["JAX-written module bare, ms"]
    figures["Strict / DeferAndFuse"] = figures["Strict, ms"] / figures["DeferAndFuse, ms"]
    figures["DeferAndFuse / bare module"] = figures["DeferAndFuse, ms"] / bare
    figures["torch.compile / bare module"] = figures["torch.compile, ms"] / bare
    figures["DeferAndFuse / CPU torch eager"] = figures["DeferAndFuse, ms"] / figures["CPU torch eager, ms"]
    return figures


def start() -> dict[str, float]:
    """Seconds from the imports to the end of the first GPT step: a process, and the next with what it left on disk."""
    # torch.optim imports torch._dynamo when the first optimizer is made.
    program = (
        "import time, torch._dynamo, torch_tpu; from benchmarks.gpt import make_step; start = time.perf_counter();"
        "loss = make_step('tpu', {compiled})(); loss.item(); print(time.perf_counter() - start)"
    )

    def run(folder: str, compiled: bool) -> tuple[float, float]:
        env = os.environ | {"TORCH_TPU_CACHE": "1" if folder else "0", "TORCH_TPU_CACHE_DIR": folder}
        begun = time.perf_counter()
        command = [sys.executable, "-c", program.format(compiled=compiled)]
        out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        return float(out.stdout.split()[-1]), time.perf_counter() - begun

    def pair(compiled: bool) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            return [*run(folder, compiled), *run(folder, compiled)]

    figures = {}
    run("", False)  # what both read is in the system's cache from here on
    for name, compiled in (("DeferAndFuse", False), ("torch.compile", True)):
        pairs = [pair(compiled) for _ in range(3)]
        first, first_total, second, second_total = (statistics.median(column) for column in zip(*pairs, strict=True))
        figures |= {
            f"{name}: first process, s": first,
            f"{name}: second process, s": second,
            f"{name}: second / first": second / first,
            f"{name}: first process as a whole, s": first_total,
            f"{name}: second process as a whole, s": second_total,
        }
    return figures


def optimizer() -> dict[str, float]:
    """An AdamW step with a learning-rate schedule: compiles after a warm-up, and peak memory over what it must hold."""
    import torch

    import torch_tpu

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).to("tpu")
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, 53)
    x = torch.randn(4, 1024, device="tpu")

    def step() -> None:
        loss = model(x).square().mean()
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        schedule.step()

    for _ in range(3):
        step()
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    compiles = torch_tpu.counters()["compiles"]
    for _ in range(50):
        step()
    torch.tpu.synchronize()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return {
        "compiles in 50 steps after 3": torch_tpu.counters()["compiles"] - compiles,
        "peak, MB": torch.tpu.max_memory_allocated() / 1e6,
        "parameters + gradients + states, MB": 4 * parameters / 1e6,
        "peak / (parameters + gradients + states)": torch.tpu.max_memory_allocated() / (4 * parameters),
    }


def chain() -> dict[str, float]:
    """Milliseconds of a chain of 100 pointwise ops on a 64x64 tensor."""
    import torch

    import torch_tpu

    x = torch.randn(64, 64, device="tpu")

    def run_chain() -> torch.Tensor:
        y = x
        for _ in range(50):
            y = (y * 1.01).tanh()
        return y

    def in_mode(name: str) -> Callable[[], float]:
        def run() -> float:
            with torch_tpu.mode(name):
                run_chain()
                torch.tpu.synchronize()
                start = time.perf_counter()
                for _ in range(10):
                    y = run_chain()
                    torch.tpu.synchronize()
                del y
                return (time.perf_counter() - start) / 10 * 1e3

        return run

    figures = rounds({"Strict, ms": in_mode("strict"), "DeferAndFuse, ms": in_mode("defer")})
    figures["Strict / DeferAndFuse"] = figures["Strict, ms"] / figures["DeferAndFuse, ms"]
    return figures


def call() -> dict[str, float]:
    """Microseconds until a compiled call of 150 tensors (16x16) returns to Python: host time, not the work."""
    import torch

    n = 150
    tensors = [torch.ones(16, 16, device="tpu") for _ in range(n)]
    leaves = [torch.ones(16, 16, device="tpu", requires_grad=True) for _ in range(n)]
    in_place = torch.compile(lambda xs: torch._foreach_mul_(xs, 0.99))
    functional = torch.compile(lambda xs: torch._foreach_mul(xs, 0.99))
    training = torch.compile(lambda xs: [x * 0.99 for x in xs])
    bare = _compiled_graph_of(lambda *xs: [x * 0.99 for x in xs], tensors)

    def timed(run: Callable, finish: Callable = torch.tpu.synchronize) -> Callable[[], float]:
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
        "in place, us": timed(lambda: in_place(tensors)),
        "150 results, us": timed(lambda: functional(tensors)),
        "150 results that need gradients, us": timed(lambda: training(leaves)),
        "150 results, this backend's part (C++ and PJRT), us": timed(lambda: bare(list(tensors))),
    }
    if importlib.util.find_spec("jax"):
        import jax
        import jax.numpy as jnp

        jitted = jax.jit(lambda xs: [x * 0.99 for x in xs])
        arrays = [jnp.ones((16, 16)) for _ in range(n)]
        last: list = []

        def run_jax() -> list:
            last[:] = jitted(arrays)
            return last

        candidates["jax.jit, 150 results, us"] = timed(run_jax, lambda: jax.block_until_ready(last))
    return rounds(candidates)


def _compiled_graph_of(function: Callable, arguments: list) -> Callable:
    from torch_tpu.compile.exact import Exact

    graph = Exact(function)
    graph(list(arguments))
    return graph


def mlp() -> dict[str, float]:
    """Microseconds of a training step of a small MLP, batch 8 (mlp.py), optimizer included."""
    import torch

    from benchmarks.mlp import make_compiled_step, make_jax_step, make_step

    n = 200

    def timed(step: Callable, finish: Callable) -> Callable[[], float]:
        for _ in range(5):
            last = step()

        def run() -> float:
            nonlocal last
            finish(last)
            start = time.perf_counter()
            for _ in range(n):
                last = step()
            finish(last)
            return (time.perf_counter() - start) / n * 1e6

        return run

    candidates = {
        "torch.compile, us": timed(make_compiled_step(), lambda _: torch.tpu.synchronize()),
        "DeferAndFuse, us": timed(make_step(), lambda _: torch.tpu.synchronize()),
    }
    if importlib.util.find_spec("jax"):
        candidates["jax.jit, us"] = timed(make_jax_step(), lambda loss: loss.block_until_ready())
    figures = rounds(candidates)
    if "jax.jit, us" in figures:
        figures["torch.compile / jax.jit"] = figures["torch.compile, us"] / figures["jax.jit, us"]
    return figures


ALL = {f.__name__: f for f in (imports, package, dispatch, chain, call, mlp, start, optimizer, gpt)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(ALL)} (default: all)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.names) - set(ALL):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(ALL)}")
    if args.child:
        print(json.dumps(ALL[args.names[0]]()))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    figures = {}
    for name in args.names or ALL:
        with console.status(f"measuring {name} …"):
            command = [sys.executable, "-m", "benchmarks", "--child", name]
            out = subprocess.run(
                command, cwd=ROOT, env={**QUIET, **os.environ}, stdout=subprocess.PIPE, text=True, check=True
            )
        figures[name] = json.loads(out.stdout.splitlines()[-1])
        table = Table("figure", "value", title=f"{name}: {ALL[name].__doc__}", title_justify="left", min_width=60)
        for label, value in figures[name].items():
            table.add_row(label, f"{value:.3g}")
        console.print(table)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
