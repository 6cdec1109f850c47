"""``torch.compile`` on ``tpu`` where graphs go wrong elsewhere: aliases, mutation, randomness, recomputation, settings."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import torch_tpu


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiled(fn, **settings):
    return torch.compile(fn, backend="tpu", fullgraph=True, **settings)


def compiles() -> int:
    return torch_tpu.counters()["compiles"]


@pytest.mark.parametrize("options", [{"triton.cudagraphs": True}, {"max_autotune": True}])
def test_options_of_inductor_are_accepted(options):
    f = torch.compile(lambda x: x.sin() * 2, options=options)
    torch.testing.assert_close(f(torch.ones(3, device="tpu")).cpu(), torch.ones(3).sin() * 2)


def test_reduce_overhead_keeps_no_result_of_an_earlier_call_alive():
    # CUDA graphs reuse the memory of results; here results of earlier calls stay as they are.
    f = torch.compile(lambda x: x * 2, mode="reduce-overhead")
    first = f(torch.ones(3, device="tpu"))
    second = f(torch.full((3,), 5.0, device="tpu"))
    assert (first.tolist(), second.tolist()) == ([2.0] * 3, [10.0] * 3)


def test_reset_compiles_again_and_nothing_before_it_does():
    f = compiled(lambda x: x.erfinv())
    x = torch.full((3,), 0.5, device="tpu")
    f(x), f(x)
    before = compiles()
    f(x)
    assert compiles() == before
    torch.compiler.reset()
    f(x)
    assert compiles() == before + 1


def test_results_that_are_views_of_one_new_tensor_share_it():
    def f(x):
        y = x * 2
        return y[0], y[1:], y

    row, rest, whole = compiled(f)(torch.arange(6.0).reshape(3, 2).to("tpu"))
    whole.zero_()
    assert row.tolist() == [0, 0] and rest.tolist() == [[0, 0], [0, 0]]


def test_a_result_that_is_an_argument_is_that_tensor():
    x = torch.ones(3, device="tpu")
    y, z = compiled(lambda x: (x, x + 1))(x)
    assert y is x
    assert z.tolist() == [2.0] * 3


def test_a_view_of_an_argument_writes_through():
    def f(x):
        x[:, 0].fill_(7)
        return x.view(-1)[1:3]

    x = torch.zeros(2, 3, device="tpu")
    view = compiled(f)(x)
    assert x.tolist() == [[7, 0, 0], [7, 0, 0]]
    view.fill_(1)
    assert x.tolist() == [[7, 1, 1], [7, 0, 0]]


def test_an_argument_given_as_two_overlapping_views():
    def f(a, b):
        a.add_(1)
        b.mul_(2)
        return a.sum() + b.sum()

    host = torch.arange(6.0)
    expected = f(host[:4], host[2:])
    x = torch.arange(6.0).to("tpu")
    got = torch.compile(f, backend="tpu")(x[:4], x[2:])
    torch.testing.assert_close(got.cpu(), expected)
    torch.testing.assert_close(x.cpu(), host)


def test_an_argument_is_detached_and_changed_under_autograd():
    def f(x, w):
        w.data.mul_(2)
        return (x * w).sum()

    for device in ("cpu", "tpu"):
        x = torch.ones(3, device=device, requires_grad=True)
        w = torch.full((3,), 3.0, device=device)
        torch.compile(f, backend="eager" if device == "cpu" else "tpu")(x, w).backward()
        assert w.tolist() == x.grad.tolist() == [6.0] * 3


def test_buffers_of_a_module_are_updated():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = Counter().to("tpu")
    run = compiled(model)
    values = [run(torch.ones(1, device="tpu")).item() for _ in range(3)]
    assert values == [1, 2, 3] and model.calls.item() == 3


def test_none_as_an_argument_as_a_result_and_as_a_gradient():
    def f(x, mask, unused):
        return (x if mask is None else x * mask).sum(), None

    x = torch.ones(3, device="tpu", requires_grad=True)
    unused = torch.ones(3, device="tpu", requires_grad=True)
    total, nothing = compiled(f)(x, None, unused)
    total.backward()
    assert nothing is None and unused.grad is None
    assert x.grad.tolist() == [1.0] * 3


def test_random_ops_draw_what_eager_mode_draws():
    def f(x):
        return torch.rand_like(x), torch.randn(3, device="tpu"), torch.bernoulli(x * 0.5), x.clone().uniform_()

    x = torch.ones(50, device="tpu")
    torch.manual_seed(5)
    expected = [f(x), f(x)]
    run = compiled(f)
    torch.manual_seed(5)
    got = [run(x), run(x)]
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_fork_rng_around_a_compiled_call():
    run = compiled(lambda x: torch.nn.functional.dropout(x, 0.5))
    x = torch.ones(100, device="tpu")
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(1)
        first = run(x).cpu()
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(1)
        assert torch.equal(run(x).cpu(), first)


def keep_products():
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default, torch.ops.aten.addmm.default])


class Layers(torch.nn.Module):
    def __init__(self, how: str, dropout: float = 0.0):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Dropout(dropout), torch.nn.Linear(32, 8)
            )
            for _ in range(2)
        )
        self.how = how

    def forward(self, x):
        for layer in self.layers:
            if self.how == "none":
                x = x + layer(x)
            elif self.how == "selective":
                x = x + checkpoint(layer, x, use_reentrant=False, context_fn=keep_products)
            else:
                x = x + checkpoint(layer, x, use_reentrant=False)
        return x


@pytest.mark.parametrize("how", ["whole", "selective"])
def test_checkpointing_gives_the_same_gradients(how):
    torch.manual_seed(0)
    plain = Layers("none")
    x = torch.randn(4, 8)
    plain(x).square().sum().backward()
    model = Layers(how)
    model.load_state_dict(plain.state_dict())
    model.to("tpu")
    compiled(model)(x.to("tpu")).square().sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def test_checkpointing_with_dropout_draws_once():
    torch.manual_seed(0)
    model = Layers("whole", dropout=0.5).to("tpu")
    run = compiled(model)
    x = torch.randn(4, 8).to("tpu")

    def gradient():
        torch.manual_seed(3)
        model.zero_grad()
        run(x).square().sum().backward()
        return model.layers[0][0].weight.grad.cpu()

    torch.testing.assert_close(gradient(), gradient(), rtol=0, atol=0)


def test_empty_and_scalar_tensors_and_other_dtypes():
    def f(empty, scalar, whole, truth):
        return torch.cat([empty, scalar[None]]), whole // 2, ~truth, empty.sum()

    arguments = (torch.ones(0), torch.tensor(3.0), torch.tensor([5, -5]), torch.tensor([True, False]))
    got = compiled(f)(*[a.to("tpu") for a in arguments])
    for a, b in zip(got, f(*arguments), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_no_grad_and_grad_are_two_graphs_with_the_same_values():
    w = torch.ones(3, device="tpu", requires_grad=True)
    run = compiled(lambda x: (x * w).sum())
    x = torch.arange(3.0).to("tpu")
    with torch.no_grad():
        quiet = run(x)
    loud = run(x)
    assert not quiet.requires_grad and loud.requires_grad
    assert quiet.item() == loud.item() == 3
    loud.backward()
    assert w.grad.tolist() == [0, 1, 2]


def test_a_second_derivative_is_refused_in_pytorchs_words():
    x = torch.ones(3, device="tpu", requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(lambda x: (x**3).sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()
