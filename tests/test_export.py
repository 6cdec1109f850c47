"""torch.export programs on tpu, and torch_tpu.export: a file that another process loads."""

import json
import zipfile

import pytest
import torch

import torch_tpu
from tests.process import run_python


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale):
        self.calls.add_(1)
        y = self.norm(self.first(x)).relu()
        return {"all": y.t(), "sum": y.sum(1) * scale + 0.1, "part": y[1:, 2:4]}


def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(3, 4), torch.tensor(2.0))


def test_an_exported_program_runs_on_tpu():
    model, args = make()
    with torch.no_grad():
        expected = model(*args)
    there = torch.export.export(model.to("tpu"), tuple(x.to("tpu") for x in args)).module()
    got = there(*(x.to("tpu") for x in args))
    torch.testing.assert_close({k: v.cpu() for k, v in got.items()}, expected)


def test_a_file_gives_the_same_values_in_a_fresh_process(tmp_path):
    model, args = make()
    path = tmp_path / "net.tpu"
    torch_tpu.export(model, args, path)
    torch.save((args, model(*args)), tmp_path / "values.pt")
    code = """
        import torch, torch_tpu
        args, expected = torch.load("values.pt")
        net = torch_tpu.load_exported("net.tpu")
        for calls in (1, 2):
            got = net(*args)
            torch.testing.assert_close({k: v.cpu() for k, v in got.items()}, expected)
            assert net.weights["calls"].item() == calls
        print(sorted(net.weights))
    """
    import os

    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        names = run_python(code)
    finally:
        os.chdir(here)
    assert "first.weight" in names
    assert "norm.running_mean" in names


def test_the_file_names_its_weights_in_the_order_that_main_takes_them(tmp_path):
    model, args = make()
    torch_tpu.export(model.to("tpu"), tuple(x.to("tpu") for x in args), tmp_path / "net.tpu")
    with zipfile.ZipFile(tmp_path / "net.tpu") as file:
        manifest = json.loads(file.read("manifest.json"))
        text = file.read("program.mlir").decode()
    names = [w["name"] for w in manifest["weights"]]
    assert names[:2] == ["first.weight", "first.bias"]
    assert "func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<8xf32>" in text


def test_inputs_of_other_sizes_are_refused(tmp_path):
    model, args = make()
    torch_tpu.export(model, args, tmp_path / "net.tpu")
    net = torch_tpu.load_exported(tmp_path / "net.tpu")
    with pytest.raises(ValueError, match="input 0"):
        net(torch.randn(5, 4), args[1])


def test_a_program_that_draws_random_numbers_is_refused(tmp_path):
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    with pytest.raises(ValueError, match="random"):
        torch_tpu.export(Noisy(), (torch.ones(2),), tmp_path / "net.tpu")
