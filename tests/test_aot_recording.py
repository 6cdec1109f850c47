"""torch_tpu.aot records what user code would run, on tensors that have no data."""

import re

import pytest
import torch

import torch_tpu.compile  # noqa: F401
from tests.process import run_python
from torch_tpu import aot


def model():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def test_nothing_runs_and_the_program_is_kept():
    before = aot.recording._C.counters()["compiles"]
    with aot.topology("v6e:1x1") as recording:
        a = torch.randn(2, 2, device="tpu")
        b = a @ a
    assert aot.recording._C.counters()["compiles"] == before
    assert b.shape == (2, 2)
    (program,) = recording.programs
    assert "aten::mm" in program.rows
    assert "stablehlo.dot_general" in program.module


def test_a_recorded_tensor_has_no_data_afterwards():
    with aot.topology("v6e"):
        a = torch.ones(2, device="tpu")
    with pytest.raises(RuntimeError, match="no data"):
        a.cpu()
    with pytest.raises(RuntimeError, match="nothing runs"):
        (a + 1).cpu()


def test_eager_is_itself_again_after_a_block():
    with aot.topology("v6e"):
        torch.ones(3, device="tpu").sum()
    assert (torch.ones(3, device="tpu") * 2).sum().item() == 6


def test_a_training_loop_is_one_program_that_came_again():
    net, data = model(), torch.randn(5, 8)
    with aot.topology("v6e") as recording:
        net.to("tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(4):
            net(data.to("tpu")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    steady = recording.programs[-1]
    assert steady.runs == 3
    assert steady.ended_by == "an optimizer's step"
    named = {a.name for a in steady.arguments}
    assert {"0.weight", "exp_avg of 2.bias"} <= named
    assert "gradient of 0.weight" in {r.name for r in steady.results}
    assert all(a.donated for a in steady.arguments if a.name == "exp_avg_sq of 0.weight")
    assert steady.host_bytes == 5 * 8 * 4


def test_making_parameters_is_a_program_of_its_own():
    with aot.topology("v6e") as recording:
        with torch.device("tpu"):
            net = model()
        out = net(torch.zeros(1, 8, device="tpu"))
        recording.cut()
        del out
    assert [p.is_setup for p in recording.programs] == [True, False]


def test_meta_modules_move_and_keep_tied_weights():
    with torch.device("meta"):
        net = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
        net["b"].weight = net["a"].weight
    with aot.topology("v6e"):
        net.to("tpu")
        assert net["a"].weight.device.type == "tpu"
        assert net["a"].weight is net["b"].weight


def test_unwritten_parameters_are_arguments_not_zeros():
    with torch.device("meta"):
        net = torch.nn.Linear(4, 4)
    with aot.topology("v6e") as recording:
        net.to_empty(device="tpu")
        y = net(torch.zeros(2, 4, device="tpu"))
        recording.cut()
        del y
    assert {"weight", "bias"} <= {a.name for a in recording.programs[-1].arguments}


def test_a_read_raises_and_names_the_line():
    with aot.topology("v6e") as recording:
        x = torch.ones(3, device="tpu").sum()
        with pytest.raises(RuntimeError, match=r"host reads a value .*test_aot_recording\.py:\d+"):
            x.item()
    (finding,) = recording.findings
    assert finding.kind == "host read"
    assert "test_aot_recording.py" in finding.where


def test_reads_get_given_or_assumed_values():
    with aot.topology("v6e", on_read="assume") as recording:
        x = torch.ones(3, device="tpu")
        assert x.sum().item() == 0.0
        assert not x.isnan().any()
        assert x.nonzero().shape == (1, 1)
    assert sum(f.count for f in recording.findings) == 3
    line = recording.findings[0].where.rsplit("/", 1)[1]
    file, number = line.split(":")
    given = {f"{file}:{n}": 7 for n in range(int(number), int(number) + 40)}
    with aot.topology("v6e", values=given):
        assert torch.ones(3, device="tpu").sum().item() == 7


def test_locations_name_module_op_and_lines():
    net = model()
    with aot.topology("v6e") as recording:
        net.to("tpu")
        for _ in range(2):
            net(torch.zeros(5, 8, device="tpu")).sum().backward()
            recording.cut()
    module = recording.programs[-1].module
    assert 'loc("Sequential.0/aten.addmm"' in module
    assert 'loc("Sequential.2/backward/aten.mm"' in module
    assert "test_aot_recording.py" in module
    assert 'loc("0.weight")' in module


def test_values_alive_beside_a_program_are_counted():
    with aot.topology("v6e") as recording:
        kept = torch.zeros(1024, device="tpu") + 1
        recording.cut()
        y = torch.zeros(4, device="tpu") + 2
        recording.cut()
        del kept, y
    assert recording.programs[-1].resident_bytes == 4096


def test_blocks_do_not_nest():
    with aot.topology("v6e"), pytest.raises(aot.CheckError, match="recording already"), aot.topology("v6e"):
        pass


def test_an_op_without_a_row_is_reported(monkeypatch):
    with aot.topology("v6e") as recording:
        x = torch.ones(4, 4, device="tpu")
        torch.library.opcheck  # noqa: B018
        y = torch.ops.aten._linalg_eigvals(x)
        assert y.shape == (4,)
        recording.cut()
    found = [f for f in recording.findings if f.kind == "unsupported"]
    assert [f.what.split("(")[0] for f in found] == ["aten::_linalg_eigvals"]


def test_compiled_functions_are_recorded():
    with aot.topology("v6e") as recording:
        f = torch.compile(lambda x: (x * 2).tanh(), backend="tpu")
        y = f(torch.ones(4, device="tpu"))
        recording.cut()
        del y
    assert any("aten::tanh" in p.rows for p in recording.programs)


@pytest.mark.slow
def test_parameters_of_eight_billion_take_no_memory():
    grown = run_python(
        """
        import resource, torch
        from torch_tpu import aot
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        with aot.topology("v6e"):
            torch.nn.Linear(8, 8, device="tpu")
            before = peak()
            with torch.device("tpu"):
                layers = [torch.nn.Linear(4096, 14336, bias=False, dtype=torch.bfloat16) for _ in range(140)]
        assert sum(p.numel() for l in layers for p in l.parameters()) > 8e9
        print(peak() - before)
        """
    )
    assert int(grown) <= 200


def test_arguments_of_distributions_count_as_valid():
    with aot.topology("v6e", on_read="assume") as recording:
        # Dynamo turns validation off, for all that follows.
        entropy = torch.distributions.Categorical(torch.rand(2, 3, device="tpu"), validate_args=True).entropy()
        recording.cut()
    assert entropy.shape == (2,)
    assert [f.kind for f in recording.findings] == ["host read"]


@pytest.mark.parametrize("divide", [torch.floor_divide, torch.remainder, torch.fmod, torch.gcd])
def test_64_bit_integers_are_not_divided_by_a_tpu(divide):
    with aot.topology("v6e") as recording:
        x = torch.arange(8, device="tpu")
        divide(x, x + 1)
    module = recording.programs[-1].module
    found = re.findall(r'"stablehlo\.(?:divide|remainder)".* -> tensor<(.*)>', module)
    assert set(found) == {"8xf32"}
