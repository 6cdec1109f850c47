"""Training step of a small decoder-only transformer: forward, backward, AdamW, float32.

4 layers, width 256, 4 heads, vocabulary 1024, batch 8 x 128 tokens. gpt_step.mlir is what JAX makes
of the same maths.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from benchmarks.steps import one_graph_step, training_step

LAYERS, WIDTH, HEADS, VOCAB, BATCH, TOKENS, RATE = 4, 256, 4, 1024, 8, 128, 1e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, h):
        q, k, v = (
            t.view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in self.qkv(self.norm1(h)).split(WIDTH, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(a.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(h).view(-1, VOCAB), y.view(-1))


def _model_and_batch(device: str):
    torch.manual_seed(0)
    model = Model().to(device)
    x = torch.randint(0, VOCAB, (BATCH, TOKENS)).to(device)
    return model, x, torch.roll(x, -1, 1)


def make_step(device: str, backend: str | None = None):
    """A function that makes one training step and returns its loss; ``backend`` of torch.compile, None: eager."""
    model, x, y = _model_and_batch(device)
    forward = torch.compile(model, backend=backend) if backend else model
    return training_step(lambda: forward(x, y), torch.optim.AdamW(model.parameters(), lr=RATE))


def make_one_graph_step(device: str):
    """The same as one compiled graph."""
    model, x, y = _model_and_batch(device)
    return one_graph_step(lambda: model(x, y), list(model.parameters()), RATE)
