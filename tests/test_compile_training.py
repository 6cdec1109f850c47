"""Whole training steps under torch.compile: values, state, and how often something is compiled."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_tpu


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiles() -> int:
    return torch_tpu.counters()["compiles"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def batches(n: int, size: int = 8):
    torch.manual_seed(1)
    return [(torch.randn(size, 6), torch.randint(0, 3, (size,))) for _ in range(n)]


def same_state(a: nn.Module, b: nn.Module) -> None:
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(x.cpu(), y.cpu(), rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


OPTIMIZERS = {
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, steps on the device": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=p[0].device.type == "tpu"),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_its_optimizer_in_one_compiled_function(name):
    host = network()
    model = copy.deepcopy(host).to("tpu")

    def stepper(model):
        optimizer = OPTIMIZERS[name](list(model.parameters()))

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    plain, step = stepper(host), torch.compile(stepper(model))
    for x, y in batches(4):
        torch.testing.assert_close(step(x.to("tpu"), y.to("tpu")).cpu(), plain(x, y), rtol=1e-4, atol=1e-5)
    same_state(model, host)


def test_forward_and_backward_are_one_graph(monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "trace_autograd_ops", True)
    host = network()
    model = copy.deepcopy(host).to("tpu")

    def gradients(model, x, y):
        return torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))

    compiled = torch.compile(gradients, fullgraph=True)
    ((x, y),) = batches(1)
    before = compiles()
    got = compiled(model, x.to("tpu"), y.to("tpu"))
    assert compiles() - before == 1
    for a, b in zip(got, gradients(host, x, y), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


def test_two_hundred_steps_compile_for_two_batch_sizes_only():
    model = network().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    compiled = torch.compile(model)
    full, last = batches(1, 16)[0], batches(1, 10)[0]
    seen = []
    for i in range(200):
        x, y = (t.to("tpu") for t in (last if i in (70, 150) else full))
        loss = F.cross_entropy(compiled(x), y) * (1 + 0.01 * i)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seen.append(compiles())
    assert seen[69] == seen[5]  # a schedule and changing factors compile nothing
    assert seen[149] - seen[69] <= seen[5]  # the other size, once
    assert seen[199] == seen[149]


@pytest.mark.parametrize("mode", ["strict", "defer"])
def test_two_hundred_steps_of_eager_mode_compile_for_two_batch_sizes_only(mode):
    with torch_tpu.mode(mode):
        model = network().to("tpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
        full, last = batches(1, 16)[0], batches(1, 10)[0]
        seen = []
        for i in range(200):
            x, y = (t.to("tpu") for t in (last if i in (70, 72, 150) else full))
            loss = F.cross_entropy(model(x), y) * (1 + 0.01 * i)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            torch.tpu.synchronize()
            seen.append(compiles())
    assert seen[69] == seen[5]
    assert seen[199] == seen[149]


def test_a_python_number_that_changes_compiles_once_more_only():
    compiled = torch.compile(lambda x, scale: x * scale + scale, fullgraph=True)
    x = torch.ones(4, device="tpu")
    counts = []
    for i in range(8):
        scale = 0.1 * i
        torch.testing.assert_close(compiled(x, scale).cpu(), torch.ones(4) * scale + scale)
        counts.append(compiles())
    assert counts[-1] == counts[1]


def test_autocast():
    host = network()
    model = copy.deepcopy(host).to("tpu")

    def loss(model, x, device):
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(x).float().square().mean()

    ((x, _),) = batches(1)
    got = torch.compile(loss)(model, x.to("tpu"), "tpu")
    got.backward()
    expected = loss(host, x, "cpu")
    expected.backward()
    torch.testing.assert_close(got.cpu(), expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(model[0].weight.grad.cpu(), host[0].weight.grad, rtol=5e-2, atol=2e-2)


def test_activation_checkpointing_repeats_its_dropout():
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5)).to("tpu")

    def loss(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum()

    x = torch.ones(1, 6, device="tpu", requires_grad=True)
    out = torch.compile(lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False))(x)
    out.sum().backward()
    kept = (out != 0).float()  # the mask of the forward pass must be that of the backward pass
    torch.testing.assert_close(x.grad.cpu(), (2 * kept @ model[0].weight).detach().cpu(), rtol=1e-4, atol=1e-4)


def test_gradients_of_views_that_share_a_storage():
    def f(x):
        a, b = x.sin().split(2, -1)
        return (b * b.exp()).sum() + (a[1:] ** 3).sum()

    x = torch.randn(3, 4)
    there = x.to("tpu").requires_grad_()
    torch.compile(f, fullgraph=True)(there).backward()
    x.requires_grad_()
    f(x).backward()
    torch.testing.assert_close(there.grad.cpu(), x.grad)
