"""Ops that order elements or write to places: ties, duplicates and strides are CPU PyTorch's."""

import pytest
import torch
from comparison import Comparison


def data(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_with_duplicates(accumulate):
    calls = Comparison()
    places = torch.tensor([0, 2, 0, 0, -1])
    for dtype in DTYPES:
        x, values = data(4, 3, dtype=dtype), data(5, 3, dtype=dtype, seed=1)

        def put(x, places, values):
            return x.clone().index_put_((places,), values, accumulate=accumulate)

        calls.add(f"rows, {dtype}", put, x, places, values)
        calls.add(f"one value, {dtype}", put, x, places, values[0, 0])
        calls.add(f"a row, {dtype}", put, x, places, values[0])
        calls.add(
            f"pairs, {dtype}",
            lambda x, a, b, v: x.clone().index_put_((a, b), v[:, 0], accumulate=accumulate),
            x, places, torch.tensor([1, 1, 1, 1, 0]), values,
        )  # fmt: skip
        calls.add(
            f"columns, {dtype}",
            lambda x, a, v: x.t().clone().index_put_((slice_all(x), a), v.t()[:, :5], accumulate=accumulate),
            x, places, values,
        )  # fmt: skip
    if not accumulate:  # the last one wins
        x = torch.zeros(3, device="tpu")
        x[torch.tensor([1, 1, 1], device="tpu")] = torch.tensor([5.0, 6.0, 7.0], device="tpu")
        assert x.tolist() == [0, 7, 0]
    assert calls.finish() == 25


def slice_all(x: torch.Tensor) -> torch.Tensor:
    """Every column of x, as an index that broadcasts against one of rows."""
    return torch.arange(x.shape[1], device=x.device)[:, None]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_of_duplicates(reduce, include_self):
    calls = Comparison()
    index = torch.tensor([[0, 0, 1, 0], [2, 2, 2, 2]])
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8):
        x, source = data(2, 3, dtype=dtype), data(2, 4, dtype=dtype, seed=1)
        calls.add(dtype, lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self), x, index, source)
        calls.add(
            dtype,
            lambda x, i, s: x.clone().index_reduce_(0, i[1, :1] - 2, s[:1, :3], {"sum": "prod"}.get(reduce, reduce),
                                                    include_self=include_self),
            x, index, source,
        )  # fmt: skip
    special = torch.tensor([[float("nan"), 1.0, -0.0, float("inf")], [1.0, 2.0, float("nan"), 3.0]])
    calls.add("special", lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self),
              data(2, 3), index, special)  # fmt: skip
    assert calls.finish() == 11


def test_scatter_in_its_older_forms():
    calls = Comparison()
    index = torch.tensor([[0, 1, 0], [2, 2, 2]])
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        x, source = data(2, 3, dtype=dtype), data(2, 3, dtype=dtype, seed=1)
        calls.add(dtype, lambda x, i, s: x.scatter(1, i, s, reduce="add"), x, index, source)
        calls.add(dtype, lambda x, i, s: x.scatter(1, i, s, reduce="multiply"), x, index, source)
        calls.add(dtype, lambda x, i: x.scatter(1, i, 2, reduce="add"), x, index)
        calls.add(dtype, lambda x, i, s: x.scatter_add(1, i, s), x, index, source)
        calls.add(dtype, lambda x, i, s: x.index_add(1, i[1, :2], s[:, :2], alpha=-2), x, index, source)
        calls.add(dtype, lambda x, i, s: x.clone().put_(i, s, accumulate=True), x, index, source)
        calls.add(dtype, lambda x, i: x.scatter(1, i[:, :1], 7), x, index)
        calls.add(dtype, lambda x, i, s: x.index_copy(1, i[0, :2], s[:, :2]), x, index, source)
    assert calls.finish() == 24


@pytest.mark.parametrize(
    "write",
    [
        lambda x, i: torch.cat([x, x[:1]], out=x),
        lambda x, i: torch.index_select(x, 0, i, out=x),
        lambda x, i: torch.take(x.view(-1), i, out=x.view(-1)[:2]),
        lambda x, i: torch.gather(x, 0, i[:, None], out=x),
        lambda x, i: torch.masked_select(x, x > 0, out=x),
        lambda x, i: torch.kthvalue(x, 1, 0, out=(x, i)),
    ],
    ids=["cat", "index_select", "take", "gather", "masked_select", "kthvalue"],
)
def test_results_made_of_other_elements_are_not_written_over_them(write):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write(torch.arange(4.0, device=device).view(2, 2), torch.tensor([1, 0], device=device))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.amax(x, 0, out=out),
        lambda x, out: torch.index_select(x, 0, torch.tensor([0], device=x.device), out=out),
        lambda x, out: torch.tril(x, out=out),
        lambda x, out: torch.sort(x, 0, out=(out, torch.empty(2, 2, dtype=torch.int64, device=x.device))),
        lambda x, out: torch.softmax(x, 0, out=out),
        lambda x, out: torch.neg(x, out=out),
    ],
    ids=["amax", "index_select", "tril", "sort", "softmax", "neg"],
)
def test_out_of_another_dtype_is_refused_where_the_cpu_refuses_it(call):
    messages = []
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError) as error:
            call(torch.ones(2, 2, device=device), torch.empty(2, 2, dtype=torch.float64, device=device))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    out = torch.empty(2, 2, dtype=torch.float64, device="tpu")
    assert torch.add(torch.ones(2, 2, device="tpu"), 1, out=out).tolist() == [[2, 2], [2, 2]]


def test_topk_is_in_order():
    calls = Comparison()
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.uint8):
        x = torch.randperm(40, generator=torch.Generator().manual_seed(3)).view(5, 8).to(dtype)
        for largest in (True, False):
            for k in (0, 1, 3, 8):
                calls.add(dtype, lambda x, k=k, largest=largest: tuple(x.topk(k, largest=largest)), x)
            calls.add(dtype, lambda x, largest=largest: tuple(x.topk(2, 0, largest=largest, sorted=True)), x)
        calls.add(dtype, lambda x: tuple(x.sort(0)), x)
        calls.add(dtype, lambda x: tuple(x.kthvalue(3, 0)), x)
        calls.add(dtype, lambda x: tuple(x.median(1)), x)
    assert calls.finish() == 4 * 13


def test_unique_and_its_inverse():
    calls = Comparison()
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool):
        x = torch.tensor([[3, 1, 3, 0], [1, 1, 0, 3], [3, 1, 3, 0]]).to(dtype)
        calls.add(dtype, lambda x: x.unique(), x)
        calls.add(dtype, lambda x: x.unique(return_inverse=True, return_counts=True), x)
        calls.add(dtype, lambda x: x.unique(return_inverse=True, return_counts=True, dim=0), x)
        calls.add(dtype, lambda x: x.unique(return_inverse=True, dim=1), x)
        calls.add(dtype, lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), x)
        calls.add(dtype, lambda x: x.unique_consecutive(return_counts=True, dim=1), x)
        calls.add(dtype, lambda x: x[:0].unique(return_inverse=True), x)
        calls.add(dtype, lambda x: x[0, 0].unique(return_inverse=True), x)
        y, inverse = x.to("tpu").unique(return_inverse=True)
        assert torch.equal(y[inverse].cpu(), x)
    assert calls.finish() == 4 * 8


def test_a_stable_sort_keeps_the_order_of_equals():
    calls = Comparison()
    x = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(4))
    for dtype in (torch.int64, torch.float32, torch.bool, torch.float16):
        for descending in (False, True):
            calls.add(dtype, lambda x, d=descending: tuple(x.sort(stable=True, descending=d)), x.to(dtype))
            calls.add(
                dtype, lambda x, d=descending: x.view(30, 10).argsort(dim=0, stable=True, descending=d), x.to(dtype)
            )
    zeros = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0])
    calls.add("signed zeros are equal", lambda x: tuple(x.sort(stable=True)), zeros)
    assert calls.finish() == 17


def test_nonzero_in_both_forms():
    calls = Comparison()
    for dtype in DTYPES:
        x = data(3, 4, dtype=dtype) * (data(3, 4, seed=5) > 0).to(dtype)
        calls.add(dtype, lambda x: x.nonzero(), x)
        calls.add(dtype, lambda x: x.nonzero(as_tuple=True), x)
        calls.add(dtype, lambda x: torch.where(x), x)
        calls.add(dtype, lambda x: x.argwhere(), x)
        calls.add(dtype, lambda x: x[x != 0], x)
        calls.add(dtype, lambda x: x.t().nonzero(), x)
        calls.add(dtype, lambda x: x[0, 0].nonzero(as_tuple=True), x)
        calls.add(dtype, lambda x: x[:0].nonzero(), x)
        calls.add(dtype, lambda x: x.count_nonzero(0), x)
    assert calls.finish() == 9 * len(DTYPES)


def test_flip_and_roll_read_backwards():
    calls = Comparison()
    x = data(2, 3, 4)
    image = x.view(1, 2, 3, 4).to(memory_format=torch.channels_last)
    for f in (
        lambda x: x.flip(0),
        lambda x: x.flip(-1, 0),
        lambda x: x.transpose(0, 2).flip(1),
        lambda x: x.flip(1)[:, 1:].add_(1),
        lambda x: x[..., ::2].flip(2),
        lambda x: x.roll((1, -2), (0, 2)),
        lambda x: x.rot90(1, (0, 2)),
        torch.fliplr,
        lambda x: x.flip(()),
        lambda x: x[:0].flip(0),
        lambda x: x[0, 0, 0].flip(()),
    ):
        calls.add("flip", f, x)
    calls.add("channels last", lambda x: x.flip(2), image)
    calls.add("gradient", lambda x: torch.autograd.grad(leaf(x).flip(1).mul(x).sum(), last_leaf)[0], x)
    for device in ("cpu", "tpu"):
        with pytest.raises((ValueError, IndexError)):
            x.to(device)[::-1]
    assert calls.finish() == 13


last_leaf = torch.empty(0)


def leaf(x: torch.Tensor) -> torch.Tensor:
    global last_leaf
    last_leaf = x.clone().requires_grad_()
    return last_leaf


def test_overlapping_windows_are_read():
    calls = Comparison()
    x = torch.arange(12.0)
    for sizes, strides, offset in (
        ((4, 3), (2, 1), 1),
        ((3, 3), (1, 1), 0),
        ((2, 2, 3), (0, 3, 2), 2),
        ((5,), (0,), 4),
    ):
        calls.add("window", lambda x, s=sizes, t=strides, o=offset: x.as_strided(s, t, o) * 2, x)
        calls.add("window's sum", lambda x, s=sizes, t=strides, o=offset: x.as_strided(s, t, o).sum(0), x)
        calls.add("gradient", lambda x, s=sizes, t=strides, o=offset: gradient_of_window(x, s, t, o), x)
    calls.add("unfold", lambda x: x.unfold(0, 4, 2) @ x[:4], x)
    assert calls.finish() == 13


def gradient_of_window(x, sizes, strides, offset):
    x = x.clone().requires_grad_()
    window = x.as_strided(sizes, strides, offset)
    (window * window).sum().backward()
    return x.grad


def test_channels_last_stays():
    calls = Comparison()
    image = data(2, 3, 4, 5).to(memory_format=torch.channels_last)
    weight = data(6, 3, 3, 3)
    for f in (
        lambda x: x + 1,
        lambda x: x * x.mean((2, 3), keepdim=True),
        lambda x: x.relu_(),
        lambda x: torch.nn.functional.avg_pool2d(x, 2),
        lambda x: torch.nn.functional.max_pool2d(x, 2),
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: torch.nn.functional.conv2d(x, weight.to(x.device)),
        lambda x: torch.nn.functional.conv_transpose2d(x, weight.transpose(0, 1).to(x.device)),
        lambda x: torch.nn.functional.batch_norm(x, torch.zeros(3, device=x.device), torch.ones(3, device=x.device)),
        lambda x: torch.nn.functional.group_norm(x, 3),
        lambda x: torch.cat([x, x], 1),
        lambda x: x.clone(),
        lambda x: x.to(torch.bfloat16),
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: torch.zeros_like(x),
        lambda x: x.clamp(0, 1).sum(1, keepdim=True),
        lambda x: torch.nn.functional.pixel_shuffle(x[:, :1].expand(2, 4, 4, 5) + 0, 2),
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        lambda x: x.bool(),
        lambda x: x.softmax(1),
    ):
        calls.add("channels last", f, image)
    assert calls.finish() == 23
