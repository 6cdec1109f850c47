"""Fused steps, the lists that PyTorch's other optimizers work on, and gradient scaling: numbers as on CPU PyTorch."""

import pytest
import torch
from comparison import Comparison

aten = torch.ops.aten

ADAM = {"betas": (0.8, 0.95), "eps": 1e-6}
STEPS = {
    "adam": (torch.optim.Adam, ADAM),
    "adam-decay": (torch.optim.Adam, {**ADAM, "weight_decay": 0.1, "maximize": True}),
    "adam-amsgrad": (torch.optim.Adam, {**ADAM, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {**ADAM, "weight_decay": 0.1}),
    "adamw-amsgrad": (torch.optim.AdamW, {**ADAM, "amsgrad": True, "maximize": True}),
    "sgd": (torch.optim.SGD, {"weight_decay": 0.1}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3, "maximize": True}),
    "sgd-nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
}


def trained(make, options, dtype, lr, device: str) -> list[torch.Tensor]:
    """Parameters and the optimizer's state after three steps."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape).to(device, dtype)) for shape in ((3, 4), (5,), ())]
    if isinstance(lr, torch.Tensor):
        lr = lr.to(device)
    optimizer = make(parameters, lr=lr, fused=True, **options)
    for _ in range(3):
        for p in parameters:
            p.grad = torch.randn(p.shape).to(device, dtype)
        optimizer.step()
    state = [optimizer.state[p] for p in parameters]
    return [*parameters, *(t for s in state for _, t in sorted(s.items()) if isinstance(t, torch.Tensor))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", STEPS)
def test_fused_steps(name, dtype):
    make, options = STEPS[name]
    rates = [0.05] if name == "adagrad" else [0.05, torch.tensor(0.05)]
    for lr in rates:
        pairs = zip(*(trained(make, options, dtype, lr, d) for d in ("tpu", "cpu")), strict=True)
        for actual, expected in pairs:
            torch.testing.assert_close(actual.cpu(), expected)


def lists(dtype=torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((2, 3), (4,), ())]


def written(op, *given, **options):
    """The tensors among ``given`` after op wrote to copies of them."""
    copies = [[t.clone() for t in x] if isinstance(x, list) else x.clone() for x in given]
    op(*copies, **options)
    return copies


ADAM_ROWS = (aten._fused_adam_, aten._fused_adamw_)


@pytest.mark.parametrize("found", [None, 0.0, 1.0])
def test_fused_steps_unscale_and_skip(found):
    """With a scale of gradients, and found_inf: nothing changes where it is 1."""
    calls = Comparison()
    parameters, gradients, averages = lists(), lists(), [t.abs() for t in lists()]
    squares = [t.abs() + 1 for t in lists()]
    steps = [torch.tensor(float(i)) for i in (3, 4, 5)]
    lr = torch.tensor(0.1)
    scale = {"grad_scale": torch.tensor(4.0)} if found is not None else {}
    scale |= {"found_inf": torch.tensor(found)} if found is not None else {}

    def call(op, rate, **options):
        def f(*given):
            device = given[0][0].device
            there = {k: v.to(device) for k, v in scale.items()}
            there["lr"] = lr.to(device) if rate == "tensor_lr" else 0.1
            return written(getattr(op, rate), *given, **options, **there)

        return f

    adam = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-6, "amsgrad": True, "maximize": True}
    sgd = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2, "nesterov": False, "maximize": False}
    adagrad = {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-6, "maximize": True}
    for rate in ("default", "tensor_lr"):
        for op in ADAM_ROWS:
            calls.add(op, call(op, rate, **adam), parameters, gradients, averages, squares, squares, steps)
        for first in (False, True):
            calls.add(f"sgd {first}", call(aten._fused_sgd_, rate, is_first_step=first, **sgd), parameters, gradients,
                      averages)  # fmt: skip
        calls.add("adagrad", call(aten._fused_adagrad_, rate, **adagrad), parameters, gradients, squares, steps)
    assert calls.finish() == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_lists_and_numbers(dtype):
    calls = Comparison()
    x = lists(dtype) if dtype.is_floating_point else [(t * 3).long() for t in lists()]
    y = [t.abs() + 1 for t in x]
    numbers, as_tensor = [2.0, -0.5, 3.0], torch.tensor([2.0, -0.5, 3.0])
    if dtype == torch.int64:
        numbers, as_tensor = [2, -1, 3], torch.tensor([2, -1, 3])
    for name in ("addcmul", "addcdiv"):
        f, in_place = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
        calls.add(f"{name} by number", lambda x, y, f=f: f(x, y, y, value=2), x, y)
        calls.add(f"{name} by list", lambda x, y, f=f: f(x, y, y, numbers), x, y)
        calls.add(f"{name} by tensor", lambda x, y, n, f=f: f(x, y, y, n), x, y, as_tensor, host=(2,))
        calls.add(f"{name} in place", lambda x, y, f=in_place: written(lambda a, b: f(a, b, b, numbers), x, y), x, y)
    short = lambda x, y, n: torch._foreach_addcmul(x, y, y, n)  # noqa: E731
    calls.add("too few numbers", short, x, y, as_tensor[:2], host=(2,))
    calls.add("too few tensors", short, x, y[:2], as_tensor, host=(2,))
    one = torch.tensor(3, dtype=dtype)
    for name in ("add", "mul", "div"):
        f = getattr(torch, f"_foreach_{name}")
        calls.add(f"{name} of a tensor", f, x, one)
    calls.add("add alpha", lambda x, one: torch._foreach_add(x, one, alpha=2), x, one)
    for base in (2, 0.5, 1, 0, -2):
        calls.add(f"{base} to the power", lambda y, b=base: torch._foreach_pow(b, y), y)
    calls.finish()


def test_lists_of_powers_are_summed():
    """Of CPU PyTorch, that has no kernel of its own: the sum of |x| ^ ord."""
    for dtype in (torch.float32, torch.bfloat16):
        x = lists(dtype)
        for power in (1, 2, 3, 0.5):
            sums = torch._foreach_powsum([t.to("tpu") for t in x], power)
            for actual, t in zip(sums, x, strict=True):
                torch.testing.assert_close(actual.cpu(), t.float().abs().pow(power).sum().to(dtype))
        wide = torch._foreach_powsum([t.to("tpu") for t in x], 2, dtype=torch.float64)
        assert all(t.dtype == torch.float64 for t in wide)


def test_gradients_are_unscaled():
    calls = Comparison()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for bad in (None, float("inf"), float("nan")):
            gradients = lists(dtype)
            if bad is not None:
                gradients[1][2] = bad
            for found in (0.0, 1.0):
                calls.add(
                    f"{dtype} {bad} {found}",
                    lambda *given: written(aten._amp_foreach_non_finite_check_and_unscale_, *given),
                    gradients,
                    torch.tensor([found]),
                    torch.tensor([0.25]),
                )
    assert calls.finish() == 18


def test_the_scale_grows_and_shrinks():
    calls = Comparison()
    for found in (0.0, 1.0):
        for successes in (0, 1, 2):
            for scale in (8.0, 3e38):
                given = torch.tensor([scale]), torch.tensor([successes], dtype=torch.int32), torch.tensor([found])
                update = lambda *given: written(lambda s, t, f: aten._amp_update_scale_(s, t, f, 2.0, 0.5, 3), *given)  # noqa: E731
                calls.add(f"{scale} after {successes}, {found}", update, *given)
    assert calls.finish() == 12
