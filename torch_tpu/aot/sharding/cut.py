"""How an array is cut among devices, followed through reshapes, transposes and slices.

A cut is kept as digits of the row-major index of an element: (stride, size), the most significant first. An array
(tokens, heads x 64) that is cut by heads has the digit (64, heads), and a reshape to (tokens, heads, 64) leaves it so.
"""

import math
from dataclasses import dataclass, replace

from torch_tpu.aot.sharding.text import Dims

Digit = tuple[int, int]  # stride, size


@dataclass(frozen=True)
class Piece:
    """A digit within one dimension of an array, whose index is then (.., size, inner)."""

    dim: int
    inner: int
    size: int


@dataclass(frozen=True)
class Cut:
    """An activation of which every device has a part."""

    digits: tuple[Digit, ...]
    blocks: bool  # True: the digits count blocks that stay whole, such as heads; False: any features
    weights: frozenset[str]  # whose products' results it is made of

    @property
    def count(self) -> int:
        return math.prod(size for _, size in self.digits)

    def pieces(self, dims: Dims) -> list[Piece]:
        """The digits by dimension. Those that dimensions' ends do not divide are left out."""
        found, strides = [], _strides(dims)
        for stride, size in self.digits:
            for dim, step in enumerate(strides):
                low, high = max(stride, step), min(stride * size, step * dims[dim])
                if low < high and low % step == 0 and high % low == 0:
                    found.append(Piece(dim, low // step, high // low))
        return found

    def with_pieces(self, pieces: list[Piece], dims: Dims) -> "Cut | None":
        """The same devices' parts of an array of other dimensions. None: nothing of it is cut."""
        strides = _strides(dims)
        digits: list[Digit] = []
        for stride, size in sorted(((p.inner * strides[p.dim], p.size) for p in pieces), reverse=True):
            if digits and digits[-1][0] == stride * size:
                digits[-1] = (stride, digits[-1][1] * size)
            else:
                digits.append((stride, size))
        return replace(self, digits=tuple(digits)) if digits else None

    def moved(self, dims: Dims, made: Dims, to: dict[int, int]) -> "Cut | None":
        """Through an operation that makes dimension ``to[d]`` of its result from dimension d, if one is made of it.

        A dimension that becomes shorter or longer (a slice, padding, a concatenation) is cut as before, into as many parts.
        """
        kept = []
        for p in self.pieces(dims):
            if p.dim not in to:
                continue
            size = made[to[p.dim]]
            if size == dims[p.dim]:
                kept.append(Piece(to[p.dim], p.inner, p.size))
            elif p.inner == 1 and p.size == dims[p.dim] and size > 1:
                kept.append(Piece(to[p.dim], 1, size))
        return self.with_pieces(kept, made)


def along(dim: int, dims: Dims, weight: str) -> Cut:
    """All features of one dimension are cut, as the weight's are that made them."""
    return Cut(((_strides(dims)[dim], dims[dim]),), False, frozenset([weight]))


def _strides(dims: Dims) -> list[int]:
    strides = [1] * len(dims)
    for i in range(len(dims) - 2, -1, -1):
        strides[i] = strides[i + 1] * dims[i + 1]
    return strides
