"""A transformer's training loop on ``tpu`` with what real ones have: AdamW, gradient clipping, a
learning-rate schedule, bfloat16 autocast, and a checkpoint from which training goes on.

It trains a small character model on the Zen of Python.
usage: python examples/train_transformer.py [--steps N] [--checkpoint FILE] [--resume]
"""

import argparse
import codecs
import contextlib
import io
import itertools
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.progress import Progress
from torch import nn

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 32, 64, 4, 2, 16


def load_text() -> str:
    with contextlib.redirect_stdout(io.StringIO()):  # the module prints itself
        import this
    return codecs.decode(this.s, "rot13")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, symbols: int):
        super().__init__()
        self.tokens = nn.Embedding(symbols, WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, symbols, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))


class Trainer:
    """A model with its optimizer and schedule, and the number of steps taken."""

    def __init__(self, device: str, total_steps: int):
        text = load_text()
        self.alphabet = sorted(set(text))
        self.text = torch.tensor([self.alphabet.index(c) for c in text])
        self.device = device
        torch.manual_seed(0)
        self.model = Model(len(self.alphabet)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=3e-3, total_steps=total_steps)
        self.steps_done = 0

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Characters and the ones after them: the same batch for the same step, resumed or not."""
        generator = torch.Generator().manual_seed(self.steps_done)
        starts = torch.randint(len(self.text) - CONTEXT - 1, (BATCH, 1), generator=generator)
        window = self.text[starts + torch.arange(CONTEXT + 1)].to(self.device)
        return window[:, :-1], window[:, 1:]

    def step(self) -> torch.Tensor:
        """One update. Returns the loss, still on the device."""
        x, y = self.batch()
        with torch.autocast("tpu"):
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.steps_done += 1
        return loss.detach()

    def save(self, path: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "steps_done": self.steps_done,
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.steps_done = state["steps_done"]


def main(
    steps: int = 200, checkpoint: str | Path | None = None, resume: bool = False, stop_at: int | None = None
) -> dict[str, float]:
    """Trains up to `steps` in all (or stops at `stop_at`, as if interrupted), and saves to `checkpoint`.

    Returns the last loss, and the seconds of the first step and of a steady one.
    """
    trainer = Trainer("tpu", steps)
    if resume:
        trainer.load(Path(checkpoint))
        print(f"resumed after step {trainer.steps_done}")
    last = steps if stop_at is None else stop_at
    first_step, marks = None, []
    with Progress() as progress:
        task = progress.add_task("transformer", total=steps, completed=trainer.steps_done)
        while trainer.steps_done < last:
            start = time.perf_counter()
            loss = trainer.step()
            if first_step is None:
                torch.accelerator.synchronize()
                first_step = time.perf_counter() - start
            if trainer.steps_done % 10 == 0 or trainer.steps_done == last:
                # Reading the loss waits for the steps so far.
                description = f"transformer  step {trainer.steps_done:3}  loss {loss.item():.4f}"
                progress.update(task, completed=trainer.steps_done, description=description)
                marks.append((trainer.steps_done, time.perf_counter()))
    if checkpoint is not None:
        trainer.save(Path(checkpoint))
    pace = [(t1 - t0) / (s1 - s0) for (s0, t0), (s1, t1) in itertools.pairwise(marks)]
    result = {"loss": loss.item(), "first_step": first_step, "steady_step": min(pace, default=float("nan"))}
    print(f"loss after step {trainer.steps_done}: {result['loss']:.4f}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    main(**vars(parser.parse_args()))
