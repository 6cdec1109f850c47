"""``torch-tpu info``."""

import json
import platform as host
from importlib import metadata

import click
import torch
from rich.console import Console
from rich.table import Table

import torch_tpu


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def facts() -> dict[str, str]:
    """What identifies this installation, by name."""
    found = {
        "torch_tpu": torch_tpu.__version__,
        "torch": torch.__version__,
        "libtpu": _version("libtpu"),
        "Python": host.python_version(),
        "system": f"{host.system()} {host.machine()}",
    }
    try:
        found["plugin"] = torch_tpu.plugin_path()
        found["platform"] = torch_tpu.platform()
        found["devices"] = str(torch.tpu.device_count())
        found["device kind"] = torch.tpu.get_device_name(0)
    except RuntimeError as error:
        found["plugin"] = f"none works: {error}"
    found["mode"] = torch_tpu.get_mode()
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """The plugin, the devices, the versions: what to put in a bug report."""
    found = facts()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # a path is copied whole
    for name, value in found.items():
        table.add_row(name, value)
    Console().print(table)
