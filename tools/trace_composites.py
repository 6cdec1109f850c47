"""Writes which ops PyTorch's composite ops call on `tpu`: torch_tpu/data/composites.tsv.

    python tools/trace_composites.py          # resumes where it stopped; --fresh starts again

PyTorch's profiler records the calls of OpInfo's samples with their nesting: forward, backward, in place, with out=,
and by other names. An op that an op calls directly in any sample counts. Ops are recorded (mode `defer`), so hardly anything is compiled.
"""

import argparse
import json
import os
import sys
import warnings
from collections import defaultdict
from pathlib import Path

from json_worker import JsonWorker, serve

HERE = Path(__file__).parent
ROOT = HERE.parent
TABLE = ROOT / "torch_tpu" / "data" / "composites.tsv"
RECORDS = ROOT / "build" / "composites.jsonl"
SAMPLES = 6
DTYPES = ("float32", "int64", "bool", "complex64")


def calls_of(events) -> dict[str, list[str]]:
    """op -> the ops that it calls directly."""

    def name_of(event) -> str:
        return event.name + ("." + event.overload_name if event.overload_name else "")

    calls = defaultdict(set)
    for event in events:
        if event.name.startswith("aten::"):
            calls[name_of(event)] |= {name_of(c) for c in event.cpu_children if c.name.startswith("aten::")}
    return {name: sorted(called) for name, called in calls.items()}


def child() -> None:
    os.environ |= {"TORCH_TPU_MODE": "defer", "TORCH_TPU_FALLBACK": "allow"}
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import op_check
    import torch
    from opinfo_samples import run_other_forms, run_samples
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ops = {op_check.full_name(op): op for op in op_check.entries()}
    options = {
        "activities": [ProfilerActivity.CPU],
        "experimental_config": _ExperimentalConfig(capture_overload_names=True),
    }

    def answer(name) -> dict:
        torch.manual_seed(0)
        op = ops[name]
        dtype = next((d for d in DTYPES if op_check.supported(op, op_check.DTYPES[d])), None)
        if dtype is None:
            return {"status": "none", "why": f"takes none of {', '.join(DTYPES)}", "calls": {}}
        with profile(**options) as recorded:
            why = run_samples(op, op_check.DTYPES[dtype], SAMPLES, SAMPLES)
            run_other_forms(op, op_check.DTYPES[dtype], SAMPLES)
        return {"status": "ok", "why": why[:300], "calls": calls_of(recorded.events())}

    serve(answer)


def collect(fresh: bool) -> dict[str, set[str]]:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import op_check

    RECORDS.parent.mkdir(exist_ok=True)
    if fresh:
        RECORDS.unlink(missing_ok=True)
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    done = {record["entry"]: record for record in map(json.loads, lines)}
    worker = JsonWorker([sys.executable, __file__, "--child"], {})
    calls: dict[str, set[str]] = defaultdict(set)
    with RECORDS.open("a") as log:
        for op in op_check.entries():
            name = op_check.full_name(op)
            if name not in done:
                done[name] = {"entry": name, "calls": {}} | worker.ask(name, 300)
                print(json.dumps(done[name]), file=log, flush=True)
                print(f"{name}: {done[name]['status']} {done[name]['why']}", flush=True)
            for caller, called in done[name]["calls"].items():
                calls[caller] |= set(called)
    worker.close()
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="trace every entry again")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child()
        return
    calls = collect(args.fresh)
    from torch_tpu import _coverage

    composites = [op.name for op in _coverage.ops() if op.source.startswith("RegisterComposite")]
    lines = [
        "# The ops that PyTorch's composite ops called directly on `tpu` in OpInfo's samples.",
        "# Made by tools/trace_composites.py. Composites that no sample reached are not here.",
        *(f"{name}\t{' '.join(sorted(calls[name]))}" for name in composites if calls.get(name)),
    ]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 2} of {len(composites)} composites traced")


if __name__ == "__main__":
    os.nice(10)
    main()
