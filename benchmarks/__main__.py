"""Prints figures side by side, measured in turn in one run: quote the ratios, machines are noisy.

    python -m benchmarks                             # all, which takes a while
    python -m benchmarks gpt decode --json out.json
    python -m benchmarks gpt mlp --svg plots         # a plot a benchmark

CPU torch and inductor are measured beside it, JAX where it is installed. Each figure is the median of several rounds, in
which the candidates take turns; each benchmark runs in a process of its own.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks import host, memory, starting, training

ROOT = Path(__file__).parent.parent
QUIET = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
ALL = {
    f.__name__: f
    for f in (
        host.imports,
        host.package,
        host.dispatch,
        host.chain,
        host.call,
        host.mlp,
        training.gpt,
        training.resnet,
        training.lstm,
        training.decode,
        starting.start,
        memory.optimizer,
        memory.peak,
        memory.growth,
    )
}


def setup() -> dict[str, str]:
    """What the figures depend on."""
    import importlib.metadata

    import torch

    import torch_tpu

    found = {}
    for package in ("torch", "jax", "transformers"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "processor": f"{processor}, {len(os.sched_getaffinity(0))} in use, load {os.getloadavg()[0]:.1f}",
        "plugin": f"{torch_tpu.platform()}: {Path(torch_tpu.plugin_path()).parent.name}",
        "device": torch.tpu.get_device_name(),
        "Python": platform.python_version(),
    } | found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(ALL)} (default: all)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="also plot each benchmark, as DIR/NAME.svg")
    parser.add_argument("--from", type=Path, dest="earlier", metavar="JSON", help="show an earlier run's figures")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.names) - set(ALL):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(ALL)}")
    if args.child:
        print(json.dumps(setup() if not args.names else ALL[args.names[0]]()))
        return
    if args.svg:
        from benchmarks import plots

    from rich.console import Console
    from rich.table import Table

    console = Console()

    def child(*names: str) -> dict:
        command = [sys.executable, "-m", "benchmarks", "--child", *names]
        env = {**QUIET, **os.environ}
        out = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        if out.returncode != 0:
            return {"failed": f"exit status {out.returncode}"}
        return json.loads(out.stdout.splitlines()[-1])

    earlier = json.loads(args.earlier.read_text()) if args.earlier else None
    figures = {"setup": earlier["setup"] if earlier else child()}
    names = args.names or [name for name in ALL if earlier is None or name in earlier]
    for name in names:
        with console.status(f"measuring {name} …"):
            figures[name] = earlier[name] if earlier else child(name)
    table = Table("benchmark", "figure", "value", caption="; ".join(f"{k}: {v}" for k, v in figures["setup"].items()))
    for name in names:
        table.add_section()
        table.add_row(f"[bold]{name}[/bold]", f"[dim]{ALL[name].__doc__}[/dim]", "")
        for label, value in figures[name].items():
            table.add_row("", label, f"{value:.3g}" if isinstance(value, (int, float)) else str(value))
        if not figures[name]:
            table.add_row("", "not measured: a package that it needs is not installed", "")
    console.print(table)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    if args.svg:
        for path in plots.write(figures, {name: ALL[name].__doc__ for name in names}, args.svg):
            console.print(f"wrote {path}")
    if any("failed" in figures[name] for name in names):
        sys.exit(1)


if __name__ == "__main__":
    main()
