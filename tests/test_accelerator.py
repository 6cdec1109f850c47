"""``torch.accelerator`` speaks of tpu where there is no other accelerator."""

import time

import pytest
import torch

import torch_tpu
from tests.process import run_python

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(), reason="another accelerator is usable"
)


def test_the_accelerator_is_tpu():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.current_accelerator(check_available=True).type == "tpu"
    assert torch.accelerator.device_count() == torch.tpu.device_count()


def test_the_current_device_can_be_set():
    torch.accelerator.set_device_index(0)
    torch.accelerator.set_device_index("tpu:0")
    assert torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(0):
        assert torch.tpu.current_device() == 0


def test_synchronize_waits_for_results_that_nobody_holds():
    x = torch.rand(1024, 1024, device="tpu")

    def taken(finish) -> float:
        start = time.perf_counter()
        y = x
        for _ in range(20):
            y = torch.tanh(y @ x)
        finish(y.sum())
        del y
        torch.tpu.synchronize()
        return time.perf_counter() - start

    with torch_tpu.mode("strict"):
        taken(torch.Tensor.item)
        until_read = taken(torch.Tensor.item)
        assert taken(lambda _: None) > until_read / 4


def test_streams_and_synchronize():
    x = torch.ones(4, device="tpu") * 2
    torch.accelerator.synchronize()
    torch.accelerator.synchronize("tpu:0")
    stream = torch.accelerator.current_stream()
    assert stream.device == torch.device("tpu:0")
    stream.synchronize()
    assert stream.query()
    torch.accelerator.set_stream(stream)
    assert x.sum().item() == 8


def test_memory_statistics_are_those_of_torch_tpu():
    x = torch.ones(1024, device="tpu")
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated() >= 4096
    assert torch.accelerator.max_memory_allocated() == torch.tpu.max_memory_allocated()
    assert torch.accelerator.memory_reserved() == torch.tpu.memory_reserved()
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_stats()["allocated_bytes.all.current"]
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert x.numel() == 1024


def test_capability_lists_the_dtypes():
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64} <= set(dtypes)
    assert torch.quint8 not in dtypes


def test_pin_memory_and_events_need_no_device_argument():
    assert torch.ones(2).pin_memory().is_pinned()
    event = torch.Event()
    event.record()
    event.synchronize()
    assert event.query() and event.device.type == "tpu"


def test_another_accelerator_can_keep_its_place():
    code = """
        import torch, torch_tpu
        assert torch_tpu._C.yield_accelerator()
        x = torch.ones(2, device="tpu", requires_grad=True)
        (x * 2).sum().backward()
        print(torch.accelerator.current_accelerator(), x.grad.tolist(), torch.tpu.memory_allocated() > 0)
    """
    assert run_python(code) == "None [2.0, 2.0] True"
