"""Dynamic sizes under torch.compile: padded programs by bucket, exact ones where padding is not proven."""

import copy
import random
import warnings

import pytest
import torch

import torch_tpu
from torch_tpu.compile import bucketed


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def compiles() -> int:
    return torch_tpu.counters()["compiles"]


class Reader(torch.nn.Module):
    """Attention over a sequence, with and without a causal mask, its mean, its last element, and each element."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(50, 16)
        self.positions = torch.nn.Parameter(torch.randn(96, 16))
        self.norm = torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 5)

    def forward(self, x):
        batch, length = x.shape
        h = self.tokens(x) + self.positions[:length]
        q, k, v = (t.view(batch, length, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(h)).split(16, -1))
        for causal in (True, False):
            a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            h = h + a.transpose(1, 2).reshape(batch, length, 16)
        return self.out(h.mean(1)), self.out(h).log_softmax(-1), h[:, -1], h.amax(1), (h.sum(-1) / length).softmax(1)


def test_many_lengths_share_few_programs():
    torch.manual_seed(0)
    host = Reader()
    compiled = torch.compile(copy.deepcopy(host).to("tpu"), fullgraph=True)
    lengths = list(range(2, 97))
    random.Random(0).shuffle(lengths)
    before = compiles()
    with torch.inference_mode():
        for length in lengths[:40]:
            x = torch.randint(0, 50, (2, length))
            there = x.to("tpu")
            torch._dynamo.mark_dynamic(there, 1)
            for got, expected in zip(compiled(there), host(x), strict=True):
                assert got.is_contiguous() or not expected.is_contiguous()
                torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert compiles() - before <= 4  # 16, 32, 64 and 96, the table's length


def test_training_at_many_lengths():
    torch.manual_seed(0)
    host = Reader()
    model = copy.deepcopy(host).to("tpu")

    def loss_of(model, x, y):
        pooled, each, *_ = model(x)
        return pooled.square().mean() + torch.nn.functional.nll_loss(each.flatten(0, 1), y.flatten())

    compiled = torch.compile(loss_of, fullgraph=True)
    before = compiles()
    for length in (7, 11, 16, 20, 5, 31):
        x, y = torch.randint(0, 50, (2, length)), torch.randint(0, 5, (2, length))
        there = x.to("tpu"), y.to("tpu")
        for t in there:
            torch._dynamo.mark_dynamic(t, 1)
        loss_of(host, x, y).backward()
        compiled(model, *there).backward()
        for p, expected in zip(model.parameters(), host.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-4)
            p.grad = expected.grad = None
    assert compiles() - before <= 5  # forward and backward, two buckets; the one that backward() starts from


def test_padding_may_hold_anything():
    """A logarithm of zero, and a division by it, in the padding."""

    def f(x):
        y = x.log() / x
        return y.sum(1), y.mean(), (y @ y.transpose(0, 1)), y.amax(1), y.cumsum(1), (y * x.shape[1]).sum()

    compiled = torch.compile(f, fullgraph=True)
    for length in (3, 9, 30):
        x = torch.rand(4, length) + 0.5
        there = x.to("tpu")
        torch._dynamo.mark_dynamic(there, 1)
        for got, expected in zip(compiled(there), f(x), strict=True):
            torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_batch_of_dynamic_size_in_front_of_a_flattened_dim():
    def f(x, w):
        return (x.reshape(-1, 3) @ w).view(x.shape[0], -1), x.flatten(0, 1).sum(0), x.argmax(0)

    compiled = torch.compile(f, dynamic=True)
    w = torch.randn(3, 2)
    for batch in (2, 5, 17):
        x = torch.randn(batch, 4, 3)
        for got, expected in zip(compiled(x.to("tpu"), w.to("tpu")), f(x, w), strict=True):
            torch.testing.assert_close(got.cpu(), expected)


def test_a_result_padded_by_one_graph_enters_another_as_it_is():
    torch.manual_seed(0)
    first, second = torch.compile(lambda x: x * 2), torch.compile(lambda x: x.sum(0))
    x = torch.randn(5, 3)
    there = x.to("tpu")
    torch._dynamo.mark_dynamic(there, 0)
    doubled = first(there)
    torch._dynamo.mark_dynamic(doubled, 0)
    reads = torch_tpu.counters()["host_reads"]
    got = second(doubled)
    assert torch_tpu.counters()["host_reads"] == reads
    torch.testing.assert_close(got.cpu(), (x * 2).sum(0))


def test_an_op_that_is_not_proven_gets_exact_programs_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(bucketed, "EXACT_PROGRAMS", 2)

    def f(x):
        return x.sort(0).values * 2

    compiled = torch.compile(f, dynamic=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in (4, 7, 9, 11):
            x = torch.randn(length)
            torch.testing.assert_close(compiled(x.to("tpu")).cpu(), f(x))
    (warning,) = [w for w in caught if "cannot be padded" in str(w.message)]
    assert "sort" in str(warning.message)
