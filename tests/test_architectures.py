"""A handful of transformers' architectures compile for a TPU, and run as on the CPU; tools/check_architectures.py asks it of all."""

import pytest
import torch

from tests.marks import needs_libtpu
from tools import check_architectures
from tools.agreement import agreement

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def compiler():
    from torch_tpu.aot.compiler import Compiler

    with Compiler(timeout=60) as compiler:
        yield compiler


# Dense, with experts, recurrent, with relative positions, and of layers of two kinds.
@needs_libtpu
@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "MixtralForCausalLM", "MambaForCausalLM", "XLNetLMHeadModel", "Lfm2ForCausalLM"]
)
def test_it_compiles(name, compiler, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CHECK_CACHE", "")
    assert check_architectures.examine(name, "quick", compiler)[0] == "compiles"


@pytest.mark.parametrize("name", ["MixtralForCausalLM", "MambaForCausalLM", "XLNetLMHeadModel"])
def test_it_runs_as_on_the_cpu(name):
    assert check_architectures.run(name) == ("agrees", "")


def test_a_model_that_gives_something_else_differs():
    class Weighed(torch.nn.Linear):
        def forward(self, x):
            return {"y": super().forward(x) + (1e-3 if x.device.type == "tpu" else 0)}

    assert agreement(Weighed(4, 4), {"x": torch.ones(2, 4)})[0] == "differs"


def test_what_does_not_run_on_the_cpu_says_why():
    assert check_architectures.on_cpu("Gemma4AssistantForCausalLM").startswith("built: ")


@needs_libtpu
def test_a_class_that_takes_too_long_costs_no_other():
    rows = check_architectures.results(["LlamaForCausalLM", "GPT2LMHeadModel"], "quick", 0.01)
    assert [row[:2] for row in rows] == [("LlamaForCausalLM", "too slow"), ("GPT2LMHeadModel", "too slow")]


def test_the_kept_table_says_what_the_docs_say():
    rows = check_architectures.table("compile")
    ran = [result for result, _ in rows.values() if result != "not run"]
    compiles = ran.count("compiles")
    page = (check_architectures.DATA.parent / "check.md").read_text()
    assert f"{compiles} of {len(ran)} that run on the CPU compile" in page
    assert compiles >= 0.95 * len(ran)
    ran = [result for result, _ in check_architectures.table("run").values() if result != "not run"]
    assert f"{ran.count('agrees')} of {len(ran)} give the same" in page
