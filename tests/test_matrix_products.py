"""Products whose right operand is by far the larger one, as in a layer with a small batch."""

import re

import pytest
import torch
import torch.nn.functional as F

from torch_tpu.compile.exact import Exact

CASES = {
    "vector": (lambda x, w: F.linear(x, w), (1, 48), (300, 48)),
    "rows": (lambda x, w: F.linear(x, w), (5, 48), (300, 48)),
    "batch-and-length": (lambda x, w: F.linear(x, w), (2, 3, 48), (300, 48)),
    "one-token": (lambda x, w: F.linear(x, w), (1, 1, 48), (300, 48)),
    "scores": (lambda q, k: q @ k.transpose(-1, -2), (6, 4, 16), (6, 100, 16)),
    "scores-of-one-query": (lambda q, k: q @ k.transpose(-1, -2), (2, 3, 1, 16), (2, 3, 100, 16)),
    "einsum": (lambda x, w: torch.einsum("abk,nk->ban", x, w), (2, 3, 48), (300, 48)),
    "transposed-twice": (lambda x, w: x @ w.t().contiguous(), (5, 48), (300, 48)),
    "columns": (lambda x, w: x.t() @ w.t(), (48, 5), (300, 48)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    torch.manual_seed(0)
    product, *shapes = CASES[name]
    operands = [torch.randn(s).to(dtype) for s in shapes]
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]

    def run(device, computed):
        leaves = [x.to(device, computed).requires_grad_() for x in operands]
        out = product(*leaves)
        out.sum().backward()
        return [x.detach().cpu().double() for x in (out, *(leaf.grad for leaf in leaves))]

    for actual, expected in zip(run("tpu", dtype), run("cpu", torch.float64), strict=True):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize(("rows", "first"), [(4, "300x64"), (600, "600x64")])
def test_the_larger_operand_stands_on_the_left(rows, first):
    """XLA's CPU compiler would transpose it at each execution."""
    graph = Exact(lambda x, w: [F.linear(x, w)])
    graph([torch.ones(rows, 64, device="tpu"), torch.ones(300, 64, device="tpu")])
    [dot] = re.findall(r"stablehlo\.dot_general.*: \(tensor<(\w+?)xf32>", graph.modules()[0])
    assert dot == first
