"""Holds the check's time estimates against published speeds of training steps on real TPUs (tools/published_steps.toml).

    python tools/validate_estimator.py [--row TEXT] [--full]

Each row's model is built as a transformers Llama of its sizes with 1 and 2 layers, and its training step (AdamW, layers
computed again) is checked for one chip with 1 and 2 sequences. What a layer and what the rest takes for one sequence more,
times the row's layers and sequences, is the estimate: exact where layers and sequences are alike. It leaves out the
optimizer, which a slice shares, and FSDP's collectives, which these runs overlap with the computation. Prints estimate / published and the median error. Needs libtpu and transformers; no TPU.
"""

import statistics
import tomllib
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaModel

from torch_tpu import aot
from torch_tpu.aot import hardware

ROWS = Path(__file__).parent / "published_steps.toml"
HEAD = 128
LOSS_PART = 1024  # tokens of a sequence whose logits exist at a time


class Decoder(torch.nn.Module):
    """A Llama with a head, whose loss is summed up over parts of the sequence: all logits at once would not fit."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.model = LlamaModel(config)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.model(ids).last_hidden_state
        parts = zip(hidden.split(LOSS_PART, 1), labels.split(LOSS_PART, 1), strict=True)
        return sum(checkpoint(self.part_of_loss, h, y, use_reentrant=False) for h, y in parts) / ids.shape[1]

    def part_of_loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(hidden).float()
        return F.cross_entropy(logits.transpose(1, 2), labels) * labels.shape[1]


def parameters(model: dict) -> int:
    """Of the whole model, with its two embeddings."""
    attention = 2 * model["hidden"] * HEAD * (model["heads"] + model["key_heads"])
    layer = attention + 3 * model["hidden"] * model["mlp"]
    return model["layers"] * layer + 2 * model["vocabulary"] * model["hidden"]


def published_seconds(row: dict) -> float:
    tokens = row["batch"] * row["sequence"]
    if "seconds" in row:
        return row["seconds"]
    if "tokens" in row:
        return tokens / row["tokens"]
    model = row["model"]
    attention = 12 * model["layers"] * model["heads"] * HEAD * row["sequence"]
    return tokens * (6 * parameters(model) + attention) / (row["tflops"] * 1e12)


Seconds = tuple[float, float, float]


def difference(one: Seconds, other: Seconds) -> Seconds:
    return tuple(b - a for a, b in zip(one, other, strict=True))


def estimated_seconds(row: dict, layers: int, batch: int, depth: str) -> Seconds:
    model = row["model"]
    config = LlamaConfig(
        hidden_size=model["hidden"],
        intermediate_size=model["mlp"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model["key_heads"],
        head_dim=HEAD,
        num_hidden_layers=layers,
        vocab_size=model["vocabulary"],
        max_position_embeddings=row["sequence"],
        use_cache=False,
    )
    with torch.device("meta"):
        network = Decoder(config).to(torch.bfloat16)
    network.model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.empty(batch, row["sequence"], dtype=torch.int64, device="meta")
    report = aot.check(
        network,
        ids,
        ids,
        topology=hardware.parse(row["topology"]).chip.generation,
        train=True,
        depth=depth,
    )
    step = report.targets[0].steps[-1]
    if step.time is None:
        raise click.ClickException(f"{row['name']} on {row['topology']}: {step.verdict}: {step.message}")
    return step.time.lower, step.time.expected, step.time.upper


@click.command()
@click.option("--row", "chosen", default="", help="Only rows whose name or topology holds this text.")
@click.option("--full", is_flag=True, help="The whole compiler, with its cycles for matrix products: minutes a row.")
def main(chosen: str, full: bool) -> None:
    """Prints estimate / published for each row, and the median error."""
    errors, inside = [], 0
    for row in tomllib.loads(ROWS.read_text())["row"]:
        if chosen not in f"{row['name']} {row['topology']}":
            continue
        layers, batch, depth = row["model"]["layers"], row["batch"], "full" if full else "quick"
        one, two = (difference(*(estimated_seconds(row, n, sequences, depth) for sequences in (1, 2))) for n in (1, 2))
        a_layer = difference(one, two)
        lower, expected, upper = (batch * (a + (layers - 1) * b) for a, b in zip(one, a_layer, strict=True))
        published = published_seconds(row)
        errors.append(abs(expected / published - 1))
        inside += lower <= published <= upper
        click.echo(
            f"{row['name']:28} {row['topology']:8} {row['recompute']:8} published {published:6.3f} s  "
            f"estimate {lower:6.3f} {expected:6.3f} {upper:6.3f} s  expected / published {expected / published:.2f}"
        )
    click.echo(
        f"{len(errors)} rows; median error {statistics.median(errors):.0%}, largest {max(errors):.0%}; "
        f"{inside} of them between lower and upper"
    )


if __name__ == "__main__":
    main()
