"""Which ops of a program compute in 64 bits, which a TPU has not: the compiler makes pairs of 32-bit numbers of them.

Read from the StableHLO that the compiler gets, since what it makes of it names no 64-bit type. Left out is what costs
little: fewer than 65,536 numbers, moving them, and of integers comparing and adding them, as token ids and indices need it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from torch_tpu.aot.hlo import family
from torch_tpu.aot.sharding.text import Block, Operation, functions_of, places_of

LEAST = 65_536  # elements

_KINDS = {"f64": "float64", "complex<f64>": "float64", "i64": "int64", "ui64": "int64"}
_MOVES = {
    "bitcast_convert", "broadcast_in_dim", "call", "case", "concatenate", "constant", "convert", "custom_call",
    "dynamic_slice", "dynamic_update_slice", "gather", "get_tuple_element", "if", "iota", "optimization_barrier", "pad",
    "reshape", "return", "reverse", "select", "slice", "transpose", "tuple", "while",
}  # fmt: skip
_OF_INTEGERS = {"convolution", "divide", "dot_general", "multiply", "power", "reduce_window", "remainder", "sort"}


@dataclass(frozen=True)
class Emulated:
    """What an op does in 64 bits at one Python line, in all layers of a stack together."""

    type: str  # "float64", "int64"
    op: str
    where: str
    calls: int
    elements: int  # of the largest operand
    operations: list[str]  # by their names in StableHLO


@dataclass(frozen=True)
class _Work:
    kind: str
    operation: str
    elements: int

    @property
    def matters(self) -> bool:
        return self.elements >= LEAST and (self.kind == "float64" or self.operation in _OF_INTEGERS)


def emulated_ops(module: str) -> list[Emulated]:
    """What matters of a program's 64-bit arithmetic, the most elements first. ``module``: its text, as it was recorded."""
    if not any(f"{kind}>" in module for kind in _KINDS):
        return []
    functions = functions_of(module)
    places = places_of(module)
    found: dict[tuple[str, str, str], list[list[_Work]]] = defaultdict(list)
    for operation in _all(functions["main"]) if "main" in functions else ():
        work = list(_work_of(operation, functions))
        op, where = places.get(operation.location, (f"stablehlo.{operation.name}", ""))
        for kind in {w.kind for w in work}:
            found[kind, family(op), where].append([w for w in work if w.kind == kind])
    rows = [
        Emulated(
            kind,
            op,
            where,
            len(calls),
            max(w.elements for call in calls for w in call),
            sorted({w.operation for call in calls for w in call}),
        )
        for (kind, op, where), calls in found.items()
    ]
    return sorted(rows, key=lambda row: -row.elements)


def _all(block: Block) -> Iterator[Operation]:
    """The operations of a block and of those in it."""
    for operation in block.operations:
        yield operation
        for region in operation.regions:
            yield from _all(region)


def _work_of(operation: Operation, functions: dict[str, Block]) -> Iterator[_Work]:
    """What matters of an operation, or of the function that it calls."""
    if operation.name == "call":
        for inner in _all(functions[operation.callee]):
            yield from _work_of(inner, functions)
    elif operation.name not in _MOVES:
        for kind in ("float64", "int64"):
            sizes = [
                math.prod(dims)
                for dims, element in zip(operation.operand_dims, operation.operand_elements, strict=True)
                if _KINDS.get(element) == kind
            ]
            if sizes and (work := _Work(kind, operation.name, max(sizes))).matters:
                yield work
