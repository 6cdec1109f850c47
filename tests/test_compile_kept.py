"""AOTAutograd's cache: another process does not trace again, and what comes from the cache does the same."""

import json

import pytest
from process import run_python

PROGRAM = """
    import json, torch, torch_tpu
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    {function}
    print(json.dumps([result, dict(counters["aot_autograd"]), torch_tpu.counters()]))
"""
FUNCTIONS = {
    "training": """
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    ).to("tpu")
    x = torch.arange(24.0).reshape(6, 4).to("tpu") / 24
    loss = torch.compile(model)(x).square().sum()
    loss.backward()
    result = [loss.item(), *[p.grad.cpu().tolist() for p in model.parameters()], model[1].running_mean.cpu().tolist()]
    """,
    "aliases": """
    def f(x, y, k):
        x.add_(y)
        return x.view(-1), (x * k)[0], None, y.t()
    x, y = torch.ones(2, 3).to("tpu"), torch.ones(2, 3).to("tpu")
    a, b, c, d = torch.compile(f, backend="tpu")(x, y, 3)
    a[0] = 9
    result = [x.tolist(), b.tolist(), c, d.tolist()]
    """,
    "optimizer": """
    p = torch.nn.Parameter(torch.ones(3).to("tpu"))
    optimizer = torch.optim.AdamW([p], lr=0.1, capturable=True)
    step = torch.compile(optimizer.step)
    for i in range(3):
        p.grad = torch.arange(3.0).to("tpu")
        step()
    result = p.tolist()
    """,
}


def run(name: str, folder, **environment: str):
    code = PROGRAM.format(function=FUNCTIONS[name].replace("\n    ", "\n    "))
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"), "TORCH_TPU_CACHE_DIR": str(folder / "tpu")}
    said = run_python(code, **settings | {"TORCH_TPU_CACHE": "1"} | environment)
    return json.loads(said.splitlines()[-1])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_second_process_traces_and_compiles_nothing(name, tmp_path):
    first, traced, _ = run(name, tmp_path)
    second, looked_up, counted = run(name, tmp_path)
    assert traced["autograd_cache_saved"] == traced["autograd_cache_miss"] >= 1
    assert looked_up["autograd_cache_hit"] == traced["autograd_cache_miss"]
    assert looked_up.get("autograd_cache_miss", 0) == looked_up.get("autograd_cache_bypass", 0) == 0
    assert counted["compiles"] == 0
    assert second == first


def test_it_can_be_turned_off(tmp_path):
    for _ in range(2):
        _, counted, _ = run("aliases", tmp_path, TORCHINDUCTOR_AUTOGRAD_CACHE="0")
        assert not any(key.startswith("autograd_cache") for key in counted)
