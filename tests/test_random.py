"""Random numbers: seeds, states, generators of one's own, and the same draws under every policy."""

import pytest
import torch

import torch_tpu


def test_manual_seed_repeats_the_draws():
    torch.manual_seed(3)
    first = torch.randn(5, device="tpu")
    torch.manual_seed(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    torch.tpu.manual_seed(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    torch.tpu.manual_seed_all(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    assert torch.tpu.initial_seed() == 3


def test_two_draws_differ():
    assert not torch.equal(torch.randn(5, device="tpu").cpu(), torch.randn(5, device="tpu").cpu())


def test_state_can_be_read_and_set():
    state = torch.tpu.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    first = torch.rand(5, device="tpu").cpu()
    torch.tpu.set_rng_state(state)
    assert torch.equal(first, torch.rand(5, device="tpu").cpu())
    states = torch.tpu.get_rng_state_all()
    assert len(states) == torch.tpu.device_count()
    torch.tpu.set_rng_state_all(states)


def test_fork_rng_restores_the_state():
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="tpu"):
        torch.randn(100, device="tpu")
    after = torch.randn(3, device="tpu").cpu()
    torch.manual_seed(1)
    assert torch.equal(after, torch.randn(3, device="tpu").cpu())


def test_a_generator_of_ones_own_leaves_the_default_one_alone():
    own = torch.Generator(device="tpu")
    assert own.device.type == "tpu"
    own.manual_seed(7)
    state = torch.tpu.get_rng_state()
    first = torch.randn(4, device="tpu", generator=own).cpu()
    assert torch.equal(state, torch.tpu.get_rng_state())
    assert own.initial_seed() == 7
    own.manual_seed(7)
    copy = torch.Generator(device="tpu")
    copy.set_state(own.get_state())
    assert torch.equal(first, torch.randn(4, device="tpu", generator=own).cpu())
    assert torch.equal(first, torch.randn(4, device="tpu", generator=copy).cpu())
    assert torch.equal(own.clone_state().get_state(), own.get_state())


def test_negative_seeds_are_taken():
    own = torch.Generator(device="tpu")
    own.manual_seed(-1)
    assert own.initial_seed() == 2**64 - 1


def test_a_cpu_generator_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(2, device="tpu", generator=torch.Generator())
    with pytest.raises(RuntimeError):
        torch.Generator(device="tpu").set_state(torch.zeros(3, dtype=torch.uint8))


def test_every_policy_draws_the_same():
    def draws():
        torch.manual_seed(11)
        x = torch.randn(6, device="tpu")
        return torch.cat([x, torch.rand(3, device="tpu"), torch.nn.functional.dropout(x, 0.5)]).cpu()

    results = []
    for name in ("strict", "debug", "defer"):
        with torch_tpu.mode(name):
            results.append(draws())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_checkpointing_recomputes_the_same_dropout():
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return torch.nn.functional.dropout(x, 0.5).sin()

    x = torch.ones(64, device="tpu", requires_grad=True)
    torch.manual_seed(5)
    f(x).sum().backward()
    expected, x.grad = x.grad.cpu(), None
    torch.manual_seed(5)
    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad.cpu(), expected)
