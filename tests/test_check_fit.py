"""What would make a program fit: ways that are compiled, of modules, functions and scripts."""

import json
import textwrap

import pytest
import torch
from torch import nn

from tests.marks import needs_libtpu
from tests.test_check_command import check
from torch_tpu import aot
from torch_tpu.aot.compiles import Compiles
from torch_tpu.aot.fit import Room, Way, add_ways_to_fit
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.recompute import recomputing
from torch_tpu.aot.report import Report, StepReport, TargetReport

# 4 GiB of parameters and as much of each of AdamW's states; activations of 16 GiB.
WIDTH, LAYERS, TOKENS = 4096, 8, 65536


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Stack(nn.Module):
    def __init__(self, width=WIDTH, layers=LAYERS, rows=None):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.rows = rows

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x if self.rows is None else x.view(self.rows, x.shape[1])


def checked(net, *inputs, **how):
    (target,) = aot.check(net, *inputs, topology="v5e-1", fit=True, **how).targets
    return {way.options: way for way in target.ways}


# --- which ways, and what is made of their outcomes


def tried(fitting, now, room, refused=()):
    """The ways' options and verdicts where those of ``fitting`` fit, and the others do not."""
    called = []

    def target(way, verdict):
        step = StepReport("", 1, 0, 0, 0, 10, 0, 0, [], verdict)
        return TargetReport(way.topology, "", 1, 1, 16, "quick", [step])

    def report(targets):
        return Report("", "a training step", True, targets, [], [], [], 0, Compiles(1, []), 0, "")

    def answer(way, roll):
        called.append(way)
        if way in refused:
            raise aot.CheckError("It cannot be.")
        return report([target(way, "ok" if way in fitting else "oom")])

    whole = report([target(now, "oom")])
    add_ways_to_fit(whole, now, room, None, answer)
    assert len(called) == len(whole.targets[0].ways) == len(set(called))
    return [(way.options, way.verdict or way.message) for way in whole.targets[0].ways]


ALL = Room(layers=True, float32=True, shard="fsdp")


def test_where_no_saving_suffices_all_are_tried_together_and_then_other_slices():
    assert tried((), Way("v5e:1x1", batch=6), ALL) == [
        ("--checkpoint layer", "oom"),
        ("--batch 3", "oom"),
        ("--dtype bfloat16", "oom"),
        ("--batch 3 --dtype bfloat16 --checkpoint layer", "oom"),
        ("--topology v6e:1x1", "oom"),
        ("--topology v5p:1x1x1", "oom"),
        ("--topology v5e:2x4 --batch 8 --shard fsdp", "oom"),
        ("--topology v5e:2x4 --batch 8 --checkpoint layer --shard fsdp", "oom"),
    ]


def test_what_fits_ends_its_kind():
    fitting = (Way("v5e:1x1", 3), Way("v6e:1x1", 6), Way("v5e:2x4", 8, shard="fsdp"))
    assert tried(fitting, Way("v5e:1x1", batch=6), ALL) == [
        ("--checkpoint layer", "oom"),
        ("--batch 3", "ok"),
        ("--dtype bfloat16", "oom"),
        ("--topology v6e:1x1", "ok"),
        ("--topology v5e:2x4 --batch 8 --shard fsdp", "ok"),
    ]


def test_what_cannot_be_tried_says_why_and_is_left_out_of_the_rest():
    now = Way("v5p:1x1x1", batch=6)
    refused = (Way("v5p:1x1x1", 3), Way("v5p:2x2x2", 8, shard="fsdp"))
    assert tried((), now, ALL, refused) == [
        ("--checkpoint layer", "oom"),
        ("--batch 3", "It cannot be"),
        ("--dtype bfloat16", "oom"),
        ("--dtype bfloat16 --checkpoint layer", "oom"),
        ("--topology v5p:2x2x2 --batch 8 --shard fsdp", "It cannot be"),
    ]


def test_what_cannot_be_told_or_changed_is_not_tried():
    assert tried((), Way("v5p:1x1x1"), Room(layers=False, float32=False, shard="none")) == []
    spread = Way("v5p:2x2x2", batch=8, shard="fsdp")  # a sequence a chip
    assert tried((), spread, Room(layers=False, float32=False, shard="fsdp")) == [
        ("--topology v5p:2x2x4 --batch 16", "oom")
    ]


def test_other_generations_with_more_memory():
    assert [s.name for s in parse("v5e:2x4").with_more_memory()] == ["v6e:2x4", "v5p:2x2x2"]
    assert [s.name for s in parse("v6e-1").with_more_memory()] == ["v5p:1x1x1"]
    assert not list(parse("ironwood").with_more_memory())


# --- layers computed again


def test_layers_computed_again_have_the_same_gradients_and_are_restored():
    torch.manual_seed(0)
    net, x = Stack(8, 3), torch.randn(4, 8)
    net(x).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    calls = []
    net.layers[1].up.register_forward_hook(lambda *_: calls.append(1))
    with recomputing("layer") as verify:
        net(x).square().sum().backward()
        verify()
    assert len(calls) == 2
    for p, grad in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, grad)
    assert "forward" not in vars(net.layers[0])


@pytest.mark.parametrize("net", [nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))])
def test_a_model_without_layers_is_refused_with_a_sentence(net):
    with recomputing("layer") as verify, pytest.raises(aot.CheckError, match="no layers were found"):
        net(torch.zeros(2, 8)).sum().backward()
        verify()


# --- modules and functions


@needs_libtpu
def test_of_a_module_each_way_is_compiled():
    with torch.device("meta"):
        ways = checked(Stack(), torch.zeros(TOKENS, WIDTH), train=True)
    assert list(ways) == [
        "--checkpoint layer",
        "--batch 32768",
        "--dtype bfloat16",
        "--batch 32768 --dtype bfloat16 --checkpoint layer",
        "--topology v6e:1x1",
        "--topology v5p:1x1x1",
        "--topology v5e:2x4 --shard fsdp",
    ]
    assert all(way.verdict in ("ok", "oom") and way.peak > 1 << 30 for way in ways.values())
    for one in ("--batch 32768", "--dtype bfloat16"):
        assert ways["--batch 32768 --dtype bfloat16 --checkpoint layer"].peak < 0.9 * ways[one].peak
    assert ways["--topology v5e:2x4 --shard fsdp"].peak < 16 << 30


@needs_libtpu
def test_a_batch_that_the_model_has_fixed_is_said_so():
    with torch.device("meta"):
        ways = checked(Stack(2 * WIDTH, rows=TOKENS), torch.zeros(TOKENS, 2 * WIDTH))
    half = ways["--batch 32768"]
    assert not half.verdict
    assert half.message.startswith("RuntimeError: shape '[65536, 8192]' is invalid")
    assert "--checkpoint layer" not in ways  # there is no backward
    assert ways["--dtype bfloat16"].peak < 0.6 * ways["--topology v6e:1x1"].peak


@needs_libtpu
def test_of_a_function_without_parameters_only_the_batch_is_halved():
    x = torch.empty(1 << 16, 1 << 16, device="meta")
    ways = checked(lambda a, b: (a @ b.t()).softmax(1), x, x)
    assert list(ways) == ["--batch 32768", "--topology v6e:1x1", "--topology v5p:1x1x1"]
    ways = checked(lambda a, b: (a @ b).softmax(1), x[:, :64], x[:64])
    assert list(ways) == ["--topology v6e:1x1", "--topology v5p:1x1x1"]


def test_a_batch_that_cannot_be_told_is_refused():
    with pytest.raises(aot.CheckError, match="no first dimension in common"):
        aot.check(lambda a, b: a @ b, torch.zeros(2, 3), torch.zeros(3, 4), batch=1)


# --- scripts

TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from tests.test_check_fit import Block

    model = nn.Sequential(nn.Embedding(16, 2048), *(Block(2048) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.zeros(6000, 64, dtype=torch.int64))
    for (ids,) in DataLoader(data, 2000):
        loss = (model(ids.cuda()) - 1).square().mean()
        loss.backward()
        print("loss", loss.item())
        optimizer.step()
        optimizer.zero_grad()
"""


@needs_libtpu
def test_of_a_script_each_way_is_compiled(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    done = check("--json", "--topology", "v5e-1", script)
    assert done.returncode == 0, done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert len(target["steps"]) == 2
    ways = {way["options"]: way for way in target["ways"]}
    assert list(ways)[:3] == ["--checkpoint layer", "--batch 1000", "--dtype bfloat16"]
    assert all(way["verdict"] in ("ok", "oom") for way in ways.values()), ways
    spread = ways["--topology v5e:2x4 --shard fsdp"]
    assert spread["verdict"] == "ok"
    assert 1 << 30 < spread["peak"] < 16 << 30
    assert done.stderr.count("loss") == 3  # of the first run alone
    (alone,) = json.loads(check("--topology", "v5e-1", "--batch", "1000", "--json", "--no-fit", script).stdout)[
        "targets"
    ]
    assert alone["ways"] == []
    assert max(step["memory"]["peak"] for step in alone["steps"]) == ways["--batch 1000"]["peak"]
