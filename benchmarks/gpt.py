"""Training step of a small decoder-only transformer: forward, backward, AdamW, float32.

4 layers, width 256, 4 heads, vocabulary 1024, batch 8 x 128 tokens. gpt_step.mlir is what JAX makes
of the same maths.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.adamw import adamw

LAYERS, WIDTH, HEADS, VOCAB, BATCH, TOKENS = 4, 256, 4, 1024, 8, 128


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


def make_step(device: str, backend: str | None = None):
    """A function that makes one training step and returns its loss; ``backend`` of torch.compile, None: eager."""
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randint(0, VOCAB, (BATCH, TOKENS)).to(device)
    y = torch.roll(x, -1, 1)
    forward = torch.compile(model, backend=backend) if backend else model

    def step() -> torch.Tensor:
        loss = forward(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_whole_step(device: str):
    """The same as one compiled graph: forward, backward, and AdamW in PyTorch's functional form."""
    torch.manual_seed(0)
    model = Model().to(device)
    parameters = list(model.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.zeros((), device=device) for _ in parameters]
    x = torch.randint(0, VOCAB, (BATCH, TOKENS)).to(device)
    y = torch.roll(x, -1, 1)
    torch._dynamo.config.trace_autograd_ops = True  # lets Dynamo put the backward into the graph

    @torch.compile(fullgraph=True)
    def step() -> torch.Tensor:
        loss = model(x, y)
        gradients = list(torch.autograd.grad(loss, parameters))
        with torch.no_grad():
            adamw(
                parameters, gradients, first, second, [], steps, foreach=True, capturable=True, amsgrad=False,
                beta1=0.9, beta2=0.999, lr=1e-3, weight_decay=0.01, eps=1e-8, maximize=False,
            )  # fmt: skip
        return loss.detach()

    return step
