"""Which lines of Python hold device memory, in CUDA's form of snapshots; and activations kept on the host."""

import inspect
import pickle

import pytest
import torch
from torch.cuda import _memory_viz

import torch_tpu


@pytest.fixture
def recording():
    torch.tpu.memory._record_memory_history()
    yield
    torch.tpu.memory._record_memory_history(None)


def line() -> int:
    return inspect.currentframe().f_back.f_lineno


def at(number: int) -> str:
    return f"{__file__}:{number}"


def sites() -> dict[str, tuple[int, int]]:
    return {s.where: (s.bytes, s.tensors) for s in torch.tpu.memory.allocation_sites()}


@pytest.mark.parametrize("mode", ["strict", "defer"])
def test_live_tensors_by_the_line_that_made_them(recording, mode):
    with torch_tpu.mode(mode):
        kept = [torch.ones(1000, device="tpu") for _ in range(3)]
        here = line() - 1
        dead = torch.ones(5000, device="tpu")
        there = line() - 1
        assert sites()[at(here)] == (12000, 3)
        assert sites()[at(there)] == (20000, 1)
        del dead
        kept.pop()
        assert sites() == {at(here): (8000, 2)}


def test_what_an_update_in_place_holds_is_its_tensors(recording):
    x = torch.ones(1000, device="tpu")
    here = line() - 1
    x.add_(1)
    view = x[:10]
    assert sites() == {at(here): (4000, 1)}
    del x
    assert sites() == {at(here): (4000, 1)}
    del view
    assert not sites()


def test_gradients_are_told_by_the_call_they_derive(recording):
    w = torch.ones(100, 100, device="tpu", requires_grad=True)
    loss = (w @ w).sum()
    here = line() - 1
    loss.backward()
    del loss
    assert sites()[f"{at(here)} (gradient)"][0] == 40000


def test_a_module_on_another_device_is_told_by_the_move(recording):
    model = torch.nn.Linear(100, 100)
    model.to("tpu")
    here = line() - 1
    assert sites()[at(here)][1] == 2


def test_pytorchs_own_viewer_reads_snapshots(recording, tmp_path):
    x = torch.ones(1 << 20, device="tpu")
    snapshot = torch.tpu.memory._snapshot()
    (segment,) = snapshot["segments"]
    assert segment["blocks"][0]["frames"][0]["filename"] == __file__
    assert "4.0MiB" in _memory_viz.segsum(snapshot)
    torch.tpu.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    assert len(pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["segments"]) == 1
    del x
    assert torch.tpu.memory_snapshot() == []


def test_the_summary_lists_the_lines(recording):
    x = torch.ones(1 << 20, device="tpu")
    here = line() - 1
    summary = torch.tpu.memory_summary()
    assert f"4,194,304         1  {at(here)}" in summary
    torch.tpu.memory._record_memory_history(None)
    assert at(here) not in torch.tpu.memory_summary()
    del x


def test_nothing_is_noted_before_it_is_asked_for():
    x = torch.ones(100, device="tpu")
    assert torch.tpu.memory_snapshot() == []
    with pytest.raises(ValueError, match="expected 'all', 'state' or None"):
        torch.tpu.memory._record_memory_history("some")
    del x


@pytest.mark.parametrize("pinned", [False, True])
def test_activations_on_the_host_give_the_same_gradients_and_free_the_device(pinned):
    def run(hooks: bool) -> tuple[torch.Tensor, int]:
        torch.manual_seed(0)
        x = torch.randn(256, 256).to("tpu").requires_grad_()
        torch.tpu.synchronize()
        before = torch.tpu.memory_allocated()
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned) if hooks else torch.enable_grad():
            y = x
            for _ in range(8):
                y = (y * 1.01).sin()
        held = torch.tpu.memory_allocated() - before
        y.sum().backward()
        return x.grad.cpu(), held

    expected, device = run(hooks=False)
    actual, host = run(hooks=True)
    torch.testing.assert_close(actual, expected)
    assert host <= device / 4
