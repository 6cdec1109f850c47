"""torch.utils.checkpoint on tpu: the same gradients, and values that are computed again rather than kept."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.marks import needs_libtpu
from torch_tpu import aot


class Stack(torch.nn.Module):
    def __init__(self, width=8, layers=3, reentrant=None):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.reentrant = reentrant  # None: everything is kept

    def forward(self, x):
        for layer in self.layers:
            x = x + (layer(x) if self.reentrant is None else checkpoint(layer, x, use_reentrant=self.reentrant))
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_are_those_of_the_cpu(reentrant):
    torch.manual_seed(0)
    net, x = Stack(), torch.randn(3, 8, requires_grad=True)
    net(x).square().sum().backward()
    again = Stack(reentrant=reentrant)
    again.load_state_dict(net.state_dict())
    again.to("tpu")
    y = x.detach().to("tpu").requires_grad_()
    again(y).square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    for p, q in zip(again.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)


def test_what_is_computed_again_stands_behind_barriers():
    def barriers(reentrant):
        net = Stack(reentrant=reentrant)
        with aot.topology("v6e") as recording:
            net.to("tpu")
            x = torch.zeros(3, 8).to("tpu").requires_grad_()
            for _ in range(2):
                net(x).sum().backward()
                recording.cut()
        return recording.programs[-1].rows.get("torch_tpu::barrier", {})

    assert not barriers(None)
    assert sum(barriers(False).values()) == 3
    assert sum(barriers(True).values()) == 3


@needs_libtpu
def test_checkpointing_saves_memory_on_a_tpu():
    x = torch.empty(16384, 1024, dtype=torch.bfloat16, device="meta")
    kept, again = (
        aot.check(Stack(1024, 8, reentrant).bfloat16(), x, train=True).targets[0].steps[0].memory
        for reentrant in (None, False)
    )
    assert again.temporaries < 0.6 * kept.temporaries
