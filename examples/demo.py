"""Runs every example on ``tpu``, and ends with a table of what it took. `make demo` runs it.

An op that would fall back to the CPU is an error here.
usage: python examples/demo.py
"""

import os

# Before torch is imported, which loads torch_tpu.
os.environ.setdefault("TORCH_TPU_FALLBACK", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import torch_tpu

console = Console(highlight=False)


def matmul() -> dict:
    import matmul

    return matmul.main()


def digits_cnn() -> dict:
    import digits_cnn

    result = digits_cnn.main()
    if result["accuracy"] < 0.97:
        raise RuntimeError(f"the digits' test accuracy is {result['accuracy']:.2%}; expected at least 97 %")
    return result


def train_transformer() -> dict:
    import train_transformer

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint.pt"
        first = train_transformer.main(steps=120, stop_at=80, checkpoint=checkpoint)
        second = train_transformer.main(steps=120, checkpoint=checkpoint, resume=True)
    return {"first_step": first["first_step"], "steady_step": second["steady_step"]}


def sentence_embeddings() -> dict:
    import sentence_embeddings

    return sentence_embeddings.main()


def chat() -> dict:
    import chat

    return chat.main()


PARTS: dict[str, Callable[[], dict]] = {
    "2x2 product": matmul,
    "CNN on digits": digits_cnn,
    "Transformer": train_transformer,
    "Embeddings": sentence_embeddings,
    "Chat, a token": chat,
}


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def main() -> None:
    start = time.perf_counter()
    table = Table(title="On device tpu", title_justify="left")
    table.add_column("what", no_wrap=True)
    for name in ("policy", "first step", "steady step", "compiles", "fallbacks"):
        table.add_column(name, justify="right")
    fallbacks = 0
    for name, part in PARTS.items():
        console.rule(f"[bold]{name}", align="left")
        before = torch_tpu.counters()
        result = part()
        after = torch_tpu.counters()
        spent = {key: after[key] - before[key] for key in after}
        fallbacks += spent["fallbacks"]
        table.add_row(
            name,
            result.get("policy", torch_tpu.get_mode()),
            seconds(result["first_step"]),
            seconds(result["steady_step"]),
            str(spent["compiles"]),
            str(spent["fallbacks"]),
        )
    console.print()
    console.print(table)
    console.print(f"{time.perf_counter() - start:.0f} s in all; ops run by fallback to the CPU: {fallbacks}")
    console.print(f"torch {torch.__version__}; PJRT plugin: {torch_tpu.plugin_path()}", soft_wrap=True)
    if torch_tpu.platform() == "tpu":
        console.print(f"It ran on a TPU: {torch.tpu.get_device_name()}.")
    else:
        console.print(
            "It is a CPU plugin: everything ran on this machine's CPU, through XLA. No TPU was used.", soft_wrap=True
        )


if __name__ == "__main__":
    main()
