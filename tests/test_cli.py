"""The command `torch-tpu`: its subcommands as a user runs them."""

import json

from click.testing import CliRunner

import torch_tpu
from torch_tpu.cli import main


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_help_lists_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert "info" in result.output


def test_info_names_plugin_and_platform():
    result = run("info", "--json")
    found = json.loads(result.output)
    assert found["plugin"] == torch_tpu.plugin_path()
    assert found["platform"] == torch_tpu.platform()


def test_unknown_command_is_refused():
    result = run("inof")
    assert result.exit_code == 2
    assert "No such command 'inof'" in result.output
