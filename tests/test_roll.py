"""Layers that repeat, as a loop: the numbers are those of the program with one layer after the other."""

import re

import pytest
import torch

from torch_tpu import aot

LAYERS = 5


class Block(torch.nn.Module):
    def __init__(self, size, dropout=0.0):
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.up = torch.nn.Linear(size, 2 * size)
        self.down = torch.nn.Linear(2 * size, size)
        self.query, self.key = torch.nn.Linear(size, size, bias=False), torch.nn.Linear(size, size, bias=False)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x):
        x = x + torch.nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), x)
        return x + self.down(self.dropout(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Net(torch.nn.Module):
    def __init__(self, layers=LAYERS, size=16, checkpoint=False, dropout=0.0):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, size)
        self.layers = torch.nn.ModuleList(Block(size, dropout) for _ in range(layers))
        self.head = torch.nn.Linear(size, 32)
        self.checkpoint = checkpoint

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if self.checkpoint else layer(x)
        return self.head(x)


def tokens():
    return torch.arange(24).reshape(2, 12).remainder(32)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().to("tpu")


def loops(module):
    return module.count('"stablehlo.while"')


def compiled(function):
    """The function compiled with rolled layers, and a list that gets the modules of its graphs."""
    from torch._dynamo.backends.common import aot_autograd

    import torch_tpu.compile as backend

    torch._dynamo.reset()
    graphs = []

    def compile_graph(graph, inputs):
        run = backend._compile_graph(graph, inputs, saved={}, roll_layers=True)
        graphs.append(run)
        return run

    return torch.compile(function, backend=aot_autograd(fw_compiler=compile_graph)), graphs


def modules(graphs):
    return [m for g in graphs for m in g.modules()]


def test_a_forward_is_one_loop_with_the_same_numbers(net):
    expected = torch.compile(net, backend="tpu")(tokens().to("tpu"))
    rolled, graphs = compiled(net)
    with torch.no_grad():
        result = rolled(tokens().to("tpu"))
    torch.testing.assert_close(result.cpu(), expected.detach().cpu(), rtol=1e-6, atol=1e-6)
    (module,) = modules(graphs)
    assert loops(module) == 1
    assert module.count("callee = @gelu") == 1


def test_the_option_of_torch_compile_rolls(net):
    torch._dynamo.reset()
    net.double()  # a loop and eager calls are fused otherwise, which shows in float32
    x = tokens().to("tpu")
    result = torch.compile(net, backend="tpu", options={"roll_layers": True})(x)
    torch.testing.assert_close(result.detach().cpu(), net(x).detach().cpu(), rtol=1e-6, atol=1e-6)


def test_forward_and_backward_are_loops_with_the_same_gradients(net):
    x = tokens().to("tpu")
    torch.compile(net, backend="tpu")(x).square().mean().backward()
    expected = {name: p.grad.cpu() for name, p in net.named_parameters()}
    net.zero_grad()
    rolled, graphs = compiled(net)
    rolled(x).square().mean().backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad.cpu(), expected[name], rtol=1e-5, atol=1e-7, msg=name)
    forward, backward = modules(graphs)
    assert loops(forward) == loops(backward) == 1


class Normed(torch.optim.Optimizer):
    """Of each parameter by itself, but not of its elements: a step is as long as the parameter, with momentum."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
            state["momentum"].mul_(0.9).add_(p.grad * (p.norm() / (p.grad.norm() + 1e-3)))
            p.sub_(state["momentum"], alpha=0.1)


OPTIMIZERS = {
    "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, capturable=True, foreach=True),
    "one by one": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, capturable=True, foreach=False),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "normed": Normed,
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_step_is_calls_over_stacks_or_a_loop_with_the_same_numbers(net, kind):
    optimizer = OPTIMIZERS[kind](net.parameters())
    net(tokens().to("tpu")).square().mean().backward()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer.step()
    expected = {name: p.detach().cpu() for name, p in net.named_parameters()}
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(before[name])
            for state in optimizer.state[p].values():
                state.zero_()
    rolled, graphs = compiled(optimizer.step)
    rolled()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.detach().cpu(), expected[name], rtol=1e-6, atol=1e-7, msg=name)
    text = "".join(modules(graphs))
    if kind == "normed":
        assert loops(text) == 1
        assert "_over_stacks" not in text
    else:
        assert loops(text) == 0
        assert "_over_stacks" in text


def test_random_draws_are_those_of_the_layers_one_by_one():
    torch.manual_seed(0)
    net = Net(dropout=0.5).to("tpu")
    x = tokens().to("tpu")
    results = []
    for roll in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(1)
        run = torch.compile(net, backend="tpu", options={"roll_layers": roll})
        with torch.no_grad():
            results.append([run(x).cpu(), run(x).cpu()])
    for plain, rolled in zip(*results, strict=True):
        torch.testing.assert_close(rolled, plain, rtol=1e-6, atol=1e-6)
    assert not torch.equal(results[1][0], results[1][1])


def test_numbers_that_differ_by_layer_stay_with_their_layer():
    def scaled(x):
        for i in range(6):
            x = torch.add(torch.sin(x * (0.5 + i)), x, alpha=0.25 * i + 0.1).tanh() + 0.125
        return x

    x = torch.linspace(-1, 1, 7, device="tpu")
    rolled, graphs = compiled(scaled)
    torch.testing.assert_close(rolled(x).cpu(), scaled(x.cpu()), rtol=1e-5, atol=1e-5)
    assert [loops(m) for m in modules(graphs)] == [1]


def test_a_value_of_every_layer_can_be_returned():
    def all_of(x, weights):
        found = []
        for w in weights:
            x = torch.tanh(x @ w) + torch.sin(x)
            found.append(x * 2)
        return x, found, found[1] + 1

    weights = [torch.eye(3, device="tpu") * (i + 1) / 4 for i in range(5)]
    x = torch.ones(2, 3, device="tpu")
    expected = all_of(x.cpu(), [w.cpu() for w in weights])
    rolled, graphs = compiled(all_of)
    last, found, more = rolled(x, weights)
    assert [loops(m) for m in modules(graphs)] == [1]
    torch.testing.assert_close(last.cpu(), expected[0])
    torch.testing.assert_close([f.cpu() for f in found], expected[1])
    torch.testing.assert_close(more.cpu(), expected[2])


def test_what_comes_twice_or_is_short_is_no_loop():
    def twice(x):
        for _ in range(2):
            x = torch.tanh(torch.sin(x) + torch.cos(x) * torch.exp(x))
        return x

    rolled, graphs = compiled(twice)
    rolled(torch.ones(3, device="tpu"))
    assert [loops(m) for m in modules(graphs)] == [0]


def training_step(checkpoint, roll=True, layers=LAYERS, optimizer=torch.optim.AdamW, norm=False):
    net = Net(layers, checkpoint=checkpoint)
    if norm:  # before the head, so that the backward of all layers is the same
        net.head = torch.nn.Sequential(torch.nn.LayerNorm(16), net.head)
    with aot.topology("v6e:2x2", roll=roll, on_read="assume") as recording:
        net.to("tpu")
        optimizer = optimizer(net.parameters())
        for _ in range(2):
            net(tokens().to("tpu")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return recording.programs[-1]


@pytest.mark.parametrize(("checkpoint", "fused"), [(False, False), (True, False), (False, True)])
def test_a_recorded_training_step_is_two_loops_over_stacked_parameters_and_calls_over_them(checkpoint, fused):
    program = training_step(checkpoint, optimizer=lambda parameters: torch.optim.AdamW(parameters, fused=fused))
    assert loops(program.module) == 2
    forward, backward, optimizer = (times for _, times in program.loops)
    assert forward == optimizer == LAYERS
    assert backward >= LAYERS - 1  # the layer that the gradient meets first may differ
    names = {a.name: a for a in program.arguments}
    weight = names["layers.*.up.weight"]
    assert (weight.type, weight.stacked, weight.donated) == (f"tensor<{LAYERS}x32x16xf32>", LAYERS, True)
    assert names["exp_avg of layers.*.up.weight"].donated
    assert not any(re.search(r"layers\.\d", name) for name in names)


def test_a_loop_of_an_optimizer_overwrites_its_stacks():
    program = training_step(True, optimizer=Normed)
    main = program.module[: program.module.index("func.func private")]
    carried = re.findall(r'"stablehlo\.while"\(([^)]*)\)', main)[-1].split(", ")
    donated = [f"%{i}" for i, a in enumerate(program.arguments) if a.stacked and a.name.startswith("momentum")]
    assert donated
    assert set(donated) <= set(carried)
    assert "optimization_barrier" in main


def test_calls_over_stacks_give_them_back_in_their_buffers():
    program = training_step(False, norm=True)
    assert [times for _, times in program.loops] == 3 * [LAYERS]
    main = program.module[: program.module.index("func.func private")]
    state = [i for i, a in enumerate(program.arguments) if a.stacked and a.name.startswith("exp_avg")]
    assert state
    for i in state:
        assert program.arguments[i].donated
        assert re.search(rf'"func\.call"\([^)]*%{i}[,)].*_over_stacks_', main)
    gradients = re.findall(r'(%\d+) = "stablehlo\.custom_call"\(%\d+\) <\{call_target_name = "LayoutConstraint"', main)
    assert gradients
    for gradient in gradients:
        assert re.search(rf'"func\.call"\([^)]*{gradient}[,)].*_over_stacks_', main)


def test_a_model_with_layers_of_two_kinds_rolls_in_pairs():
    def alternating(x):
        for i in range(8):
            x = torch.tanh(x) + torch.sin(x) if i % 2 else torch.relu(x) * 0.5 - torch.cos(x)
        return x

    x = torch.linspace(-1, 1, 7, device="tpu")
    rolled, graphs = compiled(alternating)
    torch.testing.assert_close(rolled(x).cpu(), alternating(x.cpu()), rtol=1e-6, atol=1e-6)
    assert [loops(m) for m in modules(graphs)] == [1]


def test_values_that_skip_a_layer_are_right():
    def skipping(x):
        before = x
        for _ in range(6):
            before, x = x, torch.tanh(x) + torch.sin(x) * torch.cos(before)
        return x, before

    x = torch.linspace(-1, 1, 7, device="tpu")
    rolled, _ = compiled(skipping)
    torch.testing.assert_close([r.cpu() for r in rolled(x)], list(skipping(x.cpu())), rtol=1e-6, atol=1e-6)


def test_the_text_does_not_grow_with_depth():
    assert len(training_step(True, layers=12).module) < 1.1 * len(training_step(True, layers=4).module)
    unrolled = training_step(True, roll=False, layers=12)
    assert not unrolled.loops
    assert "stablehlo.while" not in unrolled.module


def test_one_loop_can_begin_with_what_another_made():
    def two(x):
        for _ in range(4):
            x = torch.tanh(torch.sin(x) + torch.cos(x) * x)
        between = torch.exp(x)
        for _ in range(4):
            x = torch.relu(x * x - torch.sin(x)) + between
        return x, between

    x = torch.linspace(-1, 1, 7, device="tpu")
    rolled, graphs = compiled(two)
    torch.testing.assert_close([r.cpu() for r in rolled(x)], list(two(x.cpu())), rtol=1e-5, atol=1e-5)
    assert [loops(m) for m in modules(graphs)] == [2]
