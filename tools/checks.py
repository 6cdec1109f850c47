"""Runs the checks whose reports are kept under docs/checks/, and writes them: python tools/checks.py [NAME...]."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "checks"
CONFIGS, SCRIPTS = "examples/configs", "docs/checks/scripts"
CHECKS = {
    "matmul": ["examples/matmul.py"],
    "digits_cnn": ["--topology", "v5e-1,v6e-1", "examples/digits_cnn.py"],
    "train_transformer": ["--topology", "v5e-1,v6e-1", "examples/train_transformer.py"],
    "smollm2_infer": ["--topology", "v5e-1,v6e-1", "--hf", f"{CONFIGS}/smollm2-135m", "--seq", "512"],
    "smollm2_train": ["--topology", "v5e-1,v6e-1", "--hf", f"{CONFIGS}/smollm2-135m", "--train", "--batch", "8", "--seq", "512"],
    "llama3_8b_infer": ["--topology", "v6e-1,v5p-2", "--hf", f"{CONFIGS}/llama-3-8b", "--seq", "2048"],
    "llama3_8b_train": ["--topology", "v6e-1,v5p-2", "--hf", f"{CONFIGS}/llama-3-8b", "--train", "--seq", "1024"],
    "minilm_infer": ["--topology", "v5e-1,v6e-1", "examples/sentence_embeddings.py"],
    "resnet50_train": ["--topology", "v5e-1,v6e-1", "examples/resnet50.py", "--steps", "4"],
    "gpt2_train": ["--topology", "v5e-1,v6e-1", "examples/gpt2.py"],
    "unet_train": ["--topology", "v5e-1,v6e-1", "examples/diffusion_unet.py"],
    "dlrm_train": ["--topology", "v5e-1,v6e-1", "examples/dlrm.py"],
    "cuda_ddp": [f"{SCRIPTS}/cuda_ddp.py"],
    "too_large": ["--topology", "v5e-1,v6e-1", "--fail-on", "oom", f"{SCRIPTS}/too_large.py"],
    "unsupported_op": ["--fail-on", "unsupported", f"{SCRIPTS}/unsupported_op.py"],
}  # fmt: skip


def run(name: str) -> None:
    arguments = CHECKS[name]
    page = FOLDER / f"{name}.html"
    env = os.environ | {
        "COLUMNS": "150",
        "TORCH_TPU_CHECK_CACHE": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "torch_tpu.cli", "check", "--html", str(page), *arguments]
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - start
    text = f"$ torch-tpu check {' '.join(arguments)}\n{done.stdout}exit status {done.returncode}, {seconds:.0f} s\n"
    (FOLDER / f"{name}.txt").write_text(text.replace(f"{ROOT}/", ""))
    print(f"{name}: {done.returncode}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CHECKS:
        run(name)
