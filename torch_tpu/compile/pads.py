"""The words of ``padding``: which parts of a dim are padding, how an op runs with it, and sizes as expressions."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch

# What stands for dynamic sizes where numbers are compared.
PRIMES = (1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121)


class Unproven(Exception):
    """The graph cannot be shown to be right with padding: why."""


@dataclass(frozen=True)
class Pad:
    """A dim of ``pre * size * post`` elements; element i is padding if ``i // post % bucket >= size``."""

    symbol: sympy.Symbol
    pre: int = 1
    post: int = 1


Pads = tuple[Pad | None, ...]  # by dim


@dataclass
class Step:
    """How a node runs in the padded graph.

    ``fills``: by position of an operand, what the padding in its dims ``dims`` (None: in all) is replaced with:
    a number, or the dtype's ``"least"`` or ``"most"``.
    ``replace``: called instead of the op, as ``replace(sizes, *args, **kwargs)``; ``sizes`` are the true ones.
    """

    fills: dict[int, float | str]
    dims: frozenset[int] | None = None
    replace: Callable | None = None
    by_operand: dict[int, frozenset[int]] | None = None  # dims of each, where they differ

    def dims_of(self, operand: int) -> frozenset[int] | None:
        return self.dims if self.by_operand is None else self.by_operand[operand]


def true_size(expression: sympy.Expr, sizes: dict[sympy.Symbol, Any]) -> Any:
    """``expression`` of true sizes, which may be tensors. Raises Unproven for other than sums and products."""
    if isinstance(expression, sympy.Integer):
        return int(expression)
    if isinstance(expression, sympy.Symbol) and expression in sizes:
        return sizes[expression]
    if isinstance(expression, (sympy.Add, sympy.Mul)):
        combine = operator.add if isinstance(expression, sympy.Add) else operator.mul
        result = true_size(expression.args[0], sizes)
        for argument in expression.args[1:]:
            result = combine(result, true_size(argument, sizes))
        return result
    raise Unproven(f"the number {expression}")


def expression_of(value: Any) -> sympy.Expr:
    """A size as sympy has it."""
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
