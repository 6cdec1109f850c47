"""Checks the forward of every causal language model of transformers that can be built small, for a TPU.

    python tools/check_architectures.py [NAME ...] [--full] [--write]

Each architecture gets a tiny random configuration. Where it runs on the CPU, its forward is recorded and compiled for
v6e. Prints a line a model and the share that compiles; --write keeps the table in docs/data/architectures.tsv. Needs
libtpu and transformers; no TPU.
"""

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import torch

from torch_tpu import aot

TABLE = Path(__file__).parents[1] / "docs" / "data" / "architectures.tsv"
# What makes a configuration small, under the names that configurations use.
SMALL = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embedding_size": 64, "word_embed_proj_dim": 64,
    "intermediate_size": 128, "ffn_dim": 128, "d_ff": 128, "n_inner": 128, "decoder_ffn_dim": 128, "encoder_ffn_dim": 128,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "ffn_hidden_size": 128, "lru_width": 64,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "decoder_layers": 2, "encoder_layers": 2, "n_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "n_heads": 4, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rotary_dim": 8,
    "vocab_size": 128, "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "n_group": 1, "topk_group": 1, "state_size": 8, "expand": 2, "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip


# Some configurations compute these from others: what to leave out, or to set although the default does not, in turn.
ATTEMPTS = (((), ()), (("layer_types",), ()), (("layer_types", "head_dim"), ()), (("layer_types",), ("head_dim",)))


def small(config_class: type, without: tuple[str, ...] = (), forced: tuple[str, ...] = ()) -> object:
    """A tiny configuration of the class, its parts for text and images included."""
    default = config_class()
    given = {
        name: value
        for name, value in SMALL.items()
        if name in forced or (name not in without and getattr(default, name, None) is not None)
    }
    for name in getattr(default, "sub_configs", None) or {}:
        part = getattr(default, name, None)
        if part is not None:
            given[name] = small(type(part), without, forced).to_dict()
    if "layer_types" not in without and getattr(default, "layer_types", None):
        kinds = list(dict.fromkeys(default.layer_types))
        given["num_hidden_layers"] = max(2, len(kinds))
        given["layer_types"] = (kinds * 2)[: given["num_hidden_layers"]]
    return config_class(**given)


def architectures(chosen: tuple[str, ...]) -> Iterator[tuple[str, type, type]]:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    names = {config: name for name, config in CONFIG_MAPPING.items()}
    for config_class, model_class in MODEL_FOR_CAUSAL_LM_MAPPING.items():
        name = names.get(config_class, config_class.__name__)
        if not chosen or name in chosen:
            yield name, config_class, model_class


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]


def examine(config_class: type, model_class: type, depth: str = "quick") -> tuple[str, str]:
    """(result, why): ``not built``, ``not on the CPU``, ``compiles``, ``unsupported``, ``refused``, ..."""
    torch.manual_seed(0)
    ids = torch.randint(3, 128, (1, 16))
    found = ("", "")
    for without, forced in ATTEMPTS:
        model = None
        try:
            model = model_class(small(config_class, without, forced)).eval()
            with torch.no_grad():
                model(input_ids=ids)
            break
        except Exception as error:  # of many kinds: the sizes do not suit this architecture
            found = found if found[0] else ("not built" if model is None else "not on the CPU", first_line(error))
    else:
        return found
    try:
        report = aot.check(model, example_kwargs={"input_ids": ids}, topology="v6e", depth=depth)
    except Exception as error:
        return "failed", first_line(error)
    if report.unsupported:
        return "unsupported", ", ".join(op.name for op in report.unsupported)
    bad = [step for step in report.targets[0].steps if step.verdict != "ok"]
    return (bad[0].verdict, bad[0].message.splitlines()[0][:160]) if bad else ("compiles", "")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--full", is_flag=True, help="The whole compiler, code generation included.")
@click.option("--write", is_flag=True, help="Keep the table in docs/data/architectures.tsv.")
def main(names: tuple[str, ...], full: bool, write: bool) -> None:
    """Prints a line a model and the share that compiles."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    rows = []
    for name, config_class, model_class in architectures(names):
        result, why = examine(config_class, model_class, "full" if full else "quick")
        rows.append((name, model_class.__name__, result, why))
        click.echo(f"{name:24} {result:14} {why}")
        gc.collect()
    tried = [row for row in rows if row[2] not in ("not built", "not on the CPU")]
    passed = sum(row[2] == "compiles" for row in tried)
    click.echo(f"{passed} of {len(tried)} that run on the CPU compile for v6e; {len(rows)} architectures")
    if write:
        lines = ["model\tclass\tresult\twhy", *("\t".join(row) for row in rows)]
        TABLE.write_text("\n".join(line.rstrip("\t") for line in lines) + "\n")


if __name__ == "__main__":
    main()
