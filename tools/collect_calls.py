"""Writes the lowered calls of PyTorch's OpInfo samples as StableHLO modules: the child of check_tpu_compile.py.

Ops are recorded (mode ``defer``) and their results dropped, so hardly anything is compiled here. A request is
[entry, dtype]; the answer lists [row, hash of the module], and the modules lie in FOLDER/<hash>.mlir.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from json_worker import serve

ROOT = Path(__file__).parent.parent
SAMPLES = 8
GRADIENTS = 4


def new_calls(dumps: Path, folder: Path) -> list[tuple[str, str]]:
    """(row, hash) of the modules in ``dumps``, which move to ``folder``."""
    calls = []
    for path in sorted(dumps.iterdir(), key=lambda p: int(p.stem.split("_")[1])):
        first, module = path.read_text().split("\n", 1)
        name = hashlib.sha256(module.encode()).hexdigest()[:16]
        path.unlink()
        (folder / f"{name}.mlir").write_text(module)
        calls.append((first.removeprefix("// "), name))
    return calls


def main(folder: Path) -> None:
    dumps = Path(tempfile.mkdtemp(prefix="torch_tpu_calls_"))
    os.environ |= {"TORCH_TPU_DUMP_CALLS": str(dumps), "TORCH_TPU_MODE": "defer", "TORCH_TPU_FALLBACK": "error"}
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import op_check
    import torch
    from opinfo_samples import run_samples

    torch.set_num_threads(1)
    ops = {op_check.full_name(op): op for op in op_check.entries()}

    def answer(request) -> dict:
        name, dtype = request
        torch.manual_seed(0)
        why = run_samples(ops[name], op_check.DTYPES[dtype], SAMPLES, GRADIENTS)
        return {"status": "ok", "why": why[:300], "calls": new_calls(dumps, folder)}

    serve(answer)
    dumps.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
