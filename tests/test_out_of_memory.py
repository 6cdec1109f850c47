"""No room on the device: what can be freed is freed and the work done again; then an error that says what is held."""

import gc

import pytest
import torch

import torch_tpu
from torch_tpu import _C

MB = 1 << 20


@pytest.fixture
def limited():
    """Lets the device hold 64 MB more than it does."""
    gc.collect()
    torch.tpu.synchronize()
    _C.set_memory_limit(0, torch.tpu.memory_allocated() + 64 * MB)
    yield
    _C.set_memory_limit(0, 0)


def of_megabytes(n: int) -> torch.Tensor:
    return torch.zeros(n * MB // 4, device="tpu")


def retries() -> int:
    return torch.tpu.memory_stats()["num_alloc_retries"]


@pytest.mark.parametrize("mode", ["strict", "debug", "defer"])
def test_garbage_in_cycles_is_freed_and_the_work_done_again(limited, mode):
    with torch_tpu.mode(mode):
        gc.disable()
        try:
            cycle = [of_megabytes(48)]
            torch.tpu.synchronize()
            cycle.append(cycle)
            del cycle
            before = retries()
            x = of_megabytes(32) + 1
            assert x.sum().item() == 8 * MB
            assert retries() > before
        finally:
            gc.enable()


def test_a_copy_from_the_host_frees_garbage_too(limited):
    gc.disable()
    try:
        cycle = [torch.ones(12 * MB).to("tpu")]
        cycle.append(cycle)
        del cycle
        before = retries()
        assert torch.full((8 * MB,), 2.0).to("tpu")[5].item() == 2
        assert retries() == before + 1
    finally:
        gc.enable()


def test_a_copy_from_the_host_runs_what_is_recorded(limited):
    with torch_tpu.mode("defer"):
        x = torch.ones(12 * MB).to("tpu")  # 48 MB
        x = x[:4].clone()  # not run yet: the recorded program holds all of it
        assert torch.full((8 * MB,), 2.0).to("tpu")[5].item() == 2
        assert x.tolist() == [1.0] * 4


def test_a_compiled_graph_frees_garbage_too(limited):
    double = torch.compile(lambda x: torch.cat([x, x]), backend="tpu")
    x = of_megabytes(16)
    double(x)
    gc.disable()
    try:
        cycle = [of_megabytes(32)]
        torch.tpu.synchronize()
        cycle.append(cycle)
        del cycle
        before = retries()
        assert double(x).numel() == 8 * MB
        assert retries() == before + 1
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", ["strict", "defer"])
def test_what_does_not_fit_says_how_much_is_held_and_what_to_do(limited, mode):
    with torch_tpu.mode(mode):
        small = of_megabytes(4)
        torch.tpu.synchronize()
        failures = torch.tpu.memory_stats()["num_ooms"]
        with pytest.raises(torch.OutOfMemoryError) as raised:
            of_megabytes(128).sum().item() if mode == "strict" else of_megabytes(128).cpu()
        told = str(raised.value)
        assert "out of memory on tpu:0: got 128.00 MiB to make" in told
        assert "Held by tpu:0, after what can be freed was freed: " in told and "Use a smaller batch" in told
        assert torch.tpu.memory_stats()["num_ooms"] == failures + 1
        # The device goes on, and so does what was there.
        assert (small + 1).sum().item() == MB


def test_the_error_names_the_lines_that_hold_the_most(limited):
    torch.tpu.memory._record_memory_history()
    try:
        held = of_megabytes(40)
        torch.tpu.synchronize()
        with pytest.raises(torch.OutOfMemoryError, match=r"Made at:\n  41.9\d* MB .*test_out_of_memory.py:\d+"):
            of_megabytes(60).cpu()
        del held
    finally:
        torch.tpu.memory._record_memory_history(None)


def test_a_fraction_of_the_memory_is_a_limit():
    assert torch.tpu.get_per_process_memory_fraction() == 1
    total = torch.tpu.mem_get_info()[1]
    torch.tpu.set_per_process_memory_fraction((torch.tpu.memory_allocated() + 16 * MB) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            of_megabytes(32).cpu()
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)
    assert of_megabytes(32).cpu().numel() == 8 * MB
    with pytest.raises(ValueError, match="expected more than 0"):
        torch.tpu.set_per_process_memory_fraction(0.0)
