"""Modules that move keep their Parameter objects: ties, optimizers, hooks."""

import pytest
import torch


def tied() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("move", [lambda m: m.to("tpu"), lambda m: m.tpu(), lambda m: m.to(torch.device("tpu", 0))])
def test_tied_weights_stay_tied(move):
    model = move(tied())
    assert model[0].weight is model[1].weight
    assert model[0].weight.device.type == "tpu"
    model(torch.tensor([1, 2], device="tpu")).sum().backward()
    assert model[0].weight.grad.device.type == "tpu"
    model.to("cpu")
    assert model[0].weight is model[1].weight and model[0].weight.device.type == "cpu"
    assert model[0].weight.grad.device.type == "cpu"
    move(model).cpu()
    assert model[0].weight is model[1].weight


def test_an_optimizer_made_before_the_move_trains_the_module():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("tpu")
    before = model.weight.tolist()
    model(torch.ones(1, 2, device="tpu")).sum().backward()
    optimizer.step()
    assert model.weight.tolist() == [[pytest.approx(w - 1, abs=1e-6) for w in before[0]]]


def test_a_move_and_a_cast_at_once():
    model = tied().to("tpu", torch.bfloat16)
    assert model[0].weight.dtype == torch.bfloat16 and model[0].weight is model[1].weight
    assert torch.nn.BatchNorm1d(3).to("tpu").running_mean.device.type == "tpu"


def test_other_conversions_keep_pytorchs_default():
    assert not torch.__future__.get_swap_module_params_on_conversion()
    torch.nn.Linear(2, 2).to("tpu")
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_meta_modules_can_be_materialized():
    with torch.device("meta"):
        model = torch.nn.Linear(2, 2)
    model.to_empty(device="tpu")
    torch.nn.init.ones_(model.weight)
    assert model.weight.sum().item() == 4


def test_modules_can_be_made_on_the_device():
    assert torch.nn.Linear(2, 2, device="tpu").weight.device.type == "tpu"
    with torch.device("tpu"):
        assert torch.nn.Linear(2, 2).weight.device.type == "tpu"
