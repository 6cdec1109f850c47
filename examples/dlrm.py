"""A DLRM, which predicts clicks, on ``tpu``: tables of embeddings summed by bags, an MLP for the numbers, dot products
between them, and an MLP on top.

The clicks are made here: whether a hidden weight of each category adds up to more than zero.
usage: python examples/dlrm.py [--batch N] [--steps N] [--rows N]
"""

import argparse
import itertools
import time

import torch
import torch.nn.functional as F
from torch import nn

DENSE = 13  # numbers a sample, as in Criteo's logs
TABLES = 26
BAG = 4  # categories a bag


def mlp(*sizes: int) -> nn.Sequential:
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self, tables: int, rows: int, width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp(DENSE, 512, 256, width)
        pairs = (tables + 1) * tables // 2
        self.top = mlp(width + pairs, 512, 256, 1)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, numbers, categories):
        """numbers [batch, 13], categories [tables, batch, bag] -> logits [batch]."""
        x = self.bottom(numbers)
        vectors = torch.stack([x, *(table(ids) for table, ids in zip(self.tables, categories, strict=True))], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        interactions = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, interactions], dim=1)).squeeze(1)


class Clicks:
    """Batches of numbers, categories and clicks, the same ones each time."""

    def __init__(self, tables: int, rows: int, batch: int):
        self.generator = torch.Generator().manual_seed(0)
        self.shape = (tables, batch, BAG)
        self.rows = rows
        self.liking = torch.randn(tables, rows, generator=self.generator)

    def batch(self):
        categories = torch.randint(self.rows, self.shape, generator=self.generator)
        numbers = torch.randn(self.shape[1], DENSE, generator=self.generator)
        liked = self.liking.unsqueeze(1).expand(-1, self.shape[1], -1).gather(2, categories)
        return numbers, categories, (liked.sum((0, 2)) > 0).float()


def main(
    steps: int = 50,
    batch: int = 2048,
    rows: int = 100_000,
    tables: int = TABLES,
    width: int = 64,
    lr: float = 0.05,
    device: str = "tpu",
) -> dict[str, float]:
    """Returns the mean loss of the first and of the last steps, and the seconds of the first step and a steady one."""
    torch.manual_seed(0)
    model = DLRM(tables, rows, width).to(device)
    clicks = Clicks(tables, rows, batch)
    mlps = [*model.bottom.parameters(), *model.top.parameters()]
    # The tables are most of the memory: SGD keeps no state for them.
    optimizers = [torch.optim.SGD(model.tables.parameters(), lr=10 * lr), torch.optim.Adagrad(mlps, lr=lr)]
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        numbers, categories, clicked = (t.to(device) for t in clicks.batch())
        loss = F.binary_cross_entropy_with_logits(model(numbers, categories), clicked)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)
    losses = torch.stack(losses).tolist()
    few = max(steps // 5, 1)
    result = {"first_loss": sum(losses[:few]) / few, "last_loss": sum(losses[-few:]) / few}
    print(f"loss {result['first_loss']:.3f} -> {result['last_loss']:.3f} in {steps} steps")
    return result | {"first_step": seconds[0], "steady_step": min(seconds[1:], default=float("nan"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=100_000)
    main(**vars(parser.parse_args()))
