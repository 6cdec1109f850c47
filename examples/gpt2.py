"""Trains a language model of GPT-2's size (124 million parameters) on ``tpu``: AdamW with decay for matrices only,
warm-up and cosine, gradient accumulation, bfloat16 autocast.

It reads the bytes of a text file, or of this one.
usage: python examples/gpt2.py [--text FILE] [--batch N] [--context N] [--steps N] [--layers N --width N --heads N]
"""

import argparse
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 50304  # GPT-2's 50,257 symbols, filled up to a multiple of 128


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, context: int, layers: int, width: int, heads: int, vocabulary: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:  # what adds to the residual stream starts smaller
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def learning_rate(step: int, steps: int, peak: float) -> float:
    warm_up = max(steps // 10, 1)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm_up) / max(steps - warm_up, 1))))


def main(
    steps: int = 20,
    batch: int = 8,
    context: int = 1024,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = VOCABULARY,
    accumulate: int = 1,
    text: Path = Path(__file__),
    device: str = "tpu",
) -> dict[str, float]:
    """Returns the first and the last loss, and the seconds of the first step and of a steady one."""
    torch.manual_seed(0)
    symbols = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    symbols = symbols.repeat(-(-(context + 2) // len(symbols)))  # a short text is read several times
    generator = torch.Generator().manual_seed(0)

    def next_batch():
        starts = torch.randint(len(symbols) - context, (batch, 1), generator=generator)
        window = symbols[starts + torch.arange(context + 1)].to(device)
        return window[:, :-1], window[:, 1:]

    model = GPT(context, layers, width, heads, vocabulary).to(device)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))

    losses, seconds = [], []
    for step in range(steps):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak=6e-4)
        for _ in range(accumulate):
            x, y = next_batch()
            with torch.autocast(device):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach() * accumulate)
        torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)
    result = {"first_loss": losses[0].item(), "last_loss": losses[-1].item()}
    print(f"loss {result['first_loss']:.3f} -> {result['last_loss']:.3f} in {steps} steps")
    return result | {"first_step": seconds[0], "steady_step": min(seconds[1:], default=float("nan"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, default=Path(__file__))
    for name, default in (
        ("steps", 20), ("batch", 8), ("context", 1024), ("layers", 12), ("width", 768), ("heads", 12), ("accumulate", 1),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    main(**vars(parser.parse_args()))
