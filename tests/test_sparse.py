"""Sparse COO and CSR tensors on tpu: conversion, matrix products and their gradients against the CPU's; no fallback."""

import io
import warnings

import pytest
import torch
from torch.testing import assert_close

import torch_tpu

warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
warnings.filterwarnings("ignore", message="Sparse invariant checks")


@pytest.fixture(scope="module", autouse=True)
def fallbacks_before():
    return torch_tpu.counters()["fallbacks"]


LAYOUTS = [torch.sparse_coo, torch.sparse_csr]


def random_sparse(rows, columns, layout=torch.strided, dtype=torch.float32, seed=0):
    """About half zeros; one row of them in any case."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator).to(dtype)
    x[torch.rand(rows, columns, generator=generator) < 0.5] = 0
    x[rows // 2] = 0
    return x if layout == torch.strided else x.to_sparse(layout=layout)


def same(actual, expected):
    """Both are equal, layout, parts and dtypes included."""
    assert actual.device.type == "tpu"
    assert actual.layout == expected.layout
    back = actual.cpu()
    if expected.layout == torch.sparse_coo:
        assert back.is_coalesced() == expected.is_coalesced()
        back, expected = back.coalesce(), expected.coalesce()
    assert_close(back, expected)


# --- conversion


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_to_sparse_and_back(dtype):
    x = random_sparse(5, 7, dtype=dtype)
    there = x.to("tpu")
    for layout in [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]:
        sparse = there.to_sparse(layout=layout)
        same(sparse, x.to_sparse(layout=layout))
        assert sparse._nnz() == x.count_nonzero()
        assert_close(sparse.to_dense().cpu(), x)
        assert_close(x.to_sparse(layout=layout).to("tpu").to_dense().cpu(), x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_of_nothing(shape):
    x = torch.zeros(shape, device="tpu")
    assert x.to_sparse().to_dense().shape == shape
    assert torch.zeros(3, 2, device="tpu").to_sparse()._nnz() == 0


def test_some_dims_may_stay_dense():
    x = random_sparse(6, 4).reshape(3, 2, 4)
    same(x.to("tpu").to_sparse(2), x.to_sparse(2))


def test_between_layouts():
    x = random_sparse(5, 7)
    there = x.to("tpu")
    same(there.to_sparse().to_sparse_csr(), x.to_sparse_csr())
    same(there.to_sparse_csr().to_sparse(), x.to_sparse())
    same(there.to_sparse_csr().to_sparse_csc(), x.to_sparse_csc())
    batch = torch.stack([x, x * 2])
    same(batch.to("tpu").to_sparse_csr(), batch.to_sparse_csr())
    same(batch.to_sparse_csr().to("tpu").to_dense(), batch)


def test_coo_from_its_parts():
    indices, values = torch.tensor([[0, 2, 0], [1, 0, 1]]), torch.tensor([1.0, 2, 3])
    expected = torch.sparse_coo_tensor(indices, values, (3, 2))
    actual = torch.sparse_coo_tensor(indices.to("tpu"), values.to("tpu"), (3, 2))
    same(actual, expected)
    assert not actual.is_coalesced()
    coalesced = actual.coalesce()
    assert coalesced.indices().tolist() == [[0, 2], [1, 0]]
    assert coalesced.values().tolist() == [4, 2]
    assert torch.sparse_coo_tensor(indices.to("tpu"), values.to("tpu")).shape == (3, 2)
    assert torch.sparse_coo_tensor([[0], [1]], [5.0], (2, 2), device="tpu").to_dense().tolist() == [[0, 5], [0, 0]]
    assert "layout=torch.sparse_coo" in repr(actual)


def test_indices_out_of_the_size_are_refused():
    indices = torch.tensor([[0, 5]], device="tpu")
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        torch.sparse_coo_tensor(indices, torch.ones(2, device="tpu"), (3,), check_invariants=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int8])
def test_coalesce_sums_equal_indices_of_rows_of_values(dtype):
    indices = torch.tensor([[1, 0, 1, 0], [2, 2, 2, 0]])
    values = torch.tensor([[1, 0, 1], [1, 0, 0], [2, 0, 0], [0, 1, 3]]).to(dtype)
    expected = torch.sparse_coo_tensor(indices, values, (2, 3, 3))
    same(expected.to("tpu").coalesce(), expected.coalesce())


def test_csr_from_its_parts():
    crow, col, values = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), torch.tensor([1.0, 2, 3])
    actual = torch.sparse_csr_tensor(crow.to("tpu"), col.to("tpu"), values.to("tpu"), (2, 3))
    same(actual, torch.sparse_csr_tensor(crow, col, values, (2, 3)))
    assert actual.crow_indices().device.type == actual.col_indices().device.type == "tpu"
    assert actual.to_dense().tolist() == [[0, 1, 0], [2, 0, 3]]


def test_sparse_tensors_are_saved_and_loaded():
    x = random_sparse(4, 4, torch.sparse_coo)
    buffer = io.BytesIO()
    torch.save({"coo": x.to("tpu"), "csr": x.to_sparse_csr().to("tpu")}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    same(loaded["coo"], x)
    same(loaded["csr"], x.to_sparse_csr())


def test_gradients_of_conversion():
    x = random_sparse(4, 5)
    weight = torch.randn(4, 5)
    for layout in LAYOUTS:
        leaf = x.to("tpu").requires_grad_()
        (leaf.to_sparse(layout=layout).to_dense() * weight.to("tpu")).sum().backward()
        expected = x.clone().requires_grad_()
        (expected.to_sparse(layout=layout).to_dense() * weight).sum().backward()
        assert_close(leaf.grad.cpu(), expected.grad)


# --- products


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_products_with_dense(layout, dtype):
    x = random_sparse(5, 7, layout, dtype)
    dense, vector, bias = torch.randn(7, 3, dtype=dtype), torch.randn(7, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    there = x.to("tpu")
    same(there @ dense.to("tpu"), x @ dense)
    same(there @ vector.to("tpu"), x @ vector)
    same(torch.mv(there, vector.to("tpu")), torch.mv(x, vector))
    same(torch.sparse.mm(there, dense.to("tpu")), torch.sparse.mm(x, dense))
    same(
        torch.addmm(bias.to("tpu"), there, dense.to("tpu"), beta=2, alpha=0.5),
        torch.addmm(bias, x.to_dense(), dense, beta=2, alpha=0.5),
    )
    same(bias.T.to("tpu") @ there, bias.T @ x.to_dense())
    if layout == torch.sparse_coo:
        same(torch.sparse.addmm(bias.to("tpu"), there, dense.to("tpu")), torch.sparse.addmm(bias, x, dense))


def test_uncoalesced_and_int32_operands():
    twice = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 3.0], (2, 2), device="tpu")
    dense = torch.eye(2, device="tpu")
    assert (twice @ dense).tolist() == [[0, 3], [3, 0]]
    csr = twice.coalesce().to_sparse_csr()
    small = torch.sparse_csr_tensor(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), (2, 2))
    assert (small @ dense).tolist() == [[0, 3], [3, 0]]


def test_narrow_floats_are_summed_in_float32():
    row = torch.sparse_coo_tensor([[0] * 512, list(range(512))], torch.full((512,), 0.25), (1, 512), device="tpu")
    ones = torch.ones(512, 1, device="tpu", dtype=torch.bfloat16)
    assert (row.to(torch.bfloat16) @ ones).item() == 128


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_two_sparse_matrices(layout):
    a, b = random_sparse(5, 7, layout), random_sparse(7, 4, layout, seed=1)
    actual = torch.sparse.mm(a.to("tpu"), b.to("tpu"))
    assert actual.layout == layout
    assert_close(actual.to_dense().cpu(), a.to_dense() @ b.to_dense())


def test_batched_product():
    x = torch.stack([random_sparse(4, 5), random_sparse(4, 5, seed=1)])
    dense = torch.randn(2, 5, 3)
    assert_close(torch.bmm(x.to("tpu").to_sparse(), dense.to("tpu")).cpu(), torch.bmm(x, dense))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_sparse_mm(layout):
    def gradients(device):
        x = random_sparse(5, 7, layout).to(device).requires_grad_()
        dense = torch.linspace(-1, 1, 21).reshape(7, 3).to(device).requires_grad_()
        torch.sparse.mm(x, dense).square().sum().backward()
        return x.grad, dense.grad

    for actual, expected in zip(gradients("tpu"), gradients("cpu"), strict=True):
        same(actual, expected)


def test_gradient_of_the_values():
    indices = torch.tensor([[0, 1, 1], [1, 0, 2]], device="tpu")
    values = torch.tensor([1.0, 2, 3], device="tpu", requires_grad=True)
    dense = torch.arange(6.0, device="tpu").reshape(3, 2)
    torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (2, 3)), dense).sum().backward()
    assert values.grad.tolist() == [5, 1, 9]


def test_sampled_addmm():
    mask, a, b = random_sparse(4, 6, torch.sparse_csr), torch.randn(4, 3), torch.randn(3, 6)

    def run(device):
        leaves = [t.to(device).requires_grad_() for t in (mask, a, b)]
        result = torch.sparse.sampled_addmm(*leaves, beta=0.5, alpha=2.0)
        result.to_dense().square().sum().backward()
        return [result.detach(), *(leaf.grad for leaf in leaves)]

    for actual, expected in zip(run("tpu"), run("cpu"), strict=True):
        same(actual, expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_mm_with_a_reduction(reduce):
    def run(device):
        x = random_sparse(5, 7, torch.sparse_csr).to(device).requires_grad_()
        dense = torch.linspace(-1, 1, 21).reshape(7, 3).to(device).requires_grad_()
        result = torch.sparse.mm(x, dense, reduce)
        result.square().sum().backward()
        return result.detach(), x.grad, dense.grad

    for actual, expected in zip(run("tpu"), run("cpu"), strict=True):
        same(actual, expected)


# --- sums, and sparse gradients


def test_sums():
    a, b, dense = random_sparse(4, 5, torch.sparse_coo), random_sparse(4, 5, torch.sparse_coo, seed=1), torch.ones(4, 5)
    same(a.to("tpu") + b.to("tpu"), a + b)
    same(torch.add(dense.to("tpu"), a.to("tpu"), alpha=3), torch.add(dense, a, alpha=3))
    same(a.to_sparse_csr().to("tpu") + b.to_sparse_csr().to("tpu"), a.to_sparse_csr() + b.to_sparse_csr())
    assert_close(a.to("tpu").sum().cpu(), a.to_dense().sum())


def test_a_number_times_a_sparse_tensor():
    for layout in LAYOUTS:
        x = random_sparse(4, 5, layout)
        same(x.to("tpu") * 2.5, x * 2.5)
        same(torch.tensor(3.0, device="tpu") * x.to("tpu"), torch.tensor(3.0) * x)


def test_sparse_mask():
    x, mask = random_sparse(4, 5, seed=2), random_sparse(4, 5, torch.sparse_coo)
    same(x.to("tpu").sparse_mask(mask.to("tpu")), x.sparse_mask(mask))
    same(x.to_sparse().to("tpu").sparse_mask(mask.to("tpu")), x.to_sparse().sparse_mask(mask))
    csr = mask.to_sparse_csr()
    same(x.to("tpu").sparse_mask(csr.to("tpu")), x.sparse_mask(csr))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad])
def test_embeddings_with_sparse_gradients_train(optimizer):
    def train(device):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 4, sparse=True).to(device)
        steps = optimizer(table.parameters(), lr=0.1)
        for _ in range(3):
            steps.zero_grad()
            for ids in ([1, 5, 1], [2, 5]):  # two backwards: sparse gradients are added
                table(torch.tensor(ids, device=device)).square().sum().backward()
            assert table.weight.grad.is_sparse
            steps.step()
        return table.weight.detach().cpu()

    assert_close(train("tpu"), train("cpu"))


@pytest.mark.parametrize(
    ("options", "weighted"),
    [
        ({"mode": "sum"}, False),
        ({"mode": "sum"}, True),
        ({"mode": "mean"}, False),  # PyTorch weighs sums only
        ({"mode": "sum", "padding_idx": 2}, False),
        ({"mode": "sum", "padding_idx": 2}, True),
    ],
)
def test_bags_of_embeddings_have_the_sparse_gradients_of_the_cpu(options, weighted):
    ids, offsets, weights = torch.tensor([1, 5, 1, 2, 2]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 2, 3, 4, 5])

    def gradient(device):
        torch.manual_seed(0)
        table = torch.nn.EmbeddingBag(10, 4, sparse=True, **options).to(device)
        bags = table(ids.to(device), offsets.to(device), weights.to(device) if weighted else None)
        bags.square().sum().backward()
        return table.weight.grad

    same(gradient("tpu"), gradient("cpu"))


# --- the rest


def test_what_has_no_kernel_is_refused_in_a_sentence():
    x = random_sparse(3, 3).to("tpu")
    with pytest.raises(NotImplementedError, match=r"tpu: aten::sin has no kernel for sparse tensors: got self: Float"):
        x.to_sparse().sin()
    for call in (torch.sin, torch.neg, lambda y: y * x, lambda y: y.to_sparse_bsr((1, 1))):
        with pytest.raises(
            NotImplementedError, match=r"tpu: aten::\w+[.\w]* has no kernel for .*SparseCsr.*\nUse dense"
        ):
            call(x.to_sparse_csr())
    with pytest.raises(NotImplementedError, match="of layout SparseBsr is not supported"):
        torch.zeros(4, 4, device="tpu").to_sparse_bsr((2, 2)) @ torch.zeros(4, 4, device="tpu")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x.to_sparse() @ torch.zeros(4, 4, device="tpu")


def test_nothing_fell_back(fallbacks_before):
    assert torch_tpu.counters()["fallbacks"] == fallbacks_before
