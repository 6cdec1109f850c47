"""Training step of a small MLP, batch 8, float32, AdamW: what a step costs when there is little to compute.

Three layers of width 256 over 784 inputs. ``make_jax_step`` is the same maths under ``jax.jit`` with donation.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.steps import one_graph_step, training_step

BATCH, INPUTS, WIDTH, CLASSES, RATE = 8, 784, 256, 10, 1e-3


def _model_and_batch():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    ).to("tpu")
    return model, torch.randn(BATCH, INPUTS).to("tpu"), torch.randint(0, CLASSES, (BATCH,)).to("tpu")


def make_step():
    """A function that makes one training step, as users write it, and returns its loss."""
    model, x, y = _model_and_batch()
    return training_step(lambda: F.cross_entropy(model(x), y), torch.optim.AdamW(model.parameters(), lr=RATE))


def make_one_graph_step():
    """The same as one compiled graph."""
    model, x, y = _model_and_batch()
    return one_graph_step(lambda: F.cross_entropy(model(x), y), list(model.parameters()), RATE)


def make_jax_step():
    """The same step in JAX; call it, then block on what it returns."""
    import jax
    import jax.numpy as jnp

    def initial(key, rows, columns):
        return {"w": jax.random.normal(key, (rows, columns)) * 0.03, "b": jnp.zeros(columns)}

    keys = jax.random.split(jax.random.key(0), 3)
    sizes = ((INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, CLASSES))
    parameters = [initial(k, *s) for k, s in zip(keys, sizes, strict=True)]
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    x, y = jax.random.normal(keys[0], (BATCH, INPUTS)), jax.random.randint(keys[1], (BATCH,), 0, CLASSES)

    def loss_of(parameters):
        h = x
        for i, layer in enumerate(parameters):
            h = jnp.dot(h, layer["w"], precision="highest") + layer["b"]
            h = jax.nn.relu(h) if i < 2 else h
        return -jnp.take_along_axis(jax.nn.log_softmax(h), y[:, None], 1).mean()

    def update(p, g, m, v, t):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        change = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return p * (1 - RATE * 0.01) - RATE * change, m, v

    def train(state):
        parameters, m, v, t = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        flat = jax.tree.map(lambda *a: update(*a, t + 1), parameters, gradients, m, v)
        pick = lambda i: jax.tree.map(lambda a: a[i], flat, is_leaf=lambda a: isinstance(a, tuple))  # noqa: E731
        return (pick(0), pick(1), pick(2), t + 1), loss

    jitted = jax.jit(train, donate_argnums=0)
    state = [(parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros(()))]

    def step():
        state[0], loss = jitted(state[0])
        return loss

    return step
