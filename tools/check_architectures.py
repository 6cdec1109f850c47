"""Tries every causal language model of transformers, made small: for a TPU, or on device `tpu` as it is here.

    python tools/check_architectures.py [CLASS ...] [--full | --run] [--write] [--resume]

Each model class that AutoModelForCausalLM knows gets a tiny random configuration. Where that runs on the CPU, the forward
is recorded and compiled for v6e; or, with --run, forward and backward run on device `tpu`, no op falling back to the CPU,
and results and gradients are held against the CPU's. The classes are examined in child processes: one that crashes or takes too
long is a row of the table, and costs no other. Prints a line a class and the share that passes; --write keeps the table in
docs/data, row by row, and --resume takes those that stand there as done. Needs transformers, and libtpu unless with --run; no TPU.
"""

import gc
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from tools.agreement import agreement  # noqa: E402
from tools.json_worker import JsonWorker, serve  # noqa: E402

DATA = ROOT / "docs" / "data"
# By what is asked: the kept table, and the result that passes.
TABLES = {"compile": DATA / "architectures.tsv", "run": DATA / "architectures_run.tsv"}
PASSES = {"compile": "compiles", "run": "agrees"}
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
    "index_topk": 8, "index_head_dim": 16, "index_n_heads": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
# What a class needs beside that, or instead of it; None: its own default.
NEEDS: dict[str, dict[str, Any]] = {
    "AXK2ForCausalLM": {"num_key_value_heads": 4},
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 2, "num_key_value_heads": 4},
    "DeepseekV32ForCausalLM": {"num_key_value_heads": 4},
    "GlmMoeDsaForCausalLM": {"num_key_value_heads": 4},
    "BltForCausalLM": {
        "encoder_hash_byte_group_vocab": 128,
        "encoder_config": {"hidden_size_global": 64, "vocab_size": 260}, "decoder_config": {"hidden_size_global": 64, "vocab_size": 260},
        "patcher_config": {"vocab_size": 260}, "vocab_size": 260,
    },
    "CohereCompassForCausalLM": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}},
    },
    "DbrxForCausalLM": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}, "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "Gemma3nForCausalLM": {
        "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8,
    },
    "Gemma4ForCausalLM": {"vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8},
    "Gemma4ForConditionalGeneration": {"text_config": {"vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8}},
    "Dots1ForCausalLM": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]]},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "LongcatFlashForCausalLM": {"num_key_value_heads": 4, "head_dim": 8},
    "Mamba2ForCausalLM": {"num_heads": 8, "n_groups": 1},
    "FalconH1ForCausalLM": {"mamba_d_ssm": 128},
    "NemotronForCausalLM": {"num_key_value_heads": 2},
    "ProphetNetForCausalLM": {
        "num_hidden_layers": None, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4, "num_attention_heads": None, "is_decoder": True, "is_encoder_decoder": False,
        "add_cross_attention": False,
    },
    "ReformerModelWithLMHead": {
        "is_decoder": True, "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [32, 32], "attention_head_size": 16,
        "feed_forward_size": 128, "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
    },
    "XLNetLMHeadModel": {"max_position_embeddings": None, "n_layer": 2, "d_inner": 128},
    "XmodForCausalLM": {"default_language": "en_XX", "is_decoder": True},
    "ZambaForCausalLM": {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "linear_attention", "hybrid"], "num_hidden_layers": 5, "num_key_value_heads": 4, "head_dim": None, "layer_types": None},
    "Zamba2ForCausalLM": {"layers_block_type": ["linear_attention", "hybrid"], "num_key_value_heads": 4, "head_dim": None, "layer_types": None},
    "ZayaForCausalLM": {"num_experts_per_tok": 1},
    "xLSTMForCausalLM": {"v_head_dim": None},
}  # fmt: skip
# The shape of the ids, where it is not (1, 16): one row a codebook.
INPUTS = {"MusicgenForCausalLM": (4, 16), "MusicgenMelodyForCausalLM": (4, 16)}
# Values that the host reads, which a tensor without data does not have.
VALUES = {
    "BltForCausalLM": {"modeling_blt.py:971": 15},  # ids that have a patch's start
    "JetMoeForCausalLM": {"modeling_jetmoe.py:195": 8},  # ids that an expert gets, of 16 times 2 over 4 experts
}

# Some configurations compute these from others: what to leave out, or to set although the default does not, in turn.
ATTEMPTS = (((), ()), (("layer_types",), ()), (("layer_types", "head_dim"), ()), (("layer_types",), ("head_dim",)))


def small(
    config_class: type, without: tuple[str, ...] = (), forced: tuple[str, ...] = (), needs: dict[str, Any] | None = None
) -> Any:
    """A tiny configuration of the class, its parts for text and images included."""
    default, needs = config_class(), needs or {}
    computed = {name for c in config_class.__mro__ for name, x in vars(c).items() if isinstance(x, property)}
    settable = lambda name: name not in without and (name not in computed or name in SMALL)  # noqa: E731
    given = {
        name: value
        for name, value in SMALL.items()
        if name in forced or (settable(name) and getattr(default, name, None) is not None)
    }
    parts = {name: getattr(default, name, None) for name in getattr(default, "sub_configs", None) or {}}
    for name, part in parts.items():
        if part is not None:
            given[name] = small(type(part), without, forced, needs.get(name)).to_dict()
    if settable("layer_types") and getattr(default, "layer_types", None):
        kinds = list(dict.fromkeys(default.layer_types))
        given["num_hidden_layers"] = max(2, len(kinds))
        given["layer_types"] = (kinds * 2)[: given["num_hidden_layers"]]
    given |= {name: value for name, value in needs.items() if name not in parts}
    return config_class(**{name: value for name, value in given.items() if value is not None})


def architectures() -> list[str]:
    """The names of the classes of causal language models; importing them all would take longer than a check."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    return list(dict.fromkeys(n for x in NAMES.values() for n in (x if isinstance(x, tuple) else (x,))))


def table(asked: str) -> dict[str, tuple[str, str]]:
    """The kept table: (result, why) by class."""
    lines = TABLES[asked].read_text().splitlines()[1:] if TABLES[asked].is_file() else []
    return {name: (result, why) for name, result, why in ((line + "\t").split("\t")[:3] for line in lines)}


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def on_cpu(name: str) -> tuple[Any, dict[str, torch.Tensor]] | str:
    """The small model and its inputs, after it ran; or why it did not."""
    import transformers

    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    ids = torch.randint(3, 128, INPUTS.get(name, (1, 16)))
    why = ""
    for without, forced in ATTEMPTS:
        model = None
        try:
            model = model_class(small(model_class.config_class, without, forced, NEEDS.get(name))).eval()
            with torch.no_grad():
                model(input_ids=ids)
            return model, {"input_ids": ids}
        except Exception as error:  # of many kinds: the sizes do not suit this architecture
            why = why or f"{'built' if model is None else 'run'}: {first_line(error)}"
    return why


def examine(name: str, depth: str, compiler: Any) -> tuple[str, str]:
    """(result, why): ``not run`` on the CPU, ``compiles``, ``failed`` (the recording), ``unsupported`` (ops), ``refused``, ..."""
    from torch_tpu import aot

    made = on_cpu(name)
    if isinstance(made, str):
        return "not run", made
    model, inputs = made
    try:
        report = aot.check(
            model,
            example_kwargs=inputs,
            topology="v6e",
            depth=depth,
            values=VALUES.get(name),
            compiler=compiler,
        )
    except Exception as error:
        return "failed", first_line(error)
    if report.unsupported:
        return "unsupported", ", ".join(op.name for op in report.unsupported)
    for step in report.targets[0].steps:
        if step.verdict != "ok":
            return step.verdict, step.message.splitlines()[0][:160]
    reads = sum(f.count for f in report.findings if f.kind == "host read")
    return "compiles", f"the host reads {reads} values" if reads else ""


def run(name: str) -> tuple[str, str]:
    """(result, why): ``not run`` on the CPU, ``agrees``, ``differs``, ``failed``."""
    made = on_cpu(name)
    if isinstance(made, str):
        return "not run", made
    try:
        return agreement(*made)
    except Exception as error:
        return "failed", first_line(error)


# --- processes


def work(how: str) -> None:
    """Examines the classes that ``results`` asks for."""
    from torch_tpu.aot.compiler import Compiler

    warnings.filterwarnings("ignore")
    with Compiler(timeout=500) as compiler:

        def answer(name: str) -> dict[str, str]:
            result, why = run(name) if how == "run" else examine(name, how, compiler)
            gc.collect()
            return {"status": result, "why": why}

        serve(answer)


def results(names: list[str], how: str, seconds: float) -> Iterator[tuple[str, str, str]]:
    """(class, result, why) of each; ``how``: ``quick``, ``full`` or ``run``. A process examines several, since importing
    transformers takes longer than a check."""
    command = [sys.executable, __file__, "--work", *([] if how == "quick" else [f"--{how}"])]
    refused = {"TORCH_TPU_FALLBACK": "error"} if how == "run" else {}
    worker = JsonWorker(command, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"} | refused)
    ends = {"hang": "too slow", "crash": "crashed"}
    try:
        for done, name in enumerate(names, 1):
            answer = worker.ask(name, seconds)
            yield name, ends.get(answer["status"], answer["status"]), answer["why"]
            if done % 25 == 0:
                worker.close()  # models leave memory behind
    finally:
        worker.close()


@click.command()
@click.argument("names", nargs=-1)
@click.option("--full", is_flag=True, help="The whole compiler, code generation included.")
@click.option("--run", "is_run", is_flag=True, help="Run them on device tpu, and compare with the CPU.")
@click.option("--write", is_flag=True, help="Keep the rows in docs/data/architectures.tsv, or architectures_run.tsv.")
@click.option("--resume", is_flag=True, help="Leave out the classes that the table has already.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for a class.")
@click.option("--work", "is_worker", is_flag=True, hidden=True)
def main(
    names: tuple[str, ...], full: bool, is_run: bool, write: bool, resume: bool, timeout: float, is_worker: bool
) -> None:
    """Prints a line a class and the share that passes."""
    if full and is_run:
        raise click.UsageError("--full is of the TPU's compiler, which --run does not ask: give one of them.")
    how = "run" if is_run else "full" if full else "quick"
    asked = "run" if is_run else "compile"
    if is_worker:
        work(how)
        return
    known = architectures()
    if unknown := set(names) - set(known):
        raise click.UsageError(
            f"No causal language model: {', '.join(sorted(unknown))}. Give class names, such as GPT2LMHeadModel."
        )
    kept = table(asked) if resume or (names and write) else {}
    todo = [name for name in names or known if not (resume and name in kept)]
    start = time.monotonic()
    for done, (name, result, why) in enumerate(results(todo, how, timeout), 1):
        kept[name] = result, why
        click.echo(f"{done:3}/{len(todo)} {time.monotonic() - start:5.0f} s  {name:36} {result:12} {why}")
        if write:
            rows = ["\t".join((n, *kept[n])).rstrip("\t") for n in known if n in kept]
            TABLES[asked].write_text("\n".join(["class\tresult\twhy", *rows]) + "\n")
    ran = [result for result, _ in kept.values() if result != "not run"]
    passed = ran.count(PASSES[asked])
    share = f" ({passed / len(ran):.1%})" if ran else ""
    does = "give the same on tpu, forward and backward" if is_run else "compile for v6e"
    click.echo(f"{passed} of {len(ran)} that run on the CPU {does}{share}; {len(kept)} classes")


if __name__ == "__main__":
    main()
