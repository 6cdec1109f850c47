"""Programs annotated for the devices of a slice, as FSDP cuts them."""

import re

import pytest
import torch

from tests.decoder import Decoder
from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.sharding import spread
from torch_tpu.aot.sharding.text import dims_of


def training_step(batch=16):
    net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
    with aot.topology("v6e:2x2") as recording:
        net.to("tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2):
            net(torch.zeros(batch, 256).to("tpu")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return recording.programs[-1]


def fsdp(program, devices):
    return spread([program], "fsdp", devices).modules[0]


def test_types_are_read():
    assert dims_of("tensor<8x16xbf16>") == (8, 16)
    assert dims_of("tensor<f32>") == ()


def test_parameters_are_cut_and_inputs_by_the_batch():
    program = training_step()
    header = next(line for line in fsdp(program, 4).splitlines() if "@main(" in line)
    cuts = re.findall(r'%(\d+): tensor<(\S+)> \{mhlo\.sharding = "([^"]*)"', header)
    by_name = {a.name: cuts[i][2] for i, a in enumerate(program.arguments)}
    assert by_name["0.weight"] == "{devices=[4,1]<=[4]}"
    assert by_name["2.weight"] == "{devices=[1,4]<=[4]}"
    assert by_name["exp_avg of 2.weight"] == by_name["2.weight"]
    assert by_name[""] == "{devices=[4,1]<=[4]}"


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(aot.CheckError, match="a batch of 6 does not divide among 4 devices"):
        fsdp(training_step(batch=6), 4)


def test_stacks_of_layers_are_cut_as_their_members():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(5)])
    with aot.topology("v6e:2x2", roll=True) as recording:
        net.to("tpu")
        optimizer = torch.optim.SGD(net.parameters())
        net(torch.zeros(16, 256).to("tpu")).square().mean().backward()
        optimizer.step()
    program = recording.programs[-1]
    assert program.loops
    header = next(line for line in fsdp(program, 4).splitlines() if "@main(" in line)
    cuts = dict(re.findall(r'%(\d+): tensor<\S+> \{mhlo\.sharding = "([^"]*)"', header))
    by_name = {a.name: cuts[str(i)] for i, a in enumerate(program.arguments)}
    assert by_name["*.0.weight"] == "{devices=[1,4,1]<=[4]}"


def test_the_batch_is_that_of_the_inputs_with_most_dimensions():
    net = torch.nn.Linear(8, 8)
    with aot.topology("v6e:2x2", on_read="assume") as recording:
        net.to("tpu")
        positions = torch.zeros(6, dtype=torch.int64).to("tpu")
        net(torch.zeros(4, 6, 8).to("tpu") + positions.unsqueeze(1)).sum().item()
    text = fsdp(recording.programs[-1], 4)
    assert 'tensor<4x6x8xf32> {mhlo.sharding = "{devices=[4,1,1]<=[4]}"' in text


def test_small_arrays_stay_whole():
    program = training_step()
    header = next(line for line in fsdp(program, 4).splitlines() if "@main(" in line)
    cuts = dict(re.findall(r'%(\d+): tensor<\S+> \{mhlo\.sharding = "([^"]*)"', header))
    by_name = {a.name: cuts[str(i)] for i, a in enumerate(program.arguments)}
    assert by_name["0.bias"] == by_name["exp_avg of 0.bias"] == "{replicated}"


@needs_libtpu
def test_a_device_holds_its_share():
    net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
    x = torch.empty(64, 1024, device="meta")
    whole = aot.check(net, x, train=True, topology="v6e:2x2").targets[0].steps[0]
    cut = aot.check(net, x, train=True, topology="v6e:2x2", shard="fsdp").targets[0].steps[0]
    assert cut.verdict == "ok", cut.message
    assert cut.memory.arguments < 0.3 * whole.memory.arguments
    assert cut.time.link_bytes > 0
    assert cut.time.flops == pytest.approx(whole.time.flops / 4, rel=0.1)


@needs_libtpu
@pytest.mark.parametrize("slice_", ["v6e:2x4", "v6e:4x4", "v6e:8x8"])
def test_each_of_n_devices_computes_a_share_gathers_weights_and_scatters_gradients(slice_):
    with torch.device("meta"):
        net = Decoder().to(torch.bfloat16)
    n = parse(slice_).devices

    def step(sequences, **how):
        ids = torch.empty(sequences, 1024, dtype=torch.int64, device="meta")
        (found,) = aot.check(net, ids, train=True, **how).targets[0].steps
        assert found.verdict == "ok", found.message
        return found

    alone = step(1, topology="v6e:1x1")
    shared = step(n, topology=slice_, shard="fsdp")
    assert shared.time.flops == pytest.approx(alone.time.flops, rel=0.02)
    assert shared.memory.arguments == pytest.approx(alone.memory.arguments / n, rel=0.05)
    # Weights come in for the forward and again for the backward, in two bytes; gradients are summed up in four.
    parameters = sum(p.numel() for p in net.parameters())
    assert shared.time.link_bytes == pytest.approx((2 * 2 + 4) * parameters * (n - 1) / n, rel=0.15)
    # A device writes and reads the weights it gathers, and its share of gradients and state: no more than it would alone.
    assert shared.time.bytes < 1.1 * alone.time.bytes
