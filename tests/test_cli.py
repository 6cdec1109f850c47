"""The command `torch-tpu`: its subcommands as a user runs them."""

import csv
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


def test_ops_lists_every_overload_and_the_rule():
    lines = run("ops").output.splitlines()
    assert any(line.startswith("native") and "aten::add.Tensor " in line and "binary.cpp" in line for line in lines)
    assert f"{len(torch_tpu.ops())} overloads of ATen ops:" in lines
    assert any("PyTorch's own kernel answers" in line for line in lines)


def test_ops_filters():
    lines = [
        line.split() for line in run("ops", "--how", "fallback", "--how", "none").output.split("\n\n")[0].splitlines()
    ]
    assert {line[0] for line in lines} == {"fallback", "none"}
    assert [line[1] for line in lines] == [op.name for op in torch_tpu.ops(["fallback", "none"])]


def test_ops_as_json_and_csv_say_the_same():
    data = json.loads(run("ops", "--json").output)
    table = list(csv.DictReader(run("ops", "--csv").output.splitlines()))
    assert len(data["ops"]) == len(table) == sum(data["totals"].values())
    assert {row["name"]: row["how"] for row in table} == {op["name"]: op["how"] for op in data["ops"]}
    assert set(data["rule"]) == set(data["totals"])


def test_ops_explains_one_overload():
    output = run("ops", "add_.Tensor").output
    assert output.startswith("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)")
    assert "row aten::add.Tensor in csrc/lowerings/binary.cpp" in output
    assert "TPU compiler, float32: ok" in output


def test_ops_explains_all_overloads_of_a_name():
    output = run("ops", "matmul").output
    assert "aten::matmul(" in output and "aten::matmul.out(" in output
    assert "calls (traced): " in output


def test_ops_names_what_is_near_an_unknown_op():
    result = run("ops", "matmull")
    assert result.exit_code == 1
    assert "no ATen op 'matmull'" in result.output and "Near it: matmul" in result.output
