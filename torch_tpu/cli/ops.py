"""``torch-tpu ops``: how each ATen overload runs on ``tpu``."""

import csv
import dataclasses
import difflib
import json
import sys

import click

from torch_tpu._coverage import RULE, Op, ops, totals, tpu_compilation


def matching(name: str) -> list[Op]:
    """The overload of that name, or all overloads of the op. ``aten::`` may be left out."""
    full = name if name.startswith("aten::") else f"aten::{name.removeprefix('aten.').removeprefix('torch.')}"
    every = ops()
    found = [op for op in every if op.name == full and ("." in full or not _has_overloads(full, every))]
    found = found or [op for op in every if op.name.split(".")[0] == full]
    if found:
        return found
    near = difflib.get_close_matches(full, {op.name.split(".")[0] for op in every}, n=3)
    raise click.ClickException(
        f"PyTorch has no ATen op {name!r}."
        + (f" Near it: {', '.join(n.removeprefix('aten::') for n in near)}." if near else "")
        + "\n`torch-tpu ops` lists all. Functions of torch that are written in Python are no ATen ops."
    )


def _has_overloads(base: str, every: list[Op]) -> bool:
    return any(op.name.startswith(base + ".") for op in every)


def detail(op: Op) -> str:
    """What stands behind ``how``, in one line."""
    if op.row:
        return f"row {op.row.removeprefix('aten::')} ({op.source})"
    if op.how == "native":
        return op.source
    if op.reason:
        return op.reason
    return "calls " + " ".join(op.through) if op.through else op.source


def explain(op: Op) -> str:
    """Everything that is known about one overload, as text."""
    lines = [op.schema, f"  {op.how}: {RULE[op.how]}"]
    if op.row:
        lines.append(f"  row {op.row} in {op.source}; its in-place and out= forms share it")
        compilation = tpu_compilation()
        for dtype, said in zip(compilation.dtypes, compilation.rows.get(op.row, ()), strict=False):
            lines.append(f"  TPU compiler, {dtype}: {'no OpInfo sample calls it' if said == '-' else said}")
    elif op.source:
        lines.append(f"  kernel: {op.source}")
    if op.through:
        lines.append(f"  calls ({op.method}): {', '.join(op.through)}")
    elif op.how == "composite":
        lines.append("  what it calls was not seen: no OpInfo sample reaches it")
    if op.reason:
        lines.append(f"  {op.reason}")
    return "\n".join(lines)


@click.command()
@click.argument("name", required=False)
@click.option("--how", type=click.Choice(list(RULE)), multiple=True, help="Only these; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def command(name: str | None, how: tuple[str, ...], as_json: bool, as_csv: bool) -> None:
    """How each ATen overload runs on tpu: natively, as a composite of others, on the CPU, or not at all.

    With NAME, such as add, add.Tensor or aten::add_.Tensor: what is known about that op.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv: choose one.")
    every = matching(name) if name else ops()
    rows = [op for op in every if not how or op.how in how]
    if as_json:
        click.echo(json.dumps({"rule": RULE, "totals": totals(every), "ops": [vars(op) for op in rows]}, indent=1))
    elif as_csv:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(field.name for field in dataclasses.fields(Op))
        for op in rows:
            table.writerow(" ".join(v) if isinstance(v, tuple) else v for v in dataclasses.astuple(op))
    elif name:
        click.echo("\n\n".join(explain(op) for op in rows))
    else:
        width = max((len(op.name) for op in rows), default=0)
        for op in rows:
            click.echo(f"{op.how:9}  {op.name:{width}}  {detail(op)}")
        click.echo(f"\n{len(every)} overloads of ATen ops:")
        for word, count in totals(every).items():
            click.echo(f"{count:6} {word:9}  {RULE[word]}")
