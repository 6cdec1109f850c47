"""Training step of an LSTM whose loop over time is Python's: 16 tokens, batch 16, width 128, SGD, float32.

``make_jax_step`` is the same maths under ``jax.jit``, which unrolls the loop too.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.steps import training_step

TOKENS, BATCH, WIDTH, CLASSES, RATE = 16, 16, 128, 10, 0.1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = c = torch.zeros(BATCH, WIDTH, device=x.device)
        for t in range(TOKENS):
            h, c = self.cell(x[t], (h, c))
        return self.head(h)


def make_step(device: str, backend: str | None = None):
    """A function that makes one training step and returns its loss; ``backend`` of torch.compile, None: eager."""
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x = torch.randn(TOKENS, BATCH, WIDTH).to(device)
    y = torch.randint(0, CLASSES, (BATCH,)).to(device)
    forward = torch.compile(model, backend=backend) if backend else model
    return training_step(lambda: F.cross_entropy(forward(x), y), optimizer)


def make_jax_step():
    """The same step in JAX; call it, then block on what it returns."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 5)
    state = [
        {
            "wx": jax.random.normal(keys[0], (WIDTH, 4 * WIDTH)) * 0.05,
            "wh": jax.random.normal(keys[1], (WIDTH, 4 * WIDTH)) * 0.05,
            "b": jnp.zeros(4 * WIDTH),
            "head": jax.random.normal(keys[2], (WIDTH, CLASSES)) * 0.05,
        }
    ]
    x, y = jax.random.normal(keys[3], (TOKENS, BATCH, WIDTH)), jax.random.randint(keys[4], (BATCH,), 0, CLASSES)

    def loss_of(p):
        h = c = jnp.zeros((BATCH, WIDTH))
        for t in range(TOKENS):
            i, f, g, o = jnp.split(x[t] @ p["wx"] + h @ p["wh"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return -jnp.take_along_axis(jax.nn.log_softmax(h @ p["head"]), y[:, None], 1).mean()

    def train(p):
        loss, gradients = jax.value_and_grad(loss_of)(p)
        return jax.tree.map(lambda a, b: a - RATE * b, p, gradients), loss

    jitted = jax.jit(train, donate_argnums=0)

    def step():
        state[0], loss = jitted(state[0])
        return loss

    return step
