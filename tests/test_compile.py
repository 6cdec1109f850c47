"""``torch.compile(backend="tpu")``: values, aliasing and mutation as in eager mode, and no recompiles."""

import pytest
import torch

import torch_tpu


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiled(fn):
    return torch.compile(fn, backend="tpu", fullgraph=True)


def test_values_are_those_of_eager():
    def f(x, y):
        return (x @ y).softmax(-1), x.sum(0, keepdim=True)

    x, y = torch.randn(3, 4, device="tpu"), torch.randn(4, 5, device="tpu")
    torch.testing.assert_close(compiled(f)(x, y), f(x, y))


def test_a_call_again_compiles_nothing():
    f = compiled(lambda x: (x * 2).tanh() + 1)
    f(torch.randn(5, device="tpu"))
    before = torch_tpu.counters()
    f(torch.randn(5, device="tpu"))
    after = torch_tpu.counters()
    assert after["compiles"] == before["compiles"]
    assert after["calls"] - before["calls"] <= 2  # making the input; the graph's ops do not run one by one


def test_inputs_are_updated_in_place_and_outputs_alias_them():
    def f(x, y):
        x.add_(y)
        return x.view(-1), x.t(), x * 2

    x, y = torch.zeros(2, 3, device="tpu"), torch.ones(2, 3, device="tpu")
    flat, transposed, doubled = compiled(f)(x, y)
    assert x.cpu().tolist() == [[1.0] * 3] * 2
    assert doubled.cpu().tolist() == [[2.0] * 3] * 2
    flat[0] = 9
    assert x[0, 0].item() == transposed[0, 0].item() == 9


def test_inputs_that_share_a_storage():
    def f(x, v):
        v.mul_(2)
        return x + 1

    x = torch.ones(4, device="tpu")
    assert torch.compile(f, backend="tpu")(x, x[1:3]).cpu().tolist() == [2.0, 3.0, 3.0, 2.0]


def test_a_training_step():
    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 2)
        ).to("tpu")

    plain, model = make(), make()
    step = torch.compile(model, backend="tpu")
    x = torch.randn(6, 4, device="tpu")
    for run, parameters in ((plain, plain.parameters()), (step, model.parameters())):
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
    for a, b in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_draws_anew_and_repeats_with_the_seed():
    f = compiled(lambda x: torch.nn.functional.dropout(x, 0.5))
    x = torch.ones(200, device="tpu")
    torch.manual_seed(1)
    first, second = f(x).cpu(), f(x).cpu()
    torch.manual_seed(1)
    assert not torch.equal(first, second)
    assert torch.equal(f(x).cpu(), first)


def test_a_graph_break_reads_a_value():
    def f(x):
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    f = torch.compile(f, backend="tpu")
    assert f(torch.ones(2, device="tpu")).cpu().tolist() == [3.0, 3.0]
    assert f(-torch.ones(2, device="tpu")).cpu().tolist() == [-3.0, -3.0]


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_without_a_backend_tpu_graphs_come_to_this_one(mode):
    f = torch.compile(lambda x: x.sin() + 1, mode=mode, fullgraph=True)
    x = torch.randn(3)
    there = x.to("tpu")
    before = torch_tpu.counters()
    torch.testing.assert_close(f(there).cpu(), x.sin() + 1)
    after = torch_tpu.counters()
    assert after["compiles"] - before["compiles"] == 1


def test_without_a_backend_a_graph_that_takes_no_tensor():
    f = torch.compile(lambda: torch.ones(3, device="tpu") * 2, fullgraph=True)
    assert f().cpu().tolist() == [2.0] * 3


def test_without_a_backend_cpu_graphs_go_to_inductor(monkeypatch):
    import torch._inductor.compile_fx

    asked = []

    def compile_fx(graph, inputs, **kwargs):
        asked.append(graph)
        return graph.forward

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)
    f = torch.compile(lambda x: x + 1)
    f(torch.ones(2, device="tpu"))
    assert not asked
    f(torch.ones(2))
    assert len(asked) == 1


def test_none_and_numbers_among_the_results():
    def f(x, y):
        return None, x + y, 3, (y, None)

    x, y = torch.ones(2, device="tpu"), torch.ones(2, device="tpu")
    nothing, total, three, (same, also_nothing) = compiled(f)(x, y)
    assert nothing is also_nothing is None
    assert three == 3
    assert same is y
    assert total.cpu().tolist() == [2.0, 2.0]


def test_one_tensor_given_twice():
    f = compiled(lambda x, y: x.add_(1) + y)
    x = torch.zeros(2, device="tpu")
    assert f(x, x).cpu().tolist() == [2.0, 2.0]
    assert f(x, torch.zeros(2, device="tpu")).cpu().tolist() == [2.0, 2.0]


def test_inference_mode():
    model = torch.nn.Linear(4, 2).to("tpu")
    x = torch.randn(3, 4, device="tpu")
    f = torch.compile(model, fullgraph=True)
    with torch.inference_mode():
        got = f(x)
    assert got.is_inference()
    torch.testing.assert_close(got.cpu(), model(x).detach().cpu())


def test_reset_forgets_what_was_compiled():
    f = compiled(lambda x: x.cos())
    x = torch.ones(3, device="tpu")
    f(x)
    torch.compiler.reset()
    torch.testing.assert_close(f(x).cpu(), torch.ones(3).cos())


@pytest.mark.parametrize("on", [True, False])
def test_autograds_cache_may_be_on_or_off(on):
    import torch._functorch.config

    x = torch.ones(3, device="tpu", requires_grad=True)
    with torch._functorch.config.patch(enable_autograd_cache=on):
        for _ in range(2):
            torch.compiler.reset()
            compiled(lambda x: x.cos().sum())(x).backward()
    torch.testing.assert_close(x.grad.cpu(), -2 * torch.ones(3).sin())


def test_a_donated_argument_that_the_caller_holds_keeps_its_value():
    def f(x, y):
        x.mul_(2)
        return y + 1

    x, y = torch.ones(2, device="tpu"), torch.ones(2, device="tpu")
    before = x.clone()
    run = compiled(f)
    for _ in range(3):
        run(x, y)
    assert x.cpu().tolist() == [8.0, 8.0]
    assert before.cpu().tolist() == y.cpu().tolist() == [1.0, 1.0]


def test_what_is_updated_gives_its_buffer_and_nothing_else_does():
    def f(x, y):
        x.add_(y)
        return x * y

    x, y = torch.ones(8, device="tpu"), torch.ones(8, device="tpu")
    run = compiled(f)
    run(x, y)
    before = torch_tpu.counters()["donations"]
    run(x, y)
    assert torch_tpu.counters()["donations"] - before == 1
    assert y.cpu().tolist() == [1.0] * 8
