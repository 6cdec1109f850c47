"""Runs the OpInfo checks of op_check.py in child processes, and writes a table.

    python tests/sweep.py --dtypes float32 --kinds forward,gradient --ops add,mul
    python tests/sweep.py                      # everything; resumes where it stopped
    python tests/sweep.py --dtypes int8 --samples 2 --record  # writes the dtype's totals for docs/ops.md

A crash or a hang costs one check: the child is restarted behind it.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from gaps import gap_for  # noqa: E402

from tools.json_worker import JsonWorker, serve  # noqa: E402

RECORD = HERE.parent / "docs" / "data" / "opinfo.tsv"


def child(args) -> None:
    """Answers checks of the parent: [entry, dtype, kind]."""
    import op_check
    import torch

    torch.set_num_threads(1)
    ops = {op_check.full_name(op): op for op in op_check.entries()}
    import torch_tpu

    def answer(check) -> dict:
        name, dtype, kind = check
        fallbacks = torch_tpu.counters()["fallbacks"]
        try:
            count = op_check.check(ops[name], op_check.DTYPES[dtype], kind, args.samples)
            result = {"status": "pass", **dataclasses.asdict(count)}
        except op_check.Skip as skip:
            result = {"status": "skip", "why": str(skip), **dataclasses.asdict(skip.count)}
        except BaseException as error:
            result = {"status": "fail", "why": f"{type(error).__name__}: {error}"[: args.chars]}
        return result | {"fallbacks": torch_tpu.counters()["fallbacks"] - fallbacks}

    serve(answer)


def checks(args):
    import op_check

    wanted = args.ops.split(",") if args.ops else None
    for op in op_check.entries():
        name = op_check.full_name(op)
        if wanted and not any(
            name == w or op.name == w or (w.endswith("*") and name.startswith(w[:-1])) for w in wanted
        ):
            continue
        for dtype in args.dtypes.split(","):
            if not op_check.supported(op, op_check.DTYPES[dtype]):
                continue
            for kind in op_check.kinds_for(op, op_check.DTYPES[dtype]):
                if not args.kinds or kind in args.kinds.split(","):
                    yield name, dtype, kind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="entry names, comma-separated; a name may end in *")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--kinds", default="", help="kinds of op_check.py, comma-separated; all by default")
    parser.add_argument("--samples", type=int, default=0, help="samples a check at most; 0: all")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a check")
    parser.add_argument("--chars", type=int, default=300, help="length of a failure's text")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/sweep.jsonl"),
        help="results, a JSON line each; what is there is not run again",
    )
    parser.add_argument("--fresh", action="store_true", help="run everything again")
    parser.add_argument("--record", action="store_true", help=f"write the totals of the dtypes to {RECORD.name}")
    parser.add_argument("--quiet", action="store_true", help="print failures only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    if args.record and (args.ops or args.kinds):
        parser.error("--record is of whole dtypes: leave out --ops and --kinds")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if args.output.exists() and not args.fresh:
        for line in args.output.read_text().splitlines():
            row = json.loads(line)
            done[row["name"], row["dtype"], row["kind"]] = row
    worker = JsonWorker(
        [sys.executable, __file__, "--child", "--samples", str(args.samples), "--chars", str(args.chars)], {}
    )
    rows = []
    with args.output.open("w" if args.fresh else "a") as log:
        for check in checks(args):
            row = done.get(check)
            if row is None:
                start = time.monotonic()
                row = dict(zip(("name", "dtype", "kind"), check, strict=True)) | worker.ask(check, args.timeout)
                row["seconds"] = round(time.monotonic() - start, 2)
                print(json.dumps(row), file=log, flush=True)
            rows.append(row)
            if row["status"] == "fail" and gap_for(*check):
                row["status"] = "gap"
            if row["status"] in ("fail", "crash", "hang") or not args.quiet:
                print(f"{row['status']:5} {row['name']} {row['dtype']} {row['kind']} {row.get('why', '')}", flush=True)
    worker.close()
    text = table(rows)
    args.output.with_suffix(".txt").write_text(text + "\n")
    print(text)
    if args.record:
        record(rows, args.samples)
    return 0 if {row["status"] for row in rows} <= {"pass", "skip", "gap"} else 1


def record(rows: list[dict], samples: int) -> None:
    """Writes a line a dtype: samples a check (0: all), checks that pass, those the CPU supports, those in gaps.toml."""
    import op_check

    head = "dtype\tsamples\tpass\tsupported\tgap\n"
    old = RECORD.read_text().splitlines()[1:] if RECORD.exists() else []
    lines = {line.split("\t")[0]: line for line in old}
    for dtype in {row["dtype"] for row in rows}:
        some = [row["status"] for row in rows if row["dtype"] == dtype and row["status"] != "skip"]
        lines[dtype] = "\t".join(map(str, (dtype, samples, some.count("pass"), len(some), some.count("gap"))))
    RECORD.write_text(head + "".join(lines[d] + "\n" for d in op_check.DTYPES if d in lines))


def table(rows: list[dict]) -> str:
    """By dtype: passed / supported by the CPU, of each kind and of all; then what the rows count."""
    import op_check

    def cell(some: list[dict]) -> str:
        supported = [row for row in some if row["status"] != "skip"]
        return f"{sum(row['status'] == 'pass' for row in supported)}/{len(supported)}" if supported else "-"

    kinds = [k for k in op_check.KINDS if any(row["kind"] == k for row in rows)]
    lines = [("dtype", *kinds, "all")]
    for dtype in (*op_check.DTYPES, "all"):
        some = [row for row in rows if dtype in ("all", row["dtype"])]
        if some:
            lines.append((dtype, *(cell([row for row in some if row["kind"] == k]) for k in kinds), cell(some)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(part.rjust(w) for part, w in zip(line, widths, strict=True)) for line in lines]
    counts = {
        status: sum(row["status"] == status for row in rows) for status in sorted({row["status"] for row in rows})
    }
    totals = {key: sum(row.get(key, 0) for row in rows) for key in ("compared", "dropped", "empty", "scalar")}
    text.append(f"checks: {', '.join(f'{n} {status}' for status, n in counts.items())}")
    text.append(
        f"samples: {totals['compared']} compared ({totals['empty']} with empty, {totals['scalar']} with 0-d tensors), "
        f"{totals['dropped']} dropped: the CPU refuses them; "
        f"{sum(bool(row.get('fallbacks')) for row in rows)} checks used the CPU fallback"
    )
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
