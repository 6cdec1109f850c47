"""Execution policies: the same numbers, when things run, what is compiled, and what failures leave behind."""

import pytest
import torch

import torch_tpu

MODES = ("strict", "debug", "defer")


def counted(name: str) -> int:
    return torch_tpu.counters()[name]


def train(mode: str, steps: int = 4):
    with torch_tpu.mode(mode):
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 2)
        )
        model = model.to("tpu")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x = torch.arange(30.0).reshape(5, 6).to("tpu") / 30
        losses = []
        for _ in range(steps):
            loss = model(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in model.parameters()]


def test_policies_give_the_same_numbers():
    expected = train("strict")
    for mode in ("debug", "defer"):
        losses, parameters = train(mode)
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected[0]))
        torch.testing.assert_close(parameters, expected[1])


def test_defer_runs_nothing_until_a_value_is_read():
    with torch_tpu.mode("defer"):
        x = torch.ones(3, 5, device="tpu")
        x.cpu()
        flushes = counted("flushes")
        y = (x * 2 + 1).tanh()
        y[1] = 0
        assert counted("flushes") == flushes
        y.cpu()
        assert counted("flushes") == flushes + 1


def test_a_program_of_many_calls_is_one_compile():
    with torch_tpu.mode("defer"):
        x = torch.ones(3, 7, device="tpu")
        x.cpu()
        compiles = counted("compiles")
        (((x + 1) * 3).exp().sum(1) - 2).cpu()
        assert counted("compiles") == compiles + 1


@pytest.mark.parametrize("mode", MODES)
def test_a_changing_number_never_recompiles(mode):
    with torch_tpu.mode(mode):
        x = torch.ones(4, 9, device="tpu")
        x.cpu()  # made by a program of its own

        def step(k: float) -> None:
            y = x * k + k / 3
            y.add_(x, alpha=k)
            y.clamp_(min=-k, max=k * 2).cpu()

        step(0.3)
        compiles = counted("compiles")
        for k in (0.5, 7.0, 11.25, -3.0):
            step(k)
        assert counted("compiles") == compiles


def test_a_step_whose_learning_rate_changes_never_recompiles():
    model = torch.nn.Linear(5, 5).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def step() -> None:
        loss = model(torch.ones(3, 5, device="tpu")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    for _ in range(3):
        step()
    torch.tpu.synchronize()
    compiles = counted("compiles")
    for _ in range(10):
        step()
    torch.tpu.synchronize()
    assert counted("compiles") == compiles


def test_an_overwritten_value_is_donated():
    with torch_tpu.mode("strict"):
        x = torch.ones(1000, device="tpu")
        torch.tpu.synchronize()
        donations = counted("donations")
        held = torch.tpu.memory_allocated()
        for _ in range(5):
            x.add_(1)
        torch.tpu.synchronize()
        assert counted("donations") == donations + 5
        assert torch.tpu.memory_allocated() == held
        assert x.cpu().tolist() == [6.0] * 1000


def test_a_value_that_something_holds_is_not_donated():
    x = torch.ones(1000, device="tpu")
    y = x.detach().clone()
    x.mul_(3)
    x.add_(y)
    assert y.cpu().tolist() == [1.0] * 1000
    assert x.cpu().tolist() == [4.0] * 1000


@pytest.mark.parametrize("mode", MODES)
def test_a_shape_error_is_raised_at_the_call_and_leaves_the_device_usable(mode):
    with torch_tpu.mode(mode):
        a, b = torch.ones(2, 3, device="tpu"), torch.ones(4, 3, device="tpu")
        with pytest.raises(RuntimeError, match="must match the size"):
            a + b
        with pytest.raises(RuntimeError):
            a @ b
        with pytest.raises(IndexError):
            a.sum(5)
        with pytest.raises(RuntimeError, match="can't be cast"):
            torch.ones(2, dtype=torch.int64, device="tpu").add_(1.5)
        assert (a + 1).cpu().tolist() == [[2.0] * 3] * 2


def test_debug_raises_for_an_index_out_of_range_and_a_division_by_zero():
    x = torch.arange(4.0, device="tpu")
    far = torch.tensor([9], device="tpu")
    with torch_tpu.mode("debug"):
        with pytest.raises(IndexError):
            x[far]
        with pytest.raises(IndexError):
            x.index_select(0, far)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            torch.tensor([3], device="tpu") // torch.tensor([0], device="tpu")
    assert x[far].cpu().tolist() == [3.0]  # elsewhere a read clamps


def test_an_argument_that_is_zero_is_not_taken_for_one_that_is_missing():
    x = torch.tensor([[1, 200], [3, 4]], dtype=torch.int16, device="tpu")
    assert x.argmax().shape == () and x.argmax(0).shape == (2,)
    assert x.sum().dtype == torch.int64 and x.sum(dtype=torch.uint8).dtype == torch.uint8  # whose number is 0
    y = torch.ones(2, 3, device="tpu")
    assert y.repeat_interleave(2).shape == (12,) and y.repeat_interleave(2, dim=0).shape == (4, 3)


def test_a_mode_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="expected 'strict', 'debug' or 'defer'"):
        torch_tpu.set_mode("eager")


def test_the_mode_is_restored_after_an_error():
    before = torch_tpu.get_mode()
    with pytest.raises(ZeroDivisionError), torch_tpu.mode("strict"):
        raise ZeroDivisionError
    assert torch_tpu.get_mode() == before


def test_a_loop_without_a_sync_stays_within_bounds():
    with torch_tpu.mode("defer"):
        x = torch.zeros(4, device="tpu")
        flushes = counted("flushes")
        for _ in range(5000):
            x.add_(1)
        assert counted("flushes") > flushes  # the recorder cut by itself
        assert x.cpu().tolist() == [5000.0] * 4


def test_the_table_has_no_unknown_or_doubled_rows():
    assert torch_tpu._C.table_problems() == []


@pytest.mark.parametrize("mode", MODES)
def test_a_profile_counts_a_call_once(mode):
    """The CPU's kernels, which say what is refused, are asked where no profiler looks."""
    x = torch.full((3, 5), 7, device="tpu")  # a shape that no other test has
    with torch_tpu.mode(mode), torch.profiler.profile() as profile:
        (x // 2).float().relu().normal_()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert [counts[f"aten::{op}"] for op in ("floor_divide", "relu", "normal_")] == [1, 1, 1]
