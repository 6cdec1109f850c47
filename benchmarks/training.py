"""Training steps, side by side with the CPU's PyTorch, eager and through inductor, and with JAX."""

import re
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Figures, installed, on_cpu, on_tpu, ratios, rounds, timed

HERE = Path(__file__).parent


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


def gpt() -> Figures:
    """Milliseconds of a GPT training step (gpt.py), and of the module that JAX makes of it, bare."""
    import torch_tpu
    from benchmarks.gpt import make_one_graph_step, make_step

    module, tensors = _module_inputs((HERE / "gpt_step.mlir").read_text())
    n = 5
    candidates = {
        "DeferAndFuse, ms": on_tpu(lambda: make_step("tpu"), n),
        "Strict, ms": on_tpu(lambda: make_step("tpu"), n, "strict"),
        "torch.compile, ms": on_tpu(lambda: make_step("tpu", "tpu"), n),
        "torch.compile of the whole step, ms": on_tpu(lambda: make_one_graph_step("tpu"), n),
        "JAX-written module bare, ms": lambda: (
            statistics.median(torch_tpu._C.time_module(module, tensors, n + 1)[2:]) * 1e3
        ),
        "CPU torch eager, ms": on_cpu(make_step("cpu"), n),
    }
    return ratios(
        rounds(candidates, 5),
        ("Strict, ms", "DeferAndFuse, ms"),
        ("DeferAndFuse, ms", "JAX-written module bare, ms"),
        ("torch.compile, ms", "JAX-written module bare, ms"),
        ("torch.compile of the whole step, ms", "JAX-written module bare, ms"),
        ("DeferAndFuse, ms", "CPU torch eager, ms"),
    )


def _beside_the_cpu(make_step: Callable, n: int) -> dict[str, Callable[[], float]]:
    """Candidates: ``make_step(device, backend)`` on both devices, eager and compiled."""
    return {
        "DeferAndFuse, ms": on_tpu(lambda: make_step("tpu"), n),
        "torch.compile, ms": on_tpu(lambda: make_step("tpu", "tpu"), n),
        "CPU torch eager, ms": on_cpu(make_step("cpu"), n),
        "CPU torch inductor, ms": on_cpu(make_step("cpu", "inductor"), n),
    }


def resnet() -> Figures:
    """Milliseconds of a training step of a small residual network (resnet.py): batch 16, images 3 x 32 x 32."""
    from benchmarks.resnet import make_step

    return ratios(
        rounds(_beside_the_cpu(make_step, 10), 5),
        ("DeferAndFuse, ms", "CPU torch eager, ms"),
        ("torch.compile, ms", "CPU torch eager, ms"),
        ("torch.compile, ms", "CPU torch inductor, ms"),
    )


def lstm() -> Figures:
    """Milliseconds of a training step of an LSTM with Python's loop over 16 tokens (lstm.py): batch 16, width 128."""
    from benchmarks.lstm import make_jax_step, make_step

    n = 10
    candidates = _beside_the_cpu(make_step, n)
    if installed("jax"):
        candidates["jax.jit, ms"] = timed(make_jax_step(), lambda loss: loss.block_until_ready(), n, warm=3)
    return ratios(
        rounds(candidates, 5),
        ("DeferAndFuse, ms", "CPU torch eager, ms"),
        ("torch.compile, ms", "CPU torch eager, ms"),
        ("torch.compile, ms", "jax.jit, ms"),
    )


def decode() -> Figures:
    """Tokens a second of SmolLM2-135M's greedy decoding with a static cache of 128 (decode.py): batch 1, float32."""
    import time

    from benchmarks.decode import TOKENS, Decoder, weights

    if weights() is None or not installed("transformers"):
        return {}
    decoders = {
        "torch.compile, tokens/s": Decoder("tpu", "tpu"),
        "CPU torch eager, tokens/s": Decoder("cpu"),
        "CPU torch inductor, tokens/s": Decoder("cpu", "inductor"),
    }
    answers = {name: decoder.run() for name, decoder in decoders.items()}
    if len({tuple(answer) for answer in answers.values()}) != 1:
        raise RuntimeError(f"decode: the candidates' tokens differ: {answers}")

    def measure(decoder: Decoder):
        def run() -> float:
            start = time.perf_counter()
            decoder.run()
            return TOKENS / (time.perf_counter() - start)

        return run

    return ratios(
        rounds({name: measure(decoder) for name, decoder in decoders.items()}, 5),
        ("torch.compile, tokens/s", "CPU torch eager, tokens/s"),
        ("torch.compile, tokens/s", "CPU torch inductor, tokens/s"),
    )
