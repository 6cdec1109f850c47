"""Memory: of a training step, and of many."""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Figures

HERE = Path(__file__).parent


def optimizer() -> Figures:
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


def peak() -> Figures:
    """Peak device memory of a compiled GPT training step (gpt.py), AdamW included, and of JAX's with donation, by PJRT."""
    import torch

    import torch_tpu
    from benchmarks.gpt import make_one_graph_step

    step = make_one_graph_step("tpu")
    for _ in range(3):
        step()
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    for _ in range(3):
        step()
    torch.tpu.synchronize()
    ours = torch.tpu.max_memory_reserved()
    # gpt_step.mlir is JAX's module, with its donation.
    stats = torch_tpu._C.memory_of_module((HERE / "gpt_step.mlir").read_text())
    jax = stats["argument"] + stats["output"] - stats["alias"] + stats["temp"]
    return {"torch.compile, MB": ours / 1e6, "JAX, MB": jax / 1e6, "torch.compile / JAX": ours / jax}


def resident_bytes() -> int:
    """Of this process, in its host's memory."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def growth_of(step: Callable[[], object], steps: int, settle: int = 100) -> float:
    """Bytes that the process grows by from step ``settle`` to step ``steps``. A loss is read every 50 steps."""
    import torch

    for i in range(steps):
        loss = step()
        if i % 50 == 0:
            loss.item()
        if i == settle:
            torch.tpu.synchronize()
            before = resident_bytes()
    torch.tpu.synchronize()
    return resident_bytes() - before


def growth() -> Figures:
    """Growth of host memory over 10,000 DeferAndFuse steps of a small MLP (mlp.py), after step 100."""
    from benchmarks.mlp import make_step

    return {"growth, MB": growth_of(make_step(), 10_000) / 1e6}
