"""Which instructions of a scheduled program only change the layout of a value, and which op one was made for.

The compiler chooses a layout for each value, and copies where an op wants another one than it finds. Copies between HBM
and the chip's own memory keep the layout: they are none of these.
"""

from collections.abc import Iterator
from typing import Any

from torch_tpu.aot.hlo import Line, Module

_MOVES = {"copy", "transpose", "reshape"}
_PASSES_ON = {"bitcast", "tuple", "get-tuple-element", "copy-start", "copy-done", *_MOVES}


def _order(shape: Any) -> Any:
    """How a shape's elements lie in memory, wherever that is."""
    return list(shape.dimensions), list(shape.layout.minor_to_major), [list(t.dimensions) for t in shape.layout.tiles]


def only_changes_layout(module: Module, instruction: Any) -> bool:
    """True for what puts a value's elements in another order in memory and does nothing else.

    A reshape that costs nothing is a bitcast by then. In a fusion, all parts move data, and one of them changes the order.
    """
    parts = [p for p in module.inside(instruction) if p.opcode not in ("parameter", "bitcast", "tuple")]
    if not all(p.opcode in _MOVES for p in parts):
        return False
    return any(p.opcode != "copy" or _order(p.shape) != _order(module.operands(p)[0].shape) for p in parts)


def line(module: Module, instruction: Any) -> Line:
    """Where a layout copy comes from: its own line, else that of the op that it was made for, else of what made the value."""
    own = module.line(instruction)
    if own.frames:
        return own
    for other in (*_users(module, instruction), *_makers(module, instruction)):
        served = module.line(other)
        if served.frames:
            scope, slash, op = served.op.rpartition("/")
            return Line(f"{scope}{slash}copy for {op}", served.frames)
    return own


def _users(module: Module, instruction: Any) -> Iterator[Any]:
    """What uses a value, and what uses it of those that pass it on, the nearest first."""
    found, seen = [instruction], {instruction.id}
    for passed in found:
        for user in module.users.get(passed.id, ()):
            if user.id not in seen:
                seen.add(user.id)
                yield user
                if user.opcode in _PASSES_ON:
                    found.append(user)


def _makers(module: Module, instruction: Any) -> Iterator[Any]:
    while instruction.opcode in _PASSES_ON and instruction.operand_ids:
        instruction = module.operands(instruction)[0]
        yield instruction
