"""Training steps of what computes a loss: as users write them, and as one compiled graph."""

from collections.abc import Callable

import torch
from torch.optim.adamw import adamw

Step = Callable[[], torch.Tensor]


def training_step(loss_of: Step, optimizer: torch.optim.Optimizer) -> Step:
    """A function that makes one training step and returns its loss."""

    def step() -> torch.Tensor:
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def one_graph_step(loss_of: Step, parameters: list[torch.nn.Parameter], rate: float) -> Step:
    """The same as one compiled graph: forward, backward, and AdamW in PyTorch's functional form."""
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.zeros((), device=p.device) for p in parameters]
    torch._dynamo.config.trace_autograd_ops = True  # lets Dynamo put the backward into the graph

    @torch.compile(fullgraph=True)
    def step() -> torch.Tensor:
        loss = loss_of()
        gradients = list(torch.autograd.grad(loss, parameters))
        with torch.no_grad():
            adamw(
                parameters, gradients, first, second, [], steps, foreach=True, capturable=True, amsgrad=False,
                beta1=0.9, beta2=0.999, lr=rate, weight_decay=0.01, eps=1e-8, maximize=False,
            )  # fmt: skip
        return loss.detach()

    return step
