"""A transformers causal language model from its configuration alone: no weights are read or made."""

from pathlib import Path
from typing import Any

import torch

from torch_tpu.aot.errors import CheckError, first_line


def causal_lm(
    config: str, batch: int, sequence: int | None, dtype: torch.dtype, train: bool
) -> tuple[torch.nn.Module, dict[str, Any], int]:
    """The model on ``meta``, its keyword arguments, and the sequence length. ``config``: a folder, or a name on the hub."""
    folder = Path(config)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise CheckError(f"{config} holds no config.json.", "Give a folder with a transformers configuration.")
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        raise CheckError("--hf needs the package transformers.", "Install it: pip install transformers") from None
    try:
        loaded = AutoConfig.from_pretrained(config)
    except Exception as error:  # of many kinds, all about the configuration
        first = first_line(error) or type(error).__name__
        raise CheckError(
            f"The configuration {config} does not load: {first}", "Give a folder with a config.json."
        ) from error
    longest = getattr(loaded, "max_position_embeddings", None) or 2048
    sequence = sequence or min(longest, 2048)
    if sequence > longest:
        raise CheckError(f"--seq {sequence}: the model's positions end at {longest}.", f"Give at most {longest}.")
    loaded.use_cache = False
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(loaded, dtype=dtype)
    except ValueError as error:
        raise CheckError(f"{config} is no causal language model: {first_line(error)}") from error
    model.train(train)
    ids = torch.empty(batch, sequence, dtype=torch.int64, device="meta")
    return model, {"input_ids": ids} | ({"labels": ids} if train else {}), sequence
