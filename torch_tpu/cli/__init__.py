"""The command ``torch-tpu``. Each subcommand is a module of this package, imported only when it is asked for."""

import importlib

import click

import torch_tpu

# name -> what it does, as `torch-tpu --help` lists it. The module of that name holds `command`.
_COMMANDS: dict[str, str] = {
    "check": "Will it run on a TPU, does it fit, how fast would it be? The TPU compiler answers, without a TPU.",
    "info": "The plugin, the devices, the versions: what to put in a bug report.",
    "cache": "Compiled programs on disk: list, verify, prune, export, import, explain a miss.",
    "ops": "How each ATen overload runs on tpu, and what is known about one.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        return importlib.import_module(f"torch_tpu.cli.{name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(torch_tpu.__version__, prog_name="torch-tpu")
def main() -> None:
    """PyTorch on TPU: what is installed and what it can do."""
