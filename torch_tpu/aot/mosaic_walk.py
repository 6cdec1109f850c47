"""Walks a Pallas kernel's Mosaic program over its grid and counts what it does.

The scalars that steer it are computed at all points of the grid at once, those in constant operands included, so that
blocks which a causal mask leaves out are not counted, and a block that stays in fast memory is fetched once. Arrays are
left out: a branch that depends on one counts as taken. Importing it needs jaxlib, and numpy with it.
"""

import base64
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager
from jaxlib.mosaic.python import tpu

from torch_tpu.aot.mosaic import Work

MOST_POINTS = 1 << 22  # of a grid
_MOST_TURNS = 256  # of a loop walked turn by turn; longer ones are counted by their length alone

_TRANSCENDENTAL = {
    "math.exp", "math.exp2", "math.expm1", "math.log", "math.log2", "math.log1p", "math.tanh", "math.rsqrt",
    "math.sqrt", "math.sin", "math.cos", "math.powf", "math.erf", "arith.divf", "tpu.reciprocal",
}  # fmt: skip
_COMPARE = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
_SCALAR: dict[str, Callable] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": lambda a, b: np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64),
    "arith.floordivsi": lambda a, b: a // np.where(b == 0, 1, b),
    "arith.remsi": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.select": lambda chosen, a, b: np.where(chosen != 0, a, b),
}
_SAME = {"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"}

# A scalar at every point of the grid; an operand's numbers; None is what is not known.
Known = np.ndarray | None


def work(body: str, scalars: tuple[tuple[int, ...] | None, ...]) -> Work | None:
    """``mosaic.work``. None: jaxlib cannot read the kernel, or the size of its grid is not in it."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    tpu.register_dialect(context)
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(base64.b64decode(body))
            PassManager.parse("builtin.module(mosaic-serde{serialize=false})").run(module.operation)
        except ir.MLIRError:  # of another version
            return None
        functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
        return _Kernel(functions, scalars).work()


class _Kernel:
    def __init__(self, functions: list[Any], scalars: tuple):
        self._main = functions[0]
        self._named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions}
        attributes = self._main.attributes
        self._grid = list(attributes["iteration_bounds"]) if "iteration_bounds" in attributes else [1]
        count = attributes["scalar_prefetch"].value if "scalar_prefetch" in attributes else 0
        self._scalars = [scalars[i] if i < len(scalars) else None for i in range(count)]
        self._found = Work()

    def work(self) -> Work | None:
        points = math.prod(self._grid)
        if not 0 < points <= MOST_POINTS:
            return None
        places = np.indices(self._grid).reshape(len(self._grid), -1)
        self._run(self._main, places, np.ones(points))
        self._found.bytes = self._moved(places)
        return self._found

    def _run(self, function: Any, places: np.ndarray, weight: np.ndarray) -> list[Known]:
        block = function.regions[0].blocks[0]
        given = [*places, *self._scalars]
        values = {argument: given[i] if i < len(given) else None for i, argument in enumerate(block.arguments)}
        for i, argument in enumerate(block.arguments):
            if len(places) <= i < len(given) and given[i] is not None:
                values[argument] = np.array(given[i]).reshape(argument.type.shape)
        return self._block(block, values, weight)

    def _moved(self, places: np.ndarray) -> float:
        """Bytes of the blocks that change from one point of the grid to the next."""
        if "window_params" not in self._main.attributes:
            return 0.0
        arguments = list(self._main.regions[0].blocks[0].arguments)[len(self._grid) + len(self._scalars) :]
        moved = 0.0
        nothing = np.zeros(places.shape[1])
        for argument, window in zip(arguments, self._main.attributes["window_params"], strict=False):
            if "transform_indices" not in window:
                continue
            at = self._run(self._named[ir.FlatSymbolRefAttr(window["transform_indices"]).value], places, nothing)
            block = math.prod(argument.type.shape) * self._bits(argument.type.element_type) / 8
            if any(index is None for index in at):
                moved += block * places.shape[1]
                continue
            indices = np.stack([np.broadcast_to(index, places.shape[1]) for index in at])
            moved += block * (1 + int(np.count_nonzero(np.any(indices[:, 1:] != indices[:, :-1], axis=0))))
        return moved

    def _bits(self, type_: Any) -> int:
        return type_.width if hasattr(type_, "width") else 32

    # --- the program

    def _block(self, block: Any, values: dict, weight: np.ndarray) -> list[Known]:
        """Runs a block at the grid's points, each as often as ``weight`` says; returns what it ends with."""
        for op in block.operations:
            op = op.operation
            name = op.name
            if name in ("scf.yield", "func.return"):
                return [values.get(o) for o in op.operands]
            if name == "scf.if":
                results = self._branch(op, values, weight)
            elif name == "scf.for":
                results = self._loop(op, values, weight)
            elif op.regions:
                for region in op.regions:
                    for inner in region.blocks:
                        self._block(inner, values, weight)
                results = [None] * len(op.results)
            else:
                self._count(op, float(weight.sum()))
                results = [self._scalar(op, values)] * len(op.results)
            values.update(zip(op.results, results, strict=True))
        return []

    def _branch(self, op: Any, values: dict, weight: np.ndarray) -> list[Known]:
        chosen = values.get(op.operands[0])
        taken = weight if chosen is None else np.where(chosen != 0, weight, 0.0)
        yes = self._block(op.regions[0].blocks[0], values, taken)
        others = list(op.regions[1].blocks)
        # Of a branch on what is not known, the first side counts.
        no = (
            self._block(others[0], values, np.zeros_like(weight) if chosen is None else weight - taken)
            if others
            else []
        )
        known = chosen is not None
        return [
            np.where(chosen != 0, a, b) if known and a is not None and b is not None else None
            for a, b in zip(yes, no, strict=True)
        ]

    def _loop(self, op: Any, values: dict, weight: np.ndarray) -> list[Known]:
        start, end, step = (values.get(o) for o in list(op.operands)[:3])
        carried = [values.get(o) for o in list(op.operands)[3:]]
        block = op.regions[0].blocks[0]
        arguments = list(block.arguments)
        if start is None or end is None or step is None:
            self._block(block, values, weight)
            return [None] * len(op.results)
        turns = np.maximum(0, -(-(end - start) // step))
        most = int(np.max(turns))
        if most > _MOST_TURNS:
            self._block(block, values, weight * turns)
            return [None] * len(op.results)
        for turn in range(most):
            values.update(zip(arguments, [start + turn * step, *carried], strict=True))
            carried = self._block(block, values, np.where(turn < turns, weight, 0.0))
        return carried if np.all(turns == most) else [None] * len(op.results)

    def _scalar(self, op: Any, values: dict) -> Known:
        if not op.results or isinstance(op.results[0].type, ir.VectorType):
            return None
        name = op.name
        if name == "arith.constant":
            value = op.attributes["value"]
            return np.int64(value.value) if isinstance(value, ir.IntegerAttr | ir.BoolAttr) else None
        operands = [values.get(o) for o in op.operands]
        if not operands or any(o is None for o in operands):
            return None
        if name in _SAME:
            return operands[0]
        if name == "memref.load":
            held, *at = operands
            return held[tuple(np.clip(i, 0, n - 1) for i, n in zip(at, held.shape, strict=True))]
        if name == "arith.cmpi":
            return _COMPARE[op.attributes["predicate"].value](*operands).astype(np.int64)
        return _SCALAR[name](*operands) if name in _SCALAR else None

    def _count(self, op: Any, times: float) -> None:
        if not op.results or not isinstance(op.results[0].type, ir.VectorType):
            return
        name, shape = op.name, list(op.results[0].type.shape)
        if name in ("tpu.matmul", "vector.contract"):
            batch = shape[0] if len(shape) > 2 else 1
            left, right, both = (
                math.prod(sizes) // batch for sizes in (op.operands[0].type.shape, op.operands[1].type.shape, shape)
            )
            # Both operands have what is contracted, the result has the rest of both.
            contracted = math.isqrt(left * right // both)
            self._found.products[left // contracted, contracted, right // contracted] += times * batch
        elif name == "vector.multi_reduction":
            self._found.elements += times * math.prod(op.operands[0].type.shape)
        elif name in _TRANSCENDENTAL:
            self._found.transcendentals += times * math.prod(shape)
        elif name.startswith(("arith.", "math.")) and name != "arith.constant":
            self._found.elements += times * math.prod(shape)
