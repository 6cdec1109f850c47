"""Ops that make tensors of numbers: ranges between tensors, ranges and identities into given tensors, triangles' indices."""

import pytest
import torch
from comparison import Comparison

HERE = torch.zeros(())


def device_of(*numbers) -> torch.device:
    return next(n.device for n in numbers if isinstance(n, torch.Tensor))


@pytest.mark.parametrize("f", [torch.linspace, torch.logspace])
def test_ranges_between_tensors(f):
    """Where integers are asked for, numbers lose their fractions first."""
    calls = Comparison(rtol=1e-5, atol=1e-5)
    start, end = torch.tensor(-1.5), torch.tensor(2.9)
    for steps in (0, 1, 2, 7):
        for dtype in (None, torch.float64, torch.int32, torch.int64):
            options = {"dtype": dtype} | ({"base": 3.0} if f is torch.logspace else {})
            given = lambda a, b, n=steps, o=options: f(a, b, n, device=device_of(a, b), **o)  # noqa: E731
            calls.add(f"{steps} {dtype}", given, start, end)
            calls.add(f"{steps} {dtype} from a number", lambda b, g=given: g(-0.5, b), end)
            calls.add(f"{steps} {dtype} to a number", lambda a, g=given: g(a, 1), start)
    op = getattr(torch.ops.aten, f.__name__)
    for dtype in (torch.float32, torch.int32):
        into = lambda a, b, out: f(a, b, 6, out=out.clone())  # noqa: E731
        calls.add(f"into {dtype}", into, start, end, torch.zeros(6, dtype=dtype))
        from_number = lambda b, out: op.Scalar_Tensor_out(-0.5, b, 6, out=out.clone())  # noqa: E731
        to_number = lambda a, out: op.Tensor_Scalar_out(a, 3, 6, out=out.clone())  # noqa: E731
        calls.add(f"into {dtype} from a number", from_number, end, torch.zeros(6, dtype=dtype))
        calls.add(f"into {dtype} to a number", to_number, start, torch.zeros(6, dtype=dtype))
    for bounds in ((-1.5, 2.9), (True, 5.5), (2.7, 2.7)):
        g = lambda x, b=bounds: f(*b, 4, dtype=torch.int64, device=x.device)  # noqa: E731
        calls.add(f"{bounds}", g, HERE)
    calls.add("of integers", lambda a, b: f(a, b, 5, device=a.device), torch.tensor(1), torch.tensor(4))
    assert calls.finish() == 4 * 4 * 3 + 10
    rounded = Comparison(rtol=2e-2, atol=1e-2)  # CPU PyTorch rounds each step
    rounded.add("in bfloat16", lambda a, b: f(a, b, 6, dtype=torch.bfloat16, device=a.device), start, end)
    assert rounded.finish() == 1


def test_ranges_with_their_end():
    calls = Comparison()
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        for bounds in ((0, 5), (1, 4, 0.5), (5, -2, -1.5), (2, 2)):
            if dtype.is_floating_point or all(isinstance(b, int) for b in bounds):
                f = lambda out, b=bounds: torch.ops.aten.range.out(*b, out=torch.zeros_like(out))  # noqa: E731
                calls.add(f"{bounds} {dtype}", f, torch.zeros(3, dtype=dtype))
    assert calls.finish() > 10


def test_identities():
    calls = Comparison()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        for sizes in ((3,), (0,), (2, 5), (5, 2)):
            calls.add(f"{sizes} {dtype}", lambda x, s=sizes, d=dtype: torch.eye(*s, dtype=d, device=x.device), HERE)
            into = lambda out, s=sizes: torch.eye(*s, out=out)  # noqa: E731
            calls.add(f"{sizes} into {dtype}", into, torch.ones(sizes[0], sizes[-1], dtype=dtype))
    assert calls.finish() == 5 * 4 * 2


@pytest.mark.parametrize("f", [torch.tril_indices, torch.triu_indices])
def test_indices_of_triangles(f):
    calls = Comparison()
    for rows, columns in ((3, 3), (4, 2), (2, 5), (0, 3), (1, 1)):
        for offset in (-5, -2, -1, 0, 1, 3, 6):
            g = lambda x, r=rows, c=columns, o=offset: f(r, c, o, device=x.device)  # noqa: E731
            calls.add(f"{rows} x {columns}, {offset}", g, HERE)
    for sizes in ((-1, 3), (3, -1)):
        calls.add(f"{sizes}", lambda x, s=sizes: f(*s, device=x.device), HERE)
    calls.add("in int32", lambda x: f(3, 4, 1, dtype=torch.int32, device=x.device), HERE)
    assert calls.finish() == 5 * 7 + 1
