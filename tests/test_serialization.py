"""Saving, loading with every map_location, pickling, copying, and sending to other processes."""

import copy
import io
import pickle

import pytest
import torch
import torch.multiprocessing as mp


def saved(obj) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("map_location", "expected"),
    [
        (None, "tpu:0"),
        ("tpu", "tpu:0"),
        ("tpu:0", "tpu:0"),
        (torch.device("tpu"), "tpu:0"),
        (torch.device("tpu", 0), "tpu:0"),
        ("cpu", "cpu"),
        (torch.device("cpu"), "cpu"),
        ({"tpu:0": "cpu"}, "cpu"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.tpu(), "tpu:0"),
        ("meta", "meta"),
    ],
)
def test_map_location_takes_every_form(map_location, expected):
    tensor = torch.arange(6.0, device="tpu").view(2, 3).t()
    for weights_only in (True, False):
        loaded = torch.load(saved({"x": tensor}), map_location=map_location, weights_only=weights_only)["x"]
        assert str(loaded.device) == expected
        assert loaded.shape == tensor.shape and loaded.stride() == tensor.stride()
        if expected != "meta":
            assert torch.equal(loaded.cpu(), tensor.cpu())


def test_cpu_tensors_load_onto_the_device():
    loaded = torch.load(saved(torch.arange(3)), map_location="tpu")
    assert loaded.device.type == "tpu" and loaded.tolist() == [0, 1, 2]


def test_views_of_one_storage_stay_views():
    base = torch.zeros(4, device="tpu")
    first, second = torch.load(saved((base[:3], base[1:])))
    first[1] = 7
    assert second.tolist() == [7, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float16])
def test_every_dtype_survives(dtype):
    tensor = torch.tensor([0, 1, 3]).to(dtype).to("tpu")
    for back in (torch.load(saved(tensor)), pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert back.dtype == dtype and back.device == tensor.device
        assert torch.equal(back.cpu(), tensor.cpu())


def test_a_training_state_survives():
    model = torch.nn.Linear(3, 2).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, device="tpu")).sum().backward()
    optimizer.step()
    state = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    other = torch.nn.Linear(3, 2).to("tpu")
    other.load_state_dict(state["model"])
    restored = torch.optim.AdamW(other.parameters())
    restored.load_state_dict(state["optimizer"])
    assert torch.equal(other.weight.cpu(), model.weight.cpu())
    assert restored.state[other.weight]["exp_avg"].device.type == "tpu"


def test_deepcopy_keeps_ties_and_independence():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)}).to("tpu")
    model["b"].weight = model["a"].weight
    twin = copy.deepcopy(model)
    assert twin["a"].weight is twin["b"].weight
    with torch.no_grad():
        twin["a"].weight.zero_()
    assert model["a"].weight.abs().sum().item() > 0


def test_a_parameter_pickles_as_a_parameter():
    parameter = torch.nn.Parameter(torch.ones(2, device="tpu"))
    back = pickle.loads(pickle.dumps(parameter))
    assert isinstance(back, torch.nn.Parameter) and back.requires_grad and back.device.type == "tpu"


def _double(queue, answers):
    answers.put(queue.get() * 2)
    queue.get()  # the answer's memory lives as long as this process


def test_tensors_travel_to_a_spawned_process_and_back():
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=_double, args=(queue, answers))
    child.start()
    queue.put(torch.arange(3.0, device="tpu"))
    answer = answers.get(timeout=120)
    assert answer.device.type == "tpu" and answer.tolist() == [0, 2, 4]
    queue.put(None)
    child.join(60)
    assert child.exitcode == 0
