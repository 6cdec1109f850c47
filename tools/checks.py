"""Runs the checks whose reports are kept under docs/checks/, and writes them.

python tools/checks.py [NAME...]   # all, or some
python tools/checks.py --table     # none: only the figures of README.md's table, from the kept reports
"""

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "checks"
CONFIGS, SCRIPTS = "examples/configs", "docs/checks/scripts"


def spread(model: str, slice_: str, devices: int, *options: str, shard: str = "fsdp") -> list[str]:
    """A training step with a sequence of 4,096 tokens a device, the layers computed again."""
    size = ["--batch", str(devices), "--seq", "4096", "--checkpoint", "layer"]
    return ["--topology", slice_, "--hf", f"{CONFIGS}/{model}", "--train", "--shard", shard, *size, *options]


CHECKS = {
    "matmul": ["examples/matmul.py"],
    "digits_cnn": ["--topology", "v5e-1,v6e-1", "examples/digits_cnn.py"],
    "train_transformer": ["--topology", "v5e-1,v6e-1", "examples/train_transformer.py"],
    "smollm2_infer": ["--topology", "v5e-1,v6e-1", "--hf", f"{CONFIGS}/smollm2-135m", "--seq", "512"],
    "smollm2_train": ["--topology", "v5e-1,v6e-1", "--hf", f"{CONFIGS}/smollm2-135m", "--train", "--batch", "8", "--seq", "512"],
    "llama3_8b_infer": ["--topology", "v6e-1,v5p-2", "--hf", f"{CONFIGS}/llama-3-8b", "--seq", "2048"],
    "llama3_8b_train": ["--topology", "v6e-1,v5p-2", "--hf", f"{CONFIGS}/llama-3-8b", "--train", "--seq", "1024", "--roll"],
    "qwen3_8b_fsdp_v6e_2x4": spread("qwen3-8b", "v6e:2x4", 8),
    "qwen3_8b_fsdp_v6e_2x4_full": spread("qwen3-8b", "v6e:2x4", 8, "--full"),
    "qwen3_8b_fsdp_v6e_2x4_pallas": spread("qwen3-8b", "v6e:2x4", 8, "--attention", "pallas"),
    "qwen3_8b_fsdp_v6e_4x4": spread("qwen3-8b", "v6e:4x4", 16),
    "qwen3_8b_fsdp_v5p": spread("qwen3-8b", "v5p:2x2x2", 8),
    "llama3_8b_fsdp_v6e_2x4": spread("llama-3-8b", "v6e:2x4", 8),
    "llama3_8b_fsdp_v6e_4x4": spread("llama-3-8b", "v6e:4x4", 16),
    "llama3_8b_fsdp_v5p": spread("llama-3-8b", "v5p:2x2x2", 8),
    "llama3_8b_tp_infer": ["--topology", "v6e:2x4", "--hf", f"{CONFIGS}/llama-3-8b", "--shard", "tp", "--seq", "2048"],
    "llama3_8b_tp_v6e_2x4": spread("llama-3-8b", "v6e:2x4", 8, shard="tp"),
    "minilm_infer": ["--topology", "v5e-1,v6e-1", "examples/sentence_embeddings.py"],
    "resnet50_train": ["--topology", "v5e-1,v6e-1", "examples/resnet50.py", "--steps", "4"],
    "gpt2_train": ["--topology", "v5e-1,v6e-1", "examples/gpt2.py"],
    "unet_train": ["--topology", "v5e-1,v6e-1", "examples/diffusion_unet.py"],
    "dlrm_train": ["--topology", "v5e-1,v6e-1", "examples/dlrm.py"],
    "cuda_ddp": [f"{SCRIPTS}/cuda_ddp.py"],
    "too_large": ["--topology", "v5e-1,v6e-1", "--fail-on", "oom", f"{SCRIPTS}/too_large.py"],
    "unsupported_op": ["--fail-on", "unsupported", f"{SCRIPTS}/unsupported_op.py"],
}  # fmt: skip


def cpu_seconds() -> float:
    """What this process's children, and theirs, have taken of the CPU."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str) -> None:
    arguments = CHECKS[name]
    page = FOLDER / f"{name}.html"
    env = os.environ | {
        "COLUMNS": "150",
        "TORCH_TPU_CHECK_CACHE": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "torch_tpu.cli", "check", "--html", str(page), *arguments]
    start, cpu = time.monotonic(), cpu_seconds()
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    seconds, cpu = time.monotonic() - start, cpu_seconds() - cpu
    ended = f"exit status {done.returncode}, {seconds:.0f} s, {cpu:.0f} s of CPU"
    text = f"$ torch-tpu check {' '.join(arguments)}\n{done.stdout}{ended}\n"
    (FOLDER / f"{name}.txt").write_text(text.replace(f"{ROOT}/", ""))
    print(f"{name}: {ended}", flush=True)


def figures(report: str) -> list[tuple[str, ...]]:
    """Of each target of a report: its name, HBM peak, a step's time, MFU, what bounds it."""
    columns = {}
    for line in report.splitlines():
        if line.startswith(("│", "┃")):
            name, *cells = (cell.strip() for cell in line.strip("│┃").split(line[0]))
            columns.setdefault(name, cells)  # a cell's further lines have no name, as the head has
        elif line.startswith("└"):
            break
    blank = ["-"] * len(columns[""])
    found = []
    keys = ("verdict", "peak", "time, expected", "lower to upper", "MFU", "bound by")
    for target, verdict, peak, expected, range_, mfu, bound in zip(
        columns[""], *(columns.get(key, blank) for key in keys), strict=True
    ):
        if verdict == "compiles and fits":
            found.append((target, peak, f"{expected} ({range_})", mfu, bound))
        else:
            found.append((target, f"{peak}: {verdict}", "-", "-", "-"))
    return found


def with_figures(page: str) -> str:
    """README.md with the table's figures as the kept reports have them; names and descriptions stay."""
    lines = []
    for line in page.splitlines():
        if line.startswith("| | |"):
            continue
        if named := re.match(r"\| \[(\w+)\]\(\1\.txt\) \| (.*?) \|", line):
            first, *others = figures((FOLDER / f"{named[1]}.txt").read_text())
            lines.append(f"{named[0]} {' | '.join(first)} |")
            lines += [f"| | | {' | '.join(other)} |" for other in others]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in [] if sys.argv[1:] == ["--table"] else sys.argv[1:] or CHECKS:
        run(name)
    readme = FOLDER / "README.md"
    readme.write_text(with_figures(readme.read_text()))
