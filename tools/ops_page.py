"""Writes docs/ops.md from what ``torch_tpu.ops()`` says. ``--check`` fails if the page is stale."""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "ops.md"
RECORD = ROOT / "docs" / "data" / "opinfo.tsv"
PEER = ROOT / "docs" / "data" / "torchtpu_overloads.txt"
sys.path.insert(0, str(ROOT))

from torch_tpu._coverage import RULE, Op, ops, totals, tpu_compilation  # noqa: E402


def short(name: str) -> str:
    return name.removeprefix("aten::")


def code(names) -> str:
    return ", ".join(f"`{short(n)}`" for n in names)


def counts(every: list[Op]) -> list[str]:
    found = totals(every)
    methods = Counter(op.method for op in every if op.how == "composite")
    rows = {op.row for op in every if op.row}
    with_row = sum(bool(op.row) for op in every)
    return [
        f"PyTorch's dispatcher knows {len(every)} overloads of ATen ops.",
        "",
        "| how | overloads | which |",
        "|---|---:|---|",
        *(f"| {how} | {found[how]} | {RULE[how]} |" for how in RULE),
        "",
        f"Native: {with_row} overloads are served by {len(rows)} rows (functional, in-place and out= forms share one), "
        f"{found['native'] - with_row} by kernels of their own.",
        "",
        f"What a composite calls was seen in OpInfo's samples for {methods['traced']} of them "
        f"(`tools/trace_composites.py`). PyTorch's code generator makes {methods['generated']} others out of the "
        f"functional or the in-place form and a copy, and {methods['structured']} out of the out= form; for {methods['']} it is not known.",
    ]


def peer(every: list[Op]) -> list[str]:
    by_name = {op.name: op for op in every}
    listed = ["aten::" + line for line in PEER.read_text().split("\n") if line and not line.startswith("#")]
    here = [by_name.get(name) for name in listed]
    how = Counter(op.how if op else "unknown" for op in here)
    rest = [name for name, op in zip(listed, here, strict=True) if op is None or op.how in ("fallback", "none")]
    text = [
        f"TorchTPU 0.2.0 registers {len(listed)} ATen overloads for its device (`docs/data/{PEER.name}`). Of these, here "
        f"{how['native']} are native and {how['composite']} are composites.",
    ]
    if rest:
        text.append("The others: " + "; ".join(f"`{short(n)}` ({why(by_name.get(n))})" for n in rest) + ".")
    return text


def why(op: Op | None) -> str:
    return op.reason if op else "PyTorch 2.13 does not have it"


def checked() -> list[str]:
    head, *lines = (line.split("\t") for line in RECORD.read_text().splitlines())
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    total = {key: sum(int(row[key]) for row in rows) for key in ("pass", "supported", "gap")}

    def line(name: str, samples: str, counts: dict) -> str:
        share = 100 * int(counts["pass"]) / int(counts["supported"])
        return f"| {name} | {samples} | {counts['pass']} | {counts['supported']} | {counts['gap']} | {share:.1f} % |"

    return [
        "A check is an entry of OpInfo, a dtype, and one of: forward, gradient, in-place, out=, non-contiguous operands, "
        "`reference_inputs`, `error_inputs` (`tests/op_check.py`). Of those that CPU PyTorch supports, with no op on the "
        "CPU, seen with `TORCH_TPU_FALLBACK=error python tests/sweep.py --dtypes DTYPE --samples N --record`; what does "
        "not pass for a known reason stands in `tests/gaps.toml`.",
        "",
        "| dtype | samples a check, at most | pass | supported by the CPU | in gaps.toml | share |",
        "|---|---:|---:|---:|---:|---:|",
        *(line(row["dtype"], row["samples"] if row["samples"] != "0" else "all", row) for row in rows),
        line("all", "", total),
    ]


def compiled(every: list[Op]) -> list[str]:
    table = tpu_compilation()
    rows = {op.row for op in every if op.row}
    lines = [
        f"Compiler: {table.compiler}. For each row, the distinct calls that OpInfo's samples of float32 and bfloat16 make, "
        "up to three a dtype, are compiled; for rows that none of them calls, those of int64 samples; and for rows that no "
        "sample calls, those that the tests make (`tools/check_tpu_compile.py`). The table is "
        "`torch_tpu/data/tpu_compile.tsv`. Compiling says nothing about values.",
        "",
        "| calls of | rows called | all programs compile | share |",
        "|---|---:|---:|---:|",
    ]
    refused = defaultdict(list)
    for i, dtype in enumerate(table.dtypes):
        cells = {row: cells[i] for row, cells in table.rows.items() if cells[i] != "-"}
        bad = {row: cell for row, cell in cells.items() if not cell.startswith("ok")}
        for row, cell in bad.items():
            refused[row, cell].append(dtype)
        good = len(cells) - len(bad)
        calls = {"tests": "tests, of rows that no sample calls", "int64": "int64 samples, of other rows"}.get(
            dtype, f"{dtype} samples"
        )
        lines.append(f"| {calls} | {len(cells)} | {good} | {100 * good / max(1, len(cells)):.1f} % |")
    rest = sorted(rows - set(table.rows))
    called = f"{len(rows) - len(rest)} of the {len(rows)} rows are called by one of these"
    lines += ["", f"{called}; these are not: {code(rest)}." if rest else f"{called}."]
    lines += ["", "What does not compile:" if refused else "No program was refused."]
    lines += [""] if refused else []
    lines += [f"- `{short(row)}` ({', '.join(dtypes)}): {cell}" for (row, cell), dtypes in sorted(refused.items())]
    return lines


def native(every: list[Op]) -> list[str]:
    families = defaultdict(set)
    for op in every:
        if op.how == "native":
            families[op.source].add(op.row or op.name)
    return [f"- `{source}`: {code(sorted(names))}" for source, names in sorted(families.items())]


def grouped(rows: list[Op]) -> list[str]:
    reasons = defaultdict(list)
    for op in rows:
        calls = op.reason.startswith("calls ")
        reasons["made of ops that run on the CPU" if calls else op.reason].append(op.name)
    return [f"- {reason} ({len(names)}): {code(names)}" for reason, names in sorted(reasons.items())]


def page() -> str:
    every = ops()
    parts = [
        "# ATen ops on `tpu`",
        "",
        "Written by `python tools/ops_page.py`; a test fails when it is stale. `torch-tpu ops` prints the whole table "
        "(`--json`, `--csv`, `--how fallback`), `torch-tpu ops NAME` explains one op, and `torch_tpu.ops()` gives the rows "
        "in Python.",
        "",
        "## Totals",
        "",
        *counts(every),
        "",
        "## Beside TorchTPU 0.2.0",
        "",
        *peer(every),
        "",
        "## Beside CPU PyTorch",
        "",
        *checked(),
        "",
        "## What the TPU's compiler takes",
        "",
        *compiled(every),
        "",
        "## Run on the CPU",
        "",
        *grouped(ops("fallback")),
        "",
        "## Not applicable",
        "",
        *grouped(ops("none")),
        "",
        "## Native, by file",
        "",
        "Rows by the name of their functional form.",
        "",
        *native(every),
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is stale")
    args = parser.parse_args()
    text = page()
    if not args.check:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() != text:
        print("docs/ops.md is stale.\nWrite it anew: python tools/ops_page.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
