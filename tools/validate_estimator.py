"""Holds the check's time estimates against published speeds of training steps on real TPUs (tools/published_steps.toml).

    python tools/validate_estimator.py [--row TEXT] [--full]

Each row's decoder is built with 1 and with 2 layers, as the row says: the splash attention kernel with its blocks, and
what a layer keeps for the backward. Its loss and gradients, for the sequences of one chip (or as many as fit with all
logits at once), are checked for one chip; a layer's time, times the row's layers, and the rest is the estimate, with FSDP's collectives as the check counts them: 8
bytes a parameter over the slice's links, hidden in the lower figure, not hidden in the expected one. It leaves out the
optimizer, which a slice shares, and copies to host memory.
Prints estimate / published for each row and the median error. Needs libtpu and jax; no TPU.
"""

import statistics
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from torch_tpu import aot, pallas
from torch_tpu.aot import hardware
from torch_tpu.aot.report import Time

ROWS = Path(__file__).parent / "published_steps.toml"
HEAD = 128
BLOCK = 512
GATHERED = 8  # bytes of each parameter over a device's links
# The stages of a layer, by what each makes.
STAGES = ("qkv", "context", "out", "mlp", "end")

Values = tuple[torch.Tensor, ...]


@cache
def splash(heads: int, length: int, blocks: tuple[int, ...], fused: bool) -> Callable:
    """JAX's causal splash attention of a batch, with the blocks (rows, keys) of its forward, dk/dv and dq kernels."""
    import jax
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    q, kv, q_dkv, kv_dkv, q_dq, kv_dq = (min(block, length) for block in blocks)
    sizes = kernel.BlockSizes(
        block_q=q, block_kv=kv, block_kv_compute=kv,
        block_q_dkv=q_dkv, block_kv_dkv=kv_dkv, block_kv_dkv_compute=kv_dkv,
        block_q_dq=None if fused else q_dq, block_kv_dq=None if fused else kv_dq,
        use_fused_bwd_kernel=fused,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    return jax.vmap(kernel.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Layer(torch.nn.Module):
    def __init__(self, row: dict):
        super().__init__()
        model = row["model"]
        self.head, self.heads, self.key_heads = model.get("head", HEAD), model["heads"], model["key_heads"]
        linear, width = partial(torch.nn.Linear, bias=False), model["hidden"]
        self.attention_norm, self.mlp_norm = (torch.nn.RMSNorm(width) for _ in range(2))
        self.query = linear(width, self.heads * self.head)
        self.key, self.value = (linear(width, self.key_heads * self.head) for _ in range(2))
        self.query_norm, self.key_norm = (
            torch.nn.RMSNorm(self.head) if model.get("query_norm") else torch.nn.Identity() for _ in range(2)
        )
        self.output = linear(self.heads * self.head, width)
        self.gate = linear(width, model["mlp"]) if model.get("gated", True) else None
        self.up, self.down = linear(width, model["mlp"]), linear(model["mlp"], width)
        self.attend = splash(
            self.heads, row["sequence"], tuple(row.get("blocks", [BLOCK] * 6)), row.get("fused_backward", False)
        )
        self.length = row["sequence"]
        self.keeps = row["keeps"]

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Stages up to one whose result is kept are computed again together in the backward."""
        values: Values = (x, cos, sin)
        run: list[Callable[..., Values]] = []
        for name in STAGES:
            run.append(getattr(self, name))
            if name not in (*self.keeps, "end"):
                continue
            if run == [self.context]:  # what the kernel's backward needs is kept
                values = self.context(*values)
            else:
                values = checkpoint(partial(self.together, tuple(run)), *values, use_reentrant=False)
            run = []
        return values[0]

    def together(self, run: tuple[Callable[..., Values], ...], *values: torch.Tensor) -> Values:
        for stage in run:
            values = stage(*values)
        return values

    def qkv(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Values:
        normal = self.attention_norm(x)
        query, key, value = (
            projection(normal).view(-1, self.length, projection.out_features // self.head, self.head).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotated(self.query_norm(query), cos, sin), rotated(self.key_norm(key), cos, sin)
        return x, query * self.head**-0.5, key, value

    def context(self, x: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Values:
        return x, pallas.call(self.attend, query, key, value).transpose(1, 2).flatten(2).flatten(0, 1)

    def out(self, x: torch.Tensor, context: torch.Tensor) -> Values:
        return x, self.output(context)

    def mlp(self, x: torch.Tensor, attended: torch.Tensor) -> Values:
        x = x + attended
        normal = self.mlp_norm(x)
        return (x, self.up(normal)) if self.gate is None else (x, self.up(normal), self.gate(normal))

    def end(self, x: torch.Tensor, up: torch.Tensor, gate: torch.Tensor | None = None) -> Values:
        return (x + self.down(F.gelu(up) if gate is None else F.silu(gate) * up),)


class Decoder(torch.nn.Module):
    """A decoder with a head and its loss, in bfloat16; the loss is of float32 logits."""

    def __init__(self, row: dict, layers: int):
        super().__init__()
        model = row["model"]
        self.embedding = torch.nn.Embedding(model["vocabulary"], model["hidden"])
        self.layers = torch.nn.ModuleList(Layer(row) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(model["hidden"])
        self.head = torch.nn.Linear(model["hidden"], model["vocabulary"], bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids.flatten())
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).float(), labels.flatten())


class NoOptimizer(torch.optim.Optimizer):
    """The step ends with the gradients."""

    def __init__(self, parameters: list[torch.nn.Parameter]):
        super().__init__(parameters, {})

    def step(self, closure: Callable | None = None) -> None:
        assert closure is None


def parameters(model: dict) -> int:
    return matrix_parameters(model) + model["vocabulary"] * model["hidden"]


def matrix_parameters(model: dict) -> int:
    """Of a model's products: its layers and its head."""
    attention = 2 * model["hidden"] * model.get("head", HEAD) * (model["heads"] + model["key_heads"])
    layer = attention + (3 if model.get("gated", True) else 2) * model["hidden"] * model["mlp"]
    return model["layers"] * layer + model["vocabulary"] * model["hidden"]


def published_seconds(row: dict) -> float:
    tokens = row["batch"] * row["sequence"]
    if "seconds" in row:
        return row["seconds"]
    if "tokens" in row:
        return tokens / row["tokens"]
    model = row["model"]
    attention = 12 * model["layers"] * model["heads"] * model.get("head", HEAD) * row["sequence"]
    return tokens * (6 * matrix_parameters(model) + attention) / (row["tflops"] * 1e12)


Seconds = tuple[float, float, float]  # lower, expected, upper


def sequences_that_fit(row: dict) -> int:
    """The most of a row's sequences that one chip holds, without that the compiler computes more to save memory."""
    alone = of_layers(row, 2, 1, "quick")
    for sequences in range(row["batch"], 1, -1):
        time = of_layers(row, 2, sequences, "quick")
        if time is not None and time.flops < 1.001 * sequences * alone.flops:
            return sequences
    return 1


def estimated_seconds(row: dict, depth: str) -> Seconds:
    sequences = sequences_that_fit(row)
    one, two = (of_layers(row, layers, sequences, depth) for layers in (1, 2))
    layers, scale = row["model"]["layers"], row["batch"] / sequences
    lower, expected, upper = (
        scale * (a + (layers - 1) * (b - a))
        for a, b in ((one.lower, two.lower), (one.expected, two.expected), (one.upper, two.upper))
    )
    exchanged = exchange_seconds(row)
    return max(lower, exchanged), expected + exchanged, upper + 2 * exchanged


def exchange_seconds(row: dict) -> float:
    """FSDP's: weights come twice, in bfloat16; of the float32 gradients each device gets its part of the sum."""
    target = hardware.parse(row["topology"])
    others = (target.devices - 1) / target.devices
    return others * GATHERED * parameters(row["model"]) / target.gather_bandwidth


def of_layers(row: dict, layers: int, sequences: int, depth: str) -> Time | None:
    """Of the model with so few layers; None if the chip cannot hold it."""
    with torch.device("meta"):
        network = Decoder(row, layers).to(torch.bfloat16)
    ids = torch.empty(sequences, row["sequence"], dtype=torch.int64, device="meta")
    angles = torch.empty(row["sequence"], row["model"].get("head", HEAD), dtype=torch.bfloat16, device="meta")
    report = aot.check(
        network,
        *(ids, ids, angles, angles),
        topology=hardware.parse(row["topology"]).chip.generation,
        train=True,
        optimizer=NoOptimizer,
        depth=depth,
    )
    step = report.targets[0].steps[-1]
    if step.verdict == "oom":
        return None
    if step.time is None:
        raise click.ClickException(f"{row['name']} on {row['topology']}: {step.verdict}: {step.message}")
    return step.time


@click.command()
@click.option("--row", "chosen", default="", help="Only rows whose name or topology holds this text.")
@click.option("--full", is_flag=True, help="The whole compiler, with its cycles for matrix products: minutes a row.")
def main(chosen: str, full: bool) -> None:
    """Prints estimate / published for each row, and the median error."""
    errors, hidden, inside, rows = [], [], 0, []
    click.echo(f"{'':32}{'':13}{'published':>9}  {'lower':>8}{'expected':>9}{'upper':>8}  expected / published")
    for row in tomllib.loads(ROWS.read_text())["row"]:
        if chosen not in f"{row['name']} {row['topology']}":
            continue
        lower, expected, upper = estimated_seconds(row, "full" if full else "quick")
        published = published_seconds(row)
        rows.append(row)
        errors.append(abs(expected / published - 1))
        hidden.append(abs((expected - exchange_seconds(row)) / published - 1))
        inside += lower <= published <= upper
        click.echo(
            f"{row['name']:32}{row['topology']:13}{published:7.3f} s  {lower:8.3f}{expected:9.3f}{upper:8.3f}"
            f"  {expected / published:.2f}"
        )
    models = {row["name"].partition(",")[0] for row in rows}
    chips = {hardware.parse(row["topology"]).chip.generation for row in rows}
    click.echo(
        f"{len(rows)} rows, {len(models)} models, {len(chips)} generations of chips. Error of the expected time: median "
        f"{statistics.median(errors):.0%}, largest {max(errors):.0%}; if all collectives hid: median "
        f"{statistics.median(hidden):.0%}, largest {max(hidden):.0%}. {inside} published times are between lower and upper."
    )


if __name__ == "__main__":
    main()
