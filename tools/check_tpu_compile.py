"""Compiles the lowered calls of PyTorch's OpInfo samples with the real TPU compiler, without a TPU.

    python tools/check_tpu_compile.py                 # float32 and bfloat16; resumes where it stopped
    python tools/check_tpu_compile.py --collect       # lower the samples again, after lowerings changed

Each row of the lowering table is compiled in up to --programs distinct calls a dtype, as OpInfo's samples
make them. A crash of the compiler costs one program. The table is torch_tpu/data/tpu_compile.tsv; what was
compiled once is kept in build/tpu_compile and is not compiled again.
"""

import argparse
import json
import os
import re
import sys
import time
from collections import defaultdict
from importlib import metadata
from pathlib import Path

from json_worker import JsonWorker

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from torch_tpu.aot.compiler import Compiler  # noqa: E402
from torch_tpu.aot.errors import CompilerError  # noqa: E402
from torch_tpu.aot.hardware import Slice, parse  # noqa: E402

TABLE = ROOT / "torch_tpu" / "data" / "tpu_compile.tsv"
WORK = ROOT / "build" / "tpu_compile"


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def collect(dtypes: list[str], again: bool) -> list[dict]:
    """The calls of every OpInfo entry: {entry, dtype, status, why, calls: [[row, hash], ...]}."""
    import op_check

    (WORK / "programs").mkdir(parents=True, exist_ok=True)
    path = WORK / "calls.jsonl"
    if again:
        path.unlink(missing_ok=True)
    done = {(r["entry"], r["dtype"]): r for r in read_lines(path)}
    worker = JsonWorker([sys.executable, str(HERE / "collect_calls.py"), str(WORK / "programs")], {})
    records = []
    with path.open("a") as log:
        for dtype in dtypes:
            for op in op_check.entries():
                name = op_check.full_name(op)
                if not op_check.supported(op, op_check.DTYPES[dtype]):
                    continue
                record = done.get((name, dtype))
                if record is None:
                    record = {"entry": name, "dtype": dtype, "calls": []} | worker.ask([name, dtype], 300)
                    print(json.dumps(record), file=log, flush=True)
                    print(f"{dtype} {name}: {len(record['calls'])} calls {record['why']}", flush=True)
                records.append(record)
    worker.close()
    return records


def chosen(records: list[dict], limit: int) -> dict[tuple[str, str], list[str]]:
    """(row, dtype of the entry) -> hashes of its programs, the first ``limit`` distinct ones."""
    programs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in records:
        for row, program in record["calls"]:
            known = programs[row, record["dtype"]]
            if program not in known and len(known) < limit:
                known.append(program)
    return programs


def verdict(compiler: Compiler, module: str, target: Slice) -> dict:
    try:
        compiler.compile(module, target, "full")
    except CompilerError as error:
        return {"status": error.kind, "why": error.what}
    return {"status": "ok", "why": ""}


def compile_all(programs: list[str], target: Slice, timeout: float) -> dict[str, dict]:
    """hash -> {status, why, seconds}. What this libtpu answered before is not asked again, but for crashes."""
    path = WORK / "compiled.jsonl"
    name = f"libtpu {metadata.version('libtpu')} {target.name}"
    done = {r["program"]: r for r in read_lines(path) if r["compiler"] == name and r["status"] != "crashed"}
    left = [p for p in programs if p not in done]
    with path.open("a") as log, Compiler(timeout) as compiler:
        for i, program in enumerate(left):
            start = time.monotonic()
            module = (WORK / "programs" / f"{program}.mlir").read_text()
            record = {"program": program, "compiler": name} | verdict(compiler, module, target)
            record["seconds"] = round(time.monotonic() - start, 2)
            print(json.dumps(record), file=log, flush=True)
            if record["status"] != "ok":
                print(f"{i}/{len(left)} {program} {record['status']}: {record['why'][:200]}", flush=True)
            elif i % 100 == 0:
                print(f"{i}/{len(left)}", flush=True)
            done[program] = record
    return done


def reason(why: str) -> str:
    """One line of the compiler's text."""
    text = re.sub(r"\s+", " ", why).strip()
    return text[:240]


def write_table(programs: dict[tuple[str, str], list[str]], results: dict[str, dict], target: str, dtypes) -> None:
    """A line a row: its name, then for each dtype `ok <programs>`, `-` (no sample calls it), or the refusal."""
    lines = [
        f"# What the TPU compiler says to the lowering of each row: libtpu {metadata.version('libtpu')}, {target}, no TPU.",
        "# Made by tools/check_tpu_compile.py. A cell: `ok <distinct programs>`, `-` (no OpInfo sample of that dtype",
        "# calls the row), or `<refused|oom|crashed> <how many> of <programs>: <the compiler's reason>`.",
        "\t".join(["row", *dtypes]),
    ]
    for row in sorted({row for row, _ in programs}):
        cells = []
        for dtype in dtypes:
            answers = [results[p] for p in programs.get((row, dtype), [])]
            bad = [a for a in answers if a["status"] != "ok"]
            if not answers:
                cells.append("-")
            elif not bad:
                cells.append(f"ok {len(answers)}")
            else:
                cells.append(f"{bad[0]['status']} {len(bad)} of {len(answers)}: {reason(bad[0]['why'])}")
        lines.append("\t".join([row, *cells]))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--programs", type=int, default=3, help="distinct programs a row and dtype")
    parser.add_argument("--target", default="v6e:1x1", help="a TPU slice, such as v6e:1x1")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a program")
    parser.add_argument("--collect", action="store_true", help="lower the samples again")
    args = parser.parse_args()
    dtypes = args.dtypes.split(",")
    target = parse(args.target)
    programs = chosen(collect(dtypes, args.collect), args.programs)
    distinct = list(dict.fromkeys(p for dtype in dtypes for key, ps in programs.items() if key[1] == dtype for p in ps))
    results = compile_all(distinct, target, args.timeout)
    write_table(programs, results, target.name, dtypes)
    refused = [row for (row, _), ps in programs.items() if any(results[p]["status"] != "ok" for p in ps)]
    print(f"{len(programs)} (row, dtype) pairs, {len(distinct)} programs; not compiled in full: {len(refused)}")
    return 0


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
