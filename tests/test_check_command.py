"""`torch-tpu check` as a user runs it, each time in a fresh process. Needs libtpu for answers, not for refusals."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.marks import needs_libtpu, needs_transformers

ROOT = Path(__file__).parent.parent


def check(*arguments, cwd=None, **environment):
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160", "TORCH_TPU_CHECK_CACHE": ""} | environment
    return subprocess.run(
        [sys.executable, "-m", "torch_tpu.cli", "check", *map(str, arguments)],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def script(tmp_path):
    def write(code):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(code))
        return path

    return write


MATMUL = """
    import torch
    x = torch.randn(2, 2, device="tpu")
    print(x @ x)
"""
CUDA_TRAINING = """
    import sys
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=float(sys.argv[1]))
    for step in range(1000):
        x = torch.randn(32, 64).to(device)
        with torch.autocast("cuda"):
            loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 2 == 0:
            print(f"loss {loss.item():.3f}")
    raise SystemExit("not reached: the steps have repeated")
"""


@needs_libtpu
def test_a_matmul_is_checked(script):
    done = check(script(MATMUL))
    assert done.returncode == 0, done.stderr
    assert "compiles and fits" in done.stdout
    assert "train.py:4" in done.stdout


@needs_libtpu
def test_a_script_for_cuda_is_redirected_and_its_steps_found(script):
    done = check("--json", "--topology", "v6e-1,v5e-1", script(CUDA_TRAINING), "0.001")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [t["name"] for t in report["targets"]] == ["v6e:1x1", "v5e:1x1"]
    for target in report["targets"]:
        assert target["depth"] == "quick"
        for step in target["steps"]:
            assert step["verdict"] == "ok"
            assert step["memory"]["fits"]
            assert step["time"]["lower"] <= step["time"]["expected"] <= step["time"]["upper"]
    assert {"torch.cuda.is_available", ".cuda()", "device='cuda'", "torch.autocast('cuda')"} <= {
        f["what"] for f in report["redirects"]
    }
    (read,) = [f for f in report["findings"] if f["kind"] == "host read"]
    assert read["where"].endswith("train.py:16")
    assert not [op for op in report["ops"] if op["runs_on"] == "unsupported"]


NCCL_TRAINING = """
    import os
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

    def main():
        dist.init_process_group("nccl")
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        model = DDP(torch.nn.Linear(64, 8).cuda(), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(256, 64), torch.randn(256, 8))
        for x, y in DataLoader(data, 32, sampler=DistributedSampler(data)):
            with model.no_sync():
                loss = (model(x.to(torch.device("cuda", rank))) - y.cuda()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(loss.detach(), group=dist.new_group([0]))
        assert dist.get_world_size() == 1
        dist.destroy_process_group()

    main()
"""


@needs_libtpu
def test_a_script_of_several_processes_is_checked_as_one(script):
    done = check("--json", script(NCCL_TRAINING))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"torchrun's environment", "init_process_group('nccl')", "DistributedDataParallel", "device='cuda'"} <= {
        f["what"] for f in report["redirects"]
    }
    (needed,) = [f["where"] for f in report["redirects"] if f["what"] == "torchrun's environment"]
    assert needed.endswith("train.py:10")
    assert not [f for f in report["findings"] if f["kind"] == "stopped"]
    assert not [op for op in report["ops"] if op["runs_on"] == "unsupported"]


@needs_libtpu
def test_of_processes_that_a_script_starts_the_first_is_checked(script):
    done = check(
        script(
            """
            import torch
            import torch.distributed as dist

            def worker(rank, size):
                dist.init_process_group("nccl", rank=rank, world_size=size)
                x = torch.zeros(4, 4).cuda(rank)
                dist.broadcast(x, 0)
                print(x @ x)

            if __name__ == "__main__":
                torch.multiprocessing.spawn(worker, args=(8,), nprocs=8)
            """
        )
    )
    assert done.returncode == 0, done.stderr
    assert "torch.multiprocessing.spawn at" in done.stdout


@needs_libtpu
def test_an_overflow_fails_where_asked_and_names_the_largest(script):
    path = script(
        """
        import torch
        x = torch.zeros(70000, 70000, device="tpu")
        for _ in range(2):
            x = x.to("cpu").to("tpu") if False else (x @ x.t()).softmax(1) @ x
            torch.tpu.synchronize()
        """
    )
    done = check("--fail-on", "oom", path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not fit" in done.stdout
    assert "the largest values" in done.stdout


@needs_libtpu
def test_a_function_that_returns_a_module_and_inputs(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\ndef example():\n    return torch.nn.Linear(16, 4), torch.zeros(2, 16)\n"
    )
    page = tmp_path / "report.html"
    done = check("--module", "mine:example", "--train", "--html", page, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert "Linear" in html
    assert "http" not in html.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topology", "v9-4", "x.py"], "Unknown TPU"),
        (["nothing.py"], "There is no script nothing.py"),
        ([], "Nothing to check"),
        (["--hf", str(ROOT / "tests")], "holds no config.json"),
        (["--module", "no_such:thing"], "No module named"),
        (["--fail-on", "slow", "x.py"], "Known: unsupported, oom"),
        (["--value", "7", "x.py"], "FILE.py:LINE=NUMBER"),
    ],
)
def test_bad_input_is_a_sentence(arguments, says, tmp_path):
    done = check(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@needs_libtpu
def test_a_script_that_raises_is_checked_up_to_there(script):
    done = check(script(MATMUL + "    assert x.sum().item() == 5"))
    assert done.returncode == 0, done.stderr
    assert "stopped early" in done.stdout
    assert "AssertionError" in done.stdout


@needs_libtpu
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('broken')", r"raised ValueError at .*train.py:1: broken"),
        ("import torch; torch.ones(2) + 1", "Nothing ran on device tpu"),
        ("import sys; sys.exit(3)", "exited with status 3"),
    ],
)
def test_a_script_that_cannot_be_checked_is_a_sentence(script, code, says):
    done = check(script(code))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert re.search(says, done.stderr.replace("\n", " "))


def test_without_libtpu_a_sentence_says_what_to_install(script):
    done = check(script(MATMUL), TORCH_TPU_AOT_PLUGIN="/nowhere/libtpu.so")
    assert done.returncode == 2
    assert "libtpu, which holds the TPU compiler, is not installed" in done.stderr


MODULE = """
module @m attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%x: tensor<64x64xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"}) -> tensor<64x64xf32> {
    %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %y : tensor<64x64xf32>
  }
}
"""


@needs_libtpu
def test_a_module_from_elsewhere_is_checked_as_it_says(tmp_path):
    path = tmp_path / "step.mlir"
    path.write_text(MODULE)
    done = check("--mlir", path, "--topology", "v6e:2x2", "--json")
    assert done.returncode == 0, done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert (target["shard"], target["devices"]) == ("given", 4)
    # A quarter of the rows; a TPU pads the 64 columns to 128 lanes.
    assert target["steps"][0]["memory"]["arguments"] == 64 * 128 * 4 / 4


def test_a_module_from_elsewhere_is_not_spread_and_a_sentence_says_so(tmp_path):
    done = check("--shard", "tp", "--mlir", tmp_path / "step.mlir")
    assert done.returncode == 2
    assert "do not go with --mlir" in done.stderr


@needs_libtpu
def test_a_script_is_spread_with_its_optimizer_in_a_program_of_its_own(script):
    code = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).to("tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            loss = net(torch.ones(64, 512).to("tpu")).square().mean()
            loss.backward()
            print(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        """
    found = {}
    for shard in ("none", "fsdp", "tp"):
        done = check("--shard", shard, "--topology", "v6e:2x2", "--json", script(code))
        assert done.returncode == 0, done.stderr
        (target,) = json.loads(done.stdout)["targets"]
        assert {step["verdict"] for step in target["steps"]} == {"ok"}
        assert target["shard"] == shard
        found[shard] = [step["memory"]["arguments"] for step in target["steps"]]
    assert len(found["none"]) == 2
    for shard in ("fsdp", "tp"):
        assert all(0.2 < part / whole < 0.4 for part, whole in zip(found[shard], found["none"], strict=True)), found


@needs_libtpu
@needs_transformers
def test_what_does_not_fit_is_compiled_in_other_ways(tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 8192}
    config |= {"intermediate_size": 28672, "num_hidden_layers": 3, "num_attention_heads": 64, "num_key_value_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("--hf", tmp_path, "--train", "--batch", "4", "--seq", "1024", "--topology", "v5e-1", "--json")
    (target,) = json.loads(check(*asked).stdout)["targets"]
    assert target["steps"][-1]["verdict"] == "oom"
    ways = {way.pop("options"): way for way in target["ways"]}
    assert list(ways) == [
        "--checkpoint layer",
        "--batch 2",
        "--batch 2 --checkpoint layer",
        "--topology v6e:1x1",
        "--topology v5e:2x4 --batch 8 --shard fsdp",
    ]
    for options in ("--checkpoint layer", "--batch 2"):
        assert ways[options]["verdict"] == "oom"
        assert 20 << 30 < ways[options]["peak"] < 30 << 30
    spread = ways["--topology v5e:2x4 --batch 8 --shard fsdp"]
    assert spread["verdict"] == "ok"
    assert spread["peak"] < 15 << 30
    said = " ".join(check(*asked[:-1]).stdout.split())
    assert re.search(r"with --batch 2 \(compiled\): does not fit, 2\d\.\d+ GiB\.", said)
    assert re.search(r"with .* --batch 8 --shard fsdp \(compiled\): fits, 1\d\.\d+ GiB of 15.75 GiB\.", said)
    assert not json.loads(check(*asked, "--no-fit").stdout)["targets"][0]["ways"]


@needs_libtpu
@needs_transformers
def test_tensor_parallelism_is_reported_with_what_it_does_not_cut(tmp_path):
    config = {"model_type": "gpt2", "vocab_size": 1021, "n_embd": 256, "n_layer": 3, "n_head": 2, "n_positions": 64}
    config |= {"bos_token_id": 0, "eos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("--hf", tmp_path, "--shard", "tp", "--topology", "v6e:2x2")
    done = check(*asked, "--json")
    assert done.returncode == 0, done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert (target["shard"], target["devices"]) == ("tp", 4)
    assert "padded from 1021 to 1024: transformer.wte.weight" in target["notes"]
    assert "4, tp" in check(*asked).stdout


def test_a_module_for_another_number_of_devices_is_refused(tmp_path):
    path = tmp_path / "step.mlir"
    path.write_text(MODULE)
    done = check("--mlir", path, "--topology", "v6e:1x1")
    assert done.returncode == 2
    assert "is for 4 devices; v6e:1x1 has 1" in done.stderr
    assert check("--mlir", tmp_path / "none.mlir").returncode == 2
