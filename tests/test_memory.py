"""Memory statistics in the style of ``torch.cuda``."""

import resource

import pytest
import torch

import torch_tpu


def test_a_tensor_counts_while_it_lives():
    before = torch.tpu.memory_allocated()
    x = torch.ones(1 << 16, device="tpu")
    assert torch.tpu.memory_allocated() - before == 4 << 16
    view = x[: 1 << 8]
    assert torch.tpu.memory_allocated() - before == 4 << 16
    del x
    assert torch.tpu.memory_allocated() - before == 4 << 16
    del view
    assert torch.tpu.memory_allocated() == before


def test_the_peak_stays_until_it_is_reset():
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.max_memory_allocated()
    x = torch.ones(1 << 16, device="tpu")
    torch.tpu.synchronize()
    del x
    assert torch.tpu.max_memory_allocated() >= before + (4 << 16)
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == torch.tpu.memory_allocated()


def test_an_in_place_update_does_not_add_up():
    x = torch.ones(1 << 16, device="tpu")
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    for _ in range(3):
        x.add_(1)
        torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before


def test_statistics_have_cudas_names():
    stats = torch.tpu.memory_stats()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment"):
        for kind in ("current", "peak", "allocated", "freed"):
            assert stats[f"{name}.all.{kind}"] >= 0
    assert "tpu:0" in torch.tpu.memory_summary()
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    torch.tpu.empty_cache()


def test_a_storage_can_be_resized():
    x = torch.arange(4.0, device="tpu")
    storage = x.untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32
    assert x.tolist() == [0, 1, 2, 3]
    storage.resize_(0)
    assert storage.nbytes() == 0


def test_a_slice_of_a_storage_is_refused():
    storage = torch.arange(4, dtype=torch.uint8, device="tpu").untyped_storage()
    with pytest.raises(NotImplementedError, match="a slice of a storage of 4 bytes"):
        storage[1:3]
    assert storage[2] == 2 and storage.tolist() == [0, 1, 2, 3]
    assert storage.cpu()[1:3].tolist() == [1, 2]
    storage[1] = 9
    assert storage.tolist() == [0, 9, 2, 3]


@pytest.mark.skipif(torch_tpu.platform() != "cpu", reason="host memory of the CPU plugin")
def test_small_results_of_many_sizes_keep_apart():
    with torch_tpu.mode("strict"):
        tensors = [torch.full((n,), float(n), device="tpu") for n in range(1, 1100, 7) for _ in range(3)]
        del tensors[::3]
        tensors += [torch.full((n,), float(n), device="tpu") for n in range(2, 1100, 7)]
    for t in tensors:
        assert torch.equal(t.cpu(), torch.full(t.shape, float(len(t))))


@pytest.mark.skipif(torch_tpu.platform() != "cpu", reason="host memory of the CPU plugin")
def test_large_host_blocks_are_kept_for_the_next_execution():
    x = torch.zeros(16 << 20, device="tpu")  # 64 MB

    def step():
        (x + 1)[:1].item()

    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        step()
    pages = 4 * x.nbytes // resource.getpagesize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 10
    torch.tpu.empty_cache()
    step()
