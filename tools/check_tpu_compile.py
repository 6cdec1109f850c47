"""Compiles the lowered calls of PyTorch's OpInfo samples with the real TPU compiler, without a TPU.

    python tools/check_tpu_compile.py                 # float32 and bfloat16; resumes where it stopped
    python tools/check_tpu_compile.py --collect       # lower the samples again, after lowerings changed
    python tools/check_tpu_compile.py --dtypes int64,tests  # the rows that those samples do not call

Each row of the lowering table is compiled in up to --programs distinct calls a dtype, as OpInfo's samples
make them. The columns int64 and tests hold only the rows that no column before them has: as OpInfo's samples
of int64 call them, and as tests do. A crash of the compiler costs one program. The table is
torch_tpu/data/tpu_compile.tsv, whose other columns stay; what was compiled once is kept in build/tpu_compile and
is not compiled again.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from importlib import metadata
from pathlib import Path

from collect_calls import new_calls
from json_worker import JsonWorker

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from torch_tpu._coverage import ops, tpu_compilation  # noqa: E402
from torch_tpu.aot.compiler import Compiler  # noqa: E402
from torch_tpu.aot.errors import CompilerError  # noqa: E402
from torch_tpu.aot.hardware import Slice, parse  # noqa: E402

COLUMNS = ("float32", "bfloat16", "int64", "tests")
FOR_THE_REST = ("int64", "tests")  # made for the rows that no column before has
TABLE = ROOT / "torch_tpu" / "data" / "tpu_compile.tsv"
WORK = ROOT / "build" / "tpu_compile"
CALLS = WORK / "calls.jsonl"

# Tests in one process that call rows of which OpInfo has no sample.
TESTS = (
    "compositions", "nn", "numbers", "random", "attention", "order_and_places", "complex", "scalar_forms", "optimizers",
    "normalization", "upsampling_and_padding", "products_by_dtype", "factories",
)  # fmt: skip


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def collect(dtype: str) -> list[dict]:
    """The calls of every OpInfo entry: {entry, dtype, status, why, calls: [[row, hash], ...]}."""
    import op_check

    (WORK / "programs").mkdir(parents=True, exist_ok=True)
    done = {(r["entry"], r["dtype"]): r for r in read_lines(CALLS)}
    worker = JsonWorker([sys.executable, str(HERE / "collect_calls.py"), str(WORK / "programs")], {})
    records = []
    with CALLS.open("a") as log:
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


def collect_from_tests() -> list[dict]:
    """The calls that TESTS make, as ``collect`` gives them."""
    folder = WORK / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for test in TESTS:
        with tempfile.TemporaryDirectory(prefix="torch_tpu_calls_") as dumps:
            command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"tests/test_{test}.py"]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"TORCH_TPU_DUMP_CALLS": dumps}, check=False)
            calls = new_calls(Path(dumps), folder)
        records.append({"entry": test, "dtype": "tests", "status": "ok", "why": "", "calls": calls})
    return records


def chosen(records: list[dict], limit: int, known: set[str]) -> dict[str, list[str]]:
    """row -> hashes of its programs, the first ``limit`` distinct ones; without the rows that are ``known``."""
    programs: dict[str, list[str]] = defaultdict(list)
    for row, program in (call for record in records for call in record["calls"]):
        if row not in known and program not in programs[row] and len(programs[row]) < limit:
            programs[row].append(program)
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


def columns() -> dict[str, dict[str, str]]:
    """What the table says: row -> column -> cell, but for `-`."""
    if not TABLE.exists():
        return {}
    tpu_compilation.cache_clear()
    table = tpu_compilation()
    return {
        row: {column: cell for column, cell in zip(table.dtypes, cells, strict=True) if cell != "-"}
        for row, cells in table.rows.items()
    }


def rows_before(column: str) -> set[str]:
    """The rows that some column before ``column`` has."""
    before = COLUMNS[: COLUMNS.index(column)]
    return {row for row, cells in columns().items() if any(c in cells for c in before)}


def cell_of(answers: list[dict]) -> str:
    bad = [a for a in answers if a["status"] != "ok"]
    if not bad:
        return f"ok {len(answers)}"
    return f"{bad[0]['status']} {len(bad)} of {len(answers)}: {reason(bad[0]['why'])}"


def write_table(column: str, programs: dict[str, list[str]], results: dict[str, dict], target: str) -> None:
    """A line a row: its name, then for each column `ok <programs>`, `-` (nothing calls it), or the refusal."""
    names = {op.row for op in ops() if op.row}
    table = {row: {c: cell for c, cell in cells.items() if c != column} for row, cells in columns().items()}
    for row, hashes in programs.items():
        table.setdefault(row, {})[column] = cell_of([results[p] for p in hashes])
    for cells in table.values():
        for c in set(cells) & set(FOR_THE_REST):
            if any(earlier in cells for earlier in COLUMNS[: COLUMNS.index(c)]):
                del cells[c]
    table = {row: cells for row, cells in table.items() if cells and row in names}
    heads = [c for c in COLUMNS if any(c in cells for cells in table.values())]
    lines = [
        f"# What the TPU compiler says to the lowering of each row: libtpu {metadata.version('libtpu')}, {target}, no TPU.",
        "# Made by tools/check_tpu_compile.py. A cell: `ok <distinct programs>`, `-` (no OpInfo sample of that dtype",
        "# calls the row, or for `tests` no test), or `<refused|oom|crashed> <how many> of <programs>: <the compiler's",
        "# reason>`. int64 and tests hold only the rows that no column to their left has.",
        "\t".join(["row", *heads]),
        *("\t".join([row, *(table[row].get(c, "-") for c in heads)]) for row in sorted(table)),
    ]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="float32,bfloat16", help=f"columns to make, of {', '.join(COLUMNS)}")
    parser.add_argument("--programs", type=int, default=3, help="distinct programs a row and dtype")
    parser.add_argument("--target", default="v6e:1x1", help="a TPU slice, such as v6e:1x1")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a program")
    parser.add_argument("--collect", action="store_true", help="lower the samples again")
    args = parser.parse_args()
    asked = args.dtypes.split(",")
    if unknown := set(asked) - set(COLUMNS):
        parser.error(f"--dtypes {args.dtypes}: no column is named {', '.join(sorted(unknown))}; expected {COLUMNS}.")
    target = parse(args.target)
    if args.collect:
        CALLS.unlink(missing_ok=True)
    for column in [c for c in COLUMNS if c in asked]:
        records = collect_from_tests() if column == "tests" else collect(column)
        known = rows_before(column) if column in FOR_THE_REST else set()
        programs = chosen(records, args.programs, known)
        distinct = list(dict.fromkeys(p for hashes in programs.values() for p in hashes))
        results = compile_all(distinct, target, args.timeout)
        write_table(column, programs, results, target.name)
        refused = [row for row, hashes in programs.items() if any(results[p]["status"] != "ok" for p in hashes)]
        print(f"{column}: {len(programs)} rows, {len(distinct)} programs; not compiled in full: {len(refused)} rows")
    return 0


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
