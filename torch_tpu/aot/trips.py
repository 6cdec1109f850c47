"""How often a loop runs whose end depends on an enclosing loop, found by running the scalars that steer it.

Arrays are left out: a loop that ends by one is unknown. Values are Python integers, and lists for tuples; None is
what is not known.
"""

import operator
from collections.abc import Callable
from typing import Any

from torch_tpu.aot.hlo import Module

Scalar = int | list | None
# What the parameters of a computation are in one run of it, by the parameter's instruction id.
Frame = dict[int, Scalar]

MOST_RUNS = 1 << 16  # of one loop, all runs of the enclosing ones together
_TUPLE = 13
_COMPARE = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def _divide(a: int, b: int) -> int | None:
    """Towards zero, as XLA does."""
    if b == 0:
        return None
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int | None:
    whole = _divide(a, b)
    return None if whole is None else a - b * whole


_OPERATIONS: dict[str, Callable[..., int | None]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divide,
    "remainder": _remainder,
    "maximum": max,
    "minimum": min,
    "negate": operator.neg,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    # Of what is not negative; a loop's numbers are not.
    "shift-right-logical": lambda a, by: a >> by if a >= 0 else 0,
    "shift-right-arithmetic": operator.rshift,
    "shift-left": operator.lshift,
    "select": lambda chosen, a, b: a if chosen else b,
    "clamp": lambda low, a, high: min(max(a, low), high),
}
_SAME = {"copy", "bitcast", "convert", "reshape", "opt-barrier", "copy-done"}


class Loops:
    """Runs the loops of a module."""

    def __init__(self, module: Module):
        self._module = module

    def frames(self, loop: Any, enclosing: list[Frame]) -> list[Frame] | None:
        """A frame for each run of a while's body, over all runs of the computation it stands in; None if not known."""
        body, condition = (self._module.computations[c] for c in loop.called_computation_ids[:2])
        given, asked = (self._parameter(c) for c in (body, condition))
        found: list[Frame] = []
        for frame in enclosing:
            state = self._value(self._module.operands(loop)[0], frame, {})
            while True:
                goes_on = self._value(self._module.instructions[condition.root_id], {asked: state}, {})
                if not isinstance(goes_on, int):
                    return None
                if not goes_on:
                    break
                if len(found) == MOST_RUNS:
                    return None
                found.append({given: state})
                state = self._value(self._module.instructions[body.root_id], {given: state}, {})
        return found

    def _parameter(self, computation: Any) -> int:
        return next(i.id for i in computation.instructions if i.opcode == "parameter")

    def _value(self, instruction: Any, frame: Frame, known: dict[int, Scalar]) -> Scalar:
        """An instruction's value in a frame. ``known``: those of this frame found so far."""
        if instruction.id not in known:
            known[instruction.id] = self._compute(instruction, frame, known)
        return known[instruction.id]

    def _compute(self, instruction: Any, frame: Frame, known: dict[int, Scalar]) -> Scalar:
        opcode = instruction.opcode
        if opcode == "parameter":
            return frame.get(instruction.id)
        if opcode == "tuple":
            return [self._value(o, frame, known) for o in self._module.operands(instruction)]
        if opcode == "get-tuple-element":
            whole = self._value(self._module.operands(instruction)[0], frame, known)
            return whole[instruction.tuple_index] if isinstance(whole, list) else None
        if instruction.shape.dimensions or instruction.shape.element_type == _TUPLE:
            return None
        if opcode == "constant":
            literal = instruction.literal
            values = next((v for v in (literal.preds, literal.s32s, literal.s64s, literal.u32s, literal.u64s) if v), ())
            return int(values[0]) if len(values) == 1 else None
        if opcode == "fusion":
            return self._of_fusion(
                instruction, [self._value(o, frame, known) for o in self._module.operands(instruction)]
            )
        if opcode in _SAME:
            return self._value(self._module.operands(instruction)[0], frame, known)
        operation = _COMPARE.get(instruction.comparison_direction) if opcode == "compare" else _OPERATIONS.get(opcode)
        if operation is None:
            return None
        operands = [self._value(o, frame, known) for o in self._module.operands(instruction)]
        return int(operation(*operands)) if all(isinstance(o, int) for o in operands) else None

    def _of_fusion(self, fusion: Any, operands: list[Scalar]) -> Scalar:
        computation = self._module.computations[fusion.called_computation_ids[0]]
        inside = {i.id: operands[i.parameter_number] for i in computation.instructions if i.opcode == "parameter"}
        return self._value(self._module.instructions[computation.root_id], inside, {})
