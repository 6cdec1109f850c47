"""Starting: the first step of a process, and of the next with what it left on disk."""

import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.measure import Figures

# torch.optim imports torch._dynamo when the first optimizer is made.
_PROGRAM = """
import json, time
import torch._dynamo, torch_tpu
from benchmarks.gpt import make_step
start = time.perf_counter()
make_step({device!r}, {backend!r})().item()
seconds = time.perf_counter() - start
made = torch_tpu.explain().compiles if {device!r} == "tpu" else []
compiling = sum(c.seconds for c in made if c.source == "compiled")
print(json.dumps([seconds, time.perf_counter() - begun, compiling]))
"""


def start() -> Figures:
    """Seconds from the imports to the end of the first GPT step (gpt.py): a process, and the next with what it left on disk."""

    def run(device: str, backend: str | None, folder: str) -> list[float]:
        """Seconds: of the first step, of the process, and of XLA's compiler."""
        env = os.environ | {
            "TORCH_TPU_CACHE": "1" if folder else "0",
            "TORCH_TPU_CACHE_DIR": os.path.join(folder, "tpu"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        }
        program = "import time\nbegun = time.perf_counter()\n" + _PROGRAM.format(device=device, backend=backend)
        out = subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True, check=True)
        import json

        return json.loads(out.stdout.splitlines()[-1])

    def pair(device: str, backend: str | None) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            return [*run(device, backend, folder), *run(device, backend, folder)]

    figures: Figures = {}
    run("tpu", None, "")  # what all read is in the system's cache from here on
    candidates = {
        "DeferAndFuse": ("tpu", None, 3),
        "torch.compile": ("tpu", "tpu", 3),
        "CPU torch inductor": ("cpu", "inductor", 1),
    }
    for name, (device, backend, repeats) in candidates.items():
        pairs = [pair(device, backend) for _ in range(repeats)]
        first, whole, compiling, second, whole_again, _ = (
            statistics.median(column) for column in zip(*pairs, strict=True)
        )
        figures |= {
            f"{name}: first process, s": first,
            f"{name}: second process, s": second,
            f"{name}: second / first": second / first,
            f"{name}: first process as a whole, s": whole,
            f"{name}: second process as a whole, s": whole_again,
        }
        if device == "tpu":
            figures[f"{name}: XLA's compiler in the first, s"] = compiling
    return figures
