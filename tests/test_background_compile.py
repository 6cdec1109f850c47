"""Compiling beside the steps: in the background, several programs at once, and what is said of a long one."""

import pytest
import torch
from process import run_python

import torch_tpu
from torch_tpu import _C


@pytest.fixture
def background():
    torch_tpu.set_background_compile(True)
    yield
    torch_tpu.set_background_compile(False)
    _C.compile_drain()


def train(steps: int, width: int, after_step=lambda: None):
    """Losses, parameters, and how each step's program ran."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, width), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(width, 2)
    )
    model.to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.arange(30.0).reshape(5, 6).to("tpu") / 30
    losses, how = [], []
    for _ in range(steps):
        loss = model(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        how.append(torch_tpu.explain().flushes[-1].how)
        after_step()
    return torch.stack([loss.cpu() for loss in losses]), [p.detach().cpu() for p in model.parameters()], how


def test_steps_run_call_by_call_until_their_program_is_there_with_the_same_numbers(background):
    with torch_tpu.mode("defer"):
        losses, parameters, how = train(7, 17, _C.compile_drain)
        torch_tpu.set_background_compile(False)
        expected = train(7, 17)
    torch.testing.assert_close(losses, expected[0])
    torch.testing.assert_close(parameters, expected[1])
    waiting = [h.startswith("call by call, until it is compiled") for h in how]
    assert waiting[:2] == [True, True]  # the first is like no other; the second comes again
    assert not waiting[-1]
    assert waiting == sorted(waiting, reverse=True)  # no way back


def test_what_is_being_compiled_is_waited_for_once_it_is_turned_off(background):
    with torch_tpu.mode("defer"):
        x = torch.arange(19.0).to("tpu")

        def step():
            return (x * 3 + 1).tanh().cpu()

        expected = step()
        torch.testing.assert_close(step(), expected)
        torch_tpu.set_background_compile(False)
        compiles = torch_tpu.counters()["compiles"]
        torch.testing.assert_close(step(), expected)
        assert torch_tpu.explain().flushes[-1].how == "as a new program"
        assert torch_tpu.counters()["compiles"] - compiles <= 1


def test_an_error_of_the_program_is_raised_where_it_is_needed_and_the_next_goes_on(background):
    with torch_tpu.mode("defer"):
        x = torch.arange(23.0).to("tpu")
        for _ in range(4):
            assert (x * 2 - 1).exp().cpu().isfinite().all()
            _C.compile_drain()
        assert (x + 1).sum().item() == 276


@pytest.mark.skipif("torch.get_num_threads() < 2", reason="one processor")
def test_programs_of_calls_that_run_one_by_one_are_compiled_before_their_turn(background):
    with torch_tpu.mode("defer"):
        x = torch.arange(29.0).to("tpu")
        x.cpu()
        before = torch_tpu.counters()["compiles"]
        y = (x * 2).sinh().asinh().sigmoid()
        y.cpu()
        assert torch_tpu.counters()["compiles"] - before == 4  # each once
        assert {c.where for c in torch_tpu.explain().compiles[-4:]} == {""}  # by threads without Python
        assert y.tolist() == pytest.approx((torch.arange(29.0) * 2).sigmoid().tolist(), rel=1e-4)


def test_a_process_may_end_while_a_program_is_compiled():
    said = run_python(
        """
        import torch, torch_tpu
        torch_tpu.set_background_compile(True)
        x = torch.ones(200, 200, device="tpu")
        for _ in range(2):
            y = x
            for _ in range(300):
                y = (y @ x / 200).tanh()
            torch.tpu.synchronize()
        print("ends")
        """,
        TORCH_TPU_CACHE="0",
    )
    assert said == "ends"


@pytest.mark.parametrize(("wish", "told"), [("1", True), ("", False), ("0", False)])
def test_a_long_compilation_is_told_once_where_that_is_wished(wish, told):
    said = run_python(
        """
        import os
        os.dup2(1, 2)  # what is said on stderr is looked at; it is no terminal
        import torch, torch_tpu
        x = torch.ones(8, 8, device="tpu")
        for i in range(800):
            x = (x @ x).softmax(-1)
        x.cpu()
        """,
        TORCH_TPU_PROGRESS=wish,
        TORCH_TPU_CACHE="0",
    )
    line = "torch_tpu: compiling a program of 1601 calls, which takes more than 2 s"
    assert said.count(line) == told
