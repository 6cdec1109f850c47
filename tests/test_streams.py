"""Streams and events: labels over one queue a device, with times that mean something."""

import pytest
import torch


def test_the_default_stream_is_current():
    assert torch.tpu.current_stream() == torch.tpu.default_stream()
    assert isinstance(torch.tpu.current_stream(), torch.tpu.Stream)
    assert torch.tpu.current_stream().device == torch.device("tpu:0")


def test_a_stream_is_current_in_its_block():
    side = torch.tpu.Stream()
    with torch.tpu.stream(side):
        assert torch.tpu.current_stream() == side
        x = torch.ones(3, device="tpu") * 2
    assert torch.tpu.current_stream() == torch.tpu.default_stream()
    torch.tpu.current_stream().wait_stream(side)
    x.record_stream(side)
    side.synchronize()
    assert side.query() and x.tolist() == [2, 2, 2]
    with side:
        assert torch.tpu.current_stream().stream_id == side.stream_id


def test_timed_events_measure_the_work_between_them():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    x = torch.randn(256, 256, device="tpu")
    start.record()
    for _ in range(4):
        x = x @ x / 16
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.query() and isinstance(end, torch.tpu.Event)


def test_events_order_streams():
    event = torch.tpu.Event()
    assert event.query()
    side = torch.Stream(device="tpu")
    event.record(torch.tpu.current_stream())
    side.wait_event(event)
    event.wait(side)
    event.synchronize()
    assert isinstance(side.record_event(), torch.Event)


def test_elapsed_time_needs_timed_events():
    first, second = torch.tpu.Event(), torch.tpu.Event()
    first.record()
    second.record()
    with pytest.raises((RuntimeError, ValueError)):
        first.elapsed_time(second)
