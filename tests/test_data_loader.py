"""Pinned memory and DataLoader."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))


def test_pinned_memory_is_known():
    x = torch.arange(5.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    assert pinned[2:].is_pinned()
    assert torch.equal(pinned, x)
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned.untyped_storage().is_pinned()
    assert not torch.ones(2, device="tpu").is_pinned()


def test_a_pinned_tensor_moves_without_blocking():
    x = torch.arange(5.0).pin_memory()
    there = x.to("tpu", non_blocking=True)
    x.zero_()
    assert there.tolist() == [0, 1, 2, 3, 4]
    back = there.to("cpu", non_blocking=True)
    torch.tpu.synchronize()
    assert back.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers):
    torch.ones(1, device="tpu").item()
    seen = []
    for x, y in DataLoader(DATA, batch_size=2, pin_memory=True, num_workers=workers):
        assert x.is_pinned() and y.is_pinned()
        seen += x.to("tpu", non_blocking=True)[:, 0].tolist()
    assert seen == [0, 2, 4, 6, 8, 10]


class OnDevice(torch.utils.data.Dataset):
    """Items made on the device, in the worker."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return torch.full((2,), float(i), device="tpu")


def test_spawned_workers_may_use_the_device():
    loader = DataLoader(OnDevice(), num_workers=1, multiprocessing_context="spawn")
    batches = list(loader)
    assert [b.device.type for b in batches] == ["tpu"] * 3
    assert [b[0, 0].item() for b in batches] == [0, 1, 2]


def test_forked_workers_that_use_the_device_say_so():
    torch.ones(1, device="tpu").item()
    with pytest.raises(RuntimeError, match="forked child"):
        list(DataLoader(OnDevice(), num_workers=1, multiprocessing_context="fork"))
    assert torch.ones(1, device="tpu").item() == 1
