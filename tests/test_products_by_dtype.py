"""Matrix products that name their result's dtype, of integers, of quantized weights and with an activation."""

import pytest
import torch
from comparison import Comparison
from torch.testing import assert_close

aten = torch.ops.aten
NARROW = (torch.bfloat16, torch.float16)


def normal(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(sum(shape)))


def there(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.to("tpu") for t in tensors]


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_operands_give_float32(dtype):
    """Nothing is rounded to the operands' dtype on the way. CPU PyTorch has no such kernels."""
    a, b, c = normal(3, 40, dtype=dtype), normal(40, 5, dtype=dtype), normal(3, 5, dtype=dtype)
    x, y, z = normal(2, 3, 40, dtype=dtype), normal(2, 40, 5, dtype=dtype), normal(2, 3, 5, dtype=dtype)
    wide = torch.float32
    product, batched = a.float() @ b.float(), x.float() @ y.float()
    pairs = [
        (aten.mm.dtype(*there(a, b), wide), product),
        (aten.bmm.dtype(*there(x, y), wide), batched),
        (aten.addmm.dtype(*there(c.float(), a, b), wide, beta=0.5, alpha=2), c.float() / 2 + 2 * product),
        (aten.baddbmm.dtype(*there(z.float(), x, y), wide, beta=0.5, alpha=2), z.float() / 2 + 2 * batched),
        (aten.addmm.dtype(*there(c, a, b), dtype), (c.float() + product).to(dtype)),
    ]
    for actual, expected in pairs:
        assert actual.dtype == expected.dtype
        assert_close(actual.cpu(), expected)


def test_products_of_integers():
    """Sums of bytes' products that no float holds."""
    calls = Comparison()
    for n, m, k in ((17, 8, 16), (32, 40, 24), (17, 2048, 8)):
        calls.add(f"{n} x {m} x {k}", torch._int_mm, integers(n, m), integers(m, k))
    calls.add("transposed", lambda a, b: torch._int_mm(a, b.t()), integers(17, 16), integers(8, 16))
    most = torch.full((17, 4096), -128, dtype=torch.int8)
    calls.add("the largest", lambda a: torch._int_mm(a, a.t()[:, :8]), most)
    calls.finish()


@pytest.mark.parametrize("dtype", [torch.float32, *NARROW])
def test_weights_of_bytes(dtype):
    """Each row of the weight has a scale."""
    x, weight, scales = normal(3, 64, dtype=dtype), integers(32, 64), normal(32, dtype=dtype)
    expected = (x.double() @ weight.double().t() * scales.double()).to(dtype)
    actual = aten._weight_int8pack_mm(*there(x, weight, scales))
    assert actual.dtype == dtype
    assert_close(actual.cpu(), expected, **({"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {}))


def test_a_product_with_an_activation():
    for dtype, tolerances in (
        (torch.float32, {"rtol": 1e-5, "atol": 1e-5}),
        (torch.bfloat16, {"rtol": 2e-2, "atol": 1e-3}),
    ):
        calls = Comparison(**tolerances)
        bias, a, b = normal(5, dtype=dtype), normal(3, 8, dtype=dtype), normal(8, 5, dtype=dtype)
        for gelu in (False, True):
            calls.add(f"gelu {gelu}", lambda c, a, b, g=gelu: aten._addmm_activation(c, a, b, use_gelu=g), bias, a, b)
            scaled = lambda c, a, b, g=gelu: aten._addmm_activation(c, a, b, beta=0.5, alpha=2, use_gelu=g)  # noqa: E731
            calls.add(f"scaled, gelu {gelu}", scaled, bias, a, b)
        assert calls.finish() == 4


def test_grouped_products():
    """Rows of one operand by groups that end at ``offs``, or a batch: as products one by one."""
    x, w = normal(16, 8, dtype=torch.bfloat16), normal(3, 8, 16, dtype=torch.bfloat16)
    offs = torch.tensor([5, 5, 16], dtype=torch.int32)
    groups = [x[:5].float() @ w[0].float(), x[5:].float() @ w[2].float()]
    assert_close(torch._grouped_mm(*there(x, w), offs=offs.to("tpu")).cpu(), torch.cat(groups).bfloat16())
    batch = normal(3, 4, 8, dtype=torch.bfloat16)
    assert_close(torch._grouped_mm(*there(batch, w)).cpu(), (batch.float() @ w.float()).bfloat16())


def test_scaled_products():
    """A scale each, or one a row and one a column."""
    a, b = normal(16, 32).to(torch.float8_e4m3fn), normal(16, 32).to(torch.float8_e4m3fn)
    one, another = torch.tensor(0.5), torch.tensor(3.0)
    product = a.float() @ b.float().t()

    def scaled(scale_a, scale_b, **options):
        given = [t.to("tpu") for t in (a, b, scale_a, scale_b)]
        return torch._scaled_mm(given[0], given[1].t(), given[2], given[3], **options).cpu()

    assert_close(scaled(one, another, out_dtype=torch.float32), product * 1.5)
    bias = normal(16, dtype=torch.bfloat16)
    assert_close(scaled(one, another, bias=bias.to("tpu"), out_dtype=torch.bfloat16), (product * 1.5 + bias).bfloat16())
    rows, columns = normal(16, 1).abs(), normal(1, 16).abs()
    assert_close(scaled(rows, columns, out_dtype=torch.bfloat16), (product * rows * columns).bfloat16())
