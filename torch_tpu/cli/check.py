"""``torch-tpu check``: will it run on a TPU, does it fit, how fast would it be? Answered by the compiler, without a TPU."""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from torch_tpu.aot import hardware
from torch_tpu.aot.attention import Attention
from torch_tpu.aot.check import check, check_module
from torch_tpu.aot.compiler import Depth
from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.recompute import Checkpoint
from torch_tpu.aot.report import Report
from torch_tpu.aot.sharding import Shard
from torch_tpu.cli import check_text

# Exit status: the check itself failed; what --fail-on names was found.
FAILED, FOUND = 2, 1


def _values(given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in given:
        where, _, number = text.rpartition("=")
        try:
            found[where] = float(number)
        except ValueError:
            where = ""
        if ":" not in where:
            raise CheckError(f"--value {text}: expected FILE.py:LINE=NUMBER.", "For example --value train.py:31=7.")
    return found


def _function(name: str) -> Callable[[], tuple]:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise CheckError(f"--module {name}: {error}", "Give it as package.module:function.") from error
    if not callable(found):
        raise CheckError(
            f"--module {name} is no function.", "It takes nothing and returns a module or function, and its inputs."
        )
    return found


def _failures(report: Report, fail_on: tuple[str, ...]) -> list[str]:
    found = []
    if "unsupported" in fail_on and (report.unsupported or report.verdicts() & {"refused", "crashed"}):
        found.append("unsupported")
    if "oom" in fail_on and "oom" in report.verdicts():
        found.append("oom")
    return found


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--module", metavar="PKG:FUNCTION", help="A function that returns (module or function, inputs...).")
@click.option("--hf", metavar="CONFIG", help="A transformers configuration: a folder or a name. No weights are needed.")
@click.option(
    "--mlir",
    type=click.Path(path_type=Path),
    help="A StableHLO module in a text file, from anywhere: to compare it with another program.",
)
@click.option(
    "--topology", default="v6e:1x1", show_default=True, help="A slice, or several with commas: v6e-8,v5p:2x2x1."
)
@click.option(
    "--train/--infer", default=False, help="With --module and --hf: a training step, or a forward.  [default: infer]"
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Of all devices together: sequences (--hf), the inputs' first dimension (--module), batch_size of DataLoaders.  "
    "[default: 1 with --hf, else as it is]",
)
@click.option(
    "--seq", type=click.IntRange(1), help="With --hf: tokens in a sequence.  [default: the model's, at most 2048]"
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32", "float16"]),
    help="In place of float32: of parameters and inputs; of a script, PyTorch's default.  [default: bfloat16 with --hf, "
    "else as it is]",
)
@click.option(
    "--shard",
    default="none",
    show_default=True,
    type=click.Choice(["none", "fsdp", "tp"]),
    help="One device, or one program of all the slice's devices: each a part of the batch (fsdp) or of each layer (tp, "
    "tensor parallelism).",
)
@click.option(
    "--checkpoint",
    default="none",
    show_default=True,
    type=click.Choice(["none", "layer"]),
    help="Keep activations, or compute each layer's again in the backward.",
)
@click.option(
    "--attention",
    default="tiles",
    show_default=True,
    type=click.Choice(["tiles", "pallas"]),
    help="scaled_dot_product_attention as loops over tiles, or as a Mosaic kernel (needs jax).",
)
@click.option(
    "--roll/--no-roll",
    default=None,
    help="Layers that repeat as a loop over stacked parameters, or one by one.  [default: a loop in programs of 4,000 calls]",
)
@click.option(
    "--quick", "depth", flag_value="quick", default="quick", help="The compiler's first phase: seconds.  [default]"
)
@click.option(
    "--full", "depth", flag_value="full", help="The whole compiler: minutes; cycles, and errors of code generation."
)
@click.option(
    "--fit/--no-fit",
    default=True,
    help="Where memory does not suffice: also compile what may make it fit.  [default: fit]",
)
@click.option("--value", multiple=True, metavar="FILE:LINE=N", help="What a value is that the host reads at a line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page that holds everything."
)
@click.option("--fail-on", default="", metavar="WHAT", help="Exit with 1 on: unsupported, oom (with commas).")
@click.option("--timeout", default=1800.0, show_default=True, help="Seconds for the compiler, each program.")
@click.option("--traceback", "with_traceback", is_flag=True, help="Show Python's traceback of an error.")
def command(
    script: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    hf: str | None,
    mlir: Path | None,
    topology: str,
    train: bool,
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    shard: Shard,
    checkpoint: Checkpoint,
    attention: Attention,
    roll: bool | None,
    depth: Depth,
    fit: bool,
    value: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    fail_on: str,
    timeout: float,
    with_traceback: bool,
) -> None:
    """Will it run on a TPU, does it fit, how fast would it be?

    Runs SCRIPT, unmodified, with its ARGUMENTS, on tensors without data; or takes a function or a transformers
    configuration. The TPU compiler then says what it makes of the programs. Options come before SCRIPT.
    """
    stderr = Console(stderr=True)
    names = tuple(filter(None, fail_on.split(",")))
    try:
        if unknown := set(names) - {"unsupported", "oom"}:
            raise CheckError(f"--fail-on {fail_on}: unknown: {', '.join(unknown)}.", "Known: unsupported, oom.")
        if sum(x is not None for x in (script, module, hf, mlir)) != 1:
            raise CheckError(
                "Nothing to check, or several things.",
                "Give one of SCRIPT.py, --module PKG:FUNCTION, --hf CONFIG, --mlir FILE.",
            )
        if mlir is not None and (shard, checkpoint, attention, batch, dtype) != ("none", "none", "tiles", None, None):
            raise CheckError(
                "--shard, --checkpoint, --attention, --batch and --dtype do not go with --mlir.",
                "A StableHLO module says itself how it is spread, and what it computes.",
            )
        targets = [hardware.parse(name) for name in topology.split(",")]
        values = _values(value)
        with stderr.status("Starting") as status:
            how: dict[str, Any] = {"depth": depth, "timeout": timeout, "progress": status.update}
            if mlir is not None:
                report = check_module(mlir, topology=[t.name for t in targets], **how)
            else:
                how |= {"shard": shard, "checkpoint": checkpoint, "values": values, "roll": roll, "fit": fit}
                how["attention"] = attention
                if hf is not None:
                    status.update("Building the model without weights")
                    report = _of_configuration(hf, batch or 1, seq, dtype or "bfloat16", targets, train, how)
                elif module is not None:
                    made = _function(module)()
                    given = made if isinstance(made, tuple) else (made,)
                    how |= {"batch": batch, "dtype": _dtype(dtype), "train": train}
                    report = check(*given, topology=[t.name for t in targets], **how)
                    report.title = f"{module}: {_what(train, checkpoint)}"
                else:
                    from torch_tpu.aot.script import check_script

                    how |= {"batch": batch, "dtype": _dtype(dtype)}
                    report = check_script(Path(script), arguments, targets, **how)
    except Exception as error:
        if with_traceback:
            raise
        if not isinstance(error, CheckError):
            error = CheckError(f"{type(error).__name__}: {error}", "--traceback shows where.")
        stderr.print(f"torch-tpu check: {error.what}", style="red", markup=False, highlight=False, soft_wrap=True)
        if error.advice:
            stderr.print(error.advice, markup=False, highlight=False, soft_wrap=True)
        sys.exit(FAILED)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        check_text.show(report, Console())
    if html is not None:
        from torch_tpu.cli import check_html

        html.write_text(check_html.page(report))
        stderr.print(f"Wrote {html}", highlight=False)
    if failures := _failures(report, names):
        stderr.print(f"torch-tpu check: found: {', '.join(failures)}", style="red", highlight=False)
        sys.exit(FOUND)


def _dtype(name: str | None) -> torch.dtype | None:
    return getattr(torch, name) if name else None


def _what(train: bool, checkpoint: Checkpoint) -> str:
    return ("training step" if train else "forward") + (", layers computed again" if checkpoint == "layer" else "")


def _of_configuration(
    config: str,
    batch: int,
    seq: int | None,
    dtype: str,
    targets: list[hardware.Slice],
    train: bool,
    how: dict[str, Any],
) -> Report:
    from torch_tpu.aot.pretrained import causal_lm

    model, inputs, sequence = causal_lm(config, batch, seq, _dtype(dtype), train)
    report = check(model, example_kwargs=inputs, topology=[t.name for t in targets], train=train, **how)
    what = _what(train, how["checkpoint"])
    report.title = f"{Path(config).name}: {what}, batch {batch}, sequence {sequence}, {dtype}"
    return report
