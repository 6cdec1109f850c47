"""Calls on both devices, compared together at the end: one program for many of them."""

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map


class Comparison:
    """Results of CPU PyTorch and of tpu: values, dtypes, strides and, where asked, the signs of zeros."""

    def __init__(self, signs: bool = False, **tolerances):
        self.pending = []
        self.signs = signs
        self.tolerances = tolerances

    def add(self, what, f, *operands, host=()):
        """f on the CPU and on tpu; operands whose position is in ``host`` stay on the CPU.

        f may return any tree of tensors and numbers. Where the CPU refuses, tpu must refuse.
        """
        there = [
            o if i in host else tree_map(lambda t: t.to("tpu") if isinstance(t, torch.Tensor) else t, o)
            for i, o in enumerate(operands)
        ]
        try:
            expected = f(*operands)
        except (RuntimeError, IndexError, ValueError) as error:
            with pytest.raises(type(error)):
                f(*there)
                pytest.fail(f"{what}: the CPU refuses this: {error}")
            return
        if isinstance(expected, torch.Tensor) and expected.dtype == torch.complex32:  # no device of XLA's has it
            with pytest.raises(NotImplementedError, match="ComplexHalf"):
                f(*there)
            return
        actual = f(*there)
        pairs = list(zip(tree_flatten(actual)[0], tree_flatten(expected)[0], strict=True))
        for a, e in pairs:
            if isinstance(e, torch.Tensor):
                assert a.device.type == "tpu"
                assert a.dtype == e.dtype, f"{what}: {a.dtype} for {e.dtype}"
                assert a.stride() == e.stride(), (
                    f"{what}: {list(a.shape)}, {a.stride()} for {list(e.shape)}, {e.stride()}"
                )
        self.pending.append((what, pairs))

    def finish(self) -> int:
        """Compares; returns how many calls."""
        for what, pairs in self.pending:
            for a, e in pairs:
                if not isinstance(e, torch.Tensor):
                    assert a == e, f"{what}: {a} for {e}"
                    continue
                a, e = a.detach().cpu(), e.detach()
                message = lambda text, what=what, a=a, e=e: f"{what}: {text}\ngot {a}\nexpected {e}"  # noqa: E731
                torch.testing.assert_close(a, e, equal_nan=True, msg=message, **self.tolerances)
                if self.signs and e.dtype.is_floating_point:
                    same = (a.signbit() == e.signbit()) | e.isnan()
                    assert same.all(), f"{what}: other signs: {a} for {e}"
        return len(self.pending)
