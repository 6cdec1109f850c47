"""An optimized HLO module as the estimate reads it: sizes, matrix products, loops, and whose Python line an instruction is."""

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# XLA's PrimitiveType -> bits.
_BITS = {
    **dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8),
    **dict.fromkeys((3, 7, 10, 16), 16),
    **dict.fromkeys((4, 8, 11), 32),
    **dict.fromkeys((5, 9, 12, 15), 64),
    18: 128,
    **dict.fromkeys((21, 22, 32), 4),
    **dict.fromkeys((26, 27), 2),
}
_F32, _F64, _TUPLE = 11, 12, 13
_HIGH, _HIGHEST = 1, 2
HBM = 0
_FEW = 1 << 16
_COPIES = {"copy", "bitcast", "copy-start", "copy-done"}


@dataclass(frozen=True)
class Line:
    """Where an instruction comes from: the op's name in the program, and the user's lines, innermost first."""

    op: str
    frames: tuple[tuple[str, str, int], ...]  # file, function, line

    @property
    def where(self) -> str:
        return f"{self.frames[0][0]}:{self.frames[0][2]}" if self.frames else ""


def family(op: str) -> str:
    """The name that the layers of a stack share: ``model.layers.*.mlp/aten.mm``."""
    return re.sub(r"\.\d+(?=[./])", ".*", op)


def shape_bytes(shape: Any, space: int | None = None) -> int:
    """Bytes of an array with its tiles' padding, or of a tuple's arrays; only of those in memory ``space`` if given."""
    if shape.element_type == _TUPLE:
        return sum(shape_bytes(s, space) for s in shape.tuple_shapes)
    if space is not None and shape.layout.memory_space != space:
        return 0
    return _padded_elements(shape) * _BITS.get(shape.element_type, 0) // 8


def plain_bytes(shape: Any) -> int:
    """Bytes of the elements alone."""
    if shape.element_type == _TUPLE:
        return sum(map(plain_bytes, shape.tuple_shapes))
    return math.prod(shape.dimensions) * _BITS.get(shape.element_type, 0) // 8


def _padded_elements(shape: Any) -> int:
    dims = [shape.dimensions[d] for d in reversed(shape.layout.minor_to_major)] or list(shape.dimensions)
    if shape.layout.tiles:
        tile = shape.layout.tiles[0].dimensions
        for i in range(1, min(len(tile), len(dims)) + 1):
            if tile[-i] > 0:
                dims[-i] = -(-dims[-i] // tile[-i]) * tile[-i]
    return math.prod(dims)


class Module:
    """A parsed module (``protos.hlo_module``) with its computations and instructions by id."""

    def __init__(self, proto: Any):
        self.proto = proto
        self.computations = {c.id: c for c in proto.computations}
        self._lines: dict[int, tuple[tuple[str, str, int], ...]] = {}

    @cached_property
    def instructions(self) -> dict[int, Any]:
        return {i.id: i for c in self.proto.computations for i in c.instructions}

    @cached_property
    def users(self) -> dict[int, list[Any]]:
        """What takes an instruction's value, by its id."""
        found: dict[int, list[Any]] = {}
        for user in self.instructions.values():
            for operand in user.operand_ids:
                found.setdefault(operand, []).append(user)
        return found

    @property
    def entry(self) -> Any:
        return self.computations[self.proto.entry_id]

    def scheduled(self, computation: Any) -> list[Any]:
        """The instructions in the order they run."""
        sequences = self.proto.schedule.sequences
        if computation.id not in sequences:
            return list(computation.instructions)
        return [self.instructions[i] for i in sequences[computation.id].instruction_ids]

    def inside(self, instruction: Any) -> Iterator[Any]:
        """The instruction itself, or all that a fusion is made of, fusions within it included."""
        if instruction.opcode != "fusion":
            yield instruction
            return
        for called in instruction.called_computation_ids:
            for inner in self.computations[called].instructions:
                yield from self.inside(inner)

    def operands(self, instruction: Any) -> list[Any]:
        return [self.instructions[i] for i in instruction.operand_ids]

    # --- where it comes from

    def line(self, instruction: Any) -> Line:
        """Of the instruction, or for a fusion without one, of the first part that has one."""
        for part in (instruction, *self.inside(instruction)):
            if part.metadata.op_name:
                return Line(part.metadata.op_name, self._frames(part.metadata.stack_frame_id))
        return Line("", ())

    def _frames(self, frame: int) -> tuple[tuple[str, str, int], ...]:
        if frame not in self._lines:
            index, found, at = self.proto.stack_frames, [], frame
            while at:
                stack = index.stack_frames[at - 1]
                place = index.file_locations[stack.file_location_id - 1]
                file = index.file_names[place.file_name_id - 1]
                # "-" is the program's own text.
                if file != "-":
                    found.append((file, index.function_names[place.function_name_id - 1], place.line))
                at = stack.parent_frame_id
            self._lines[frame] = tuple(found)
        return self._lines[frame]

    # --- matrix products

    def matmul_flops(self, instruction: Any) -> tuple[int, int]:
        """(floating-point operations, the same times the MXU's passes) of the products in an instruction.

        A float32 product takes 1, 3 or 6 bfloat16 passes by its precision.
        """
        flops = passes = 0
        for part in self.inside(instruction):
            if part.opcode == "convolution":
                n = self._convolution_flops(part)
            elif part.opcode == "dot":
                n = self._dot_flops(part)
            else:
                continue
            flops += n
            passes += n * self._passes(part)
        return flops, passes

    def _passes(self, product: Any) -> int:
        types = {o.shape.element_type for o in self.operands(product)}
        if not types & {_F32, _F64}:
            return 1
        precision = max(product.precision.operand_precision, default=0)
        return {_HIGH: 3, _HIGHEST: 6}.get(precision, 1)

    def _dot_flops(self, dot: Any) -> int:
        lhs = self.operands(dot)[0].shape.dimensions
        return 2 * math.prod(dot.shape.dimensions) * math.prod(lhs[d] for d in dot.dot_dimensions.lhs_contracting)

    def _convolution_flops(self, conv: Any) -> int:
        lhs, rhs = (o.shape.dimensions for o in self.operands(conv))
        d, out = conv.convolution_dimensions, conv.shape.dimensions
        positions = 1
        for i, window in enumerate(conv.window.dimensions):
            positions *= _valid_positions(lhs[d.input_spatial[i]], out[d.output_spatial[i]], window)
        batch = out[d.output_batch] // max(conv.batch_group_count, 1)
        return 2 * positions * batch * out[d.output_feature] * rhs[d.kernel_input_feature]

    # --- loops

    def trip_count(self, loop: Any) -> int | None:
        """How often a while's body runs; None if it depends on data, or has more than one way to end."""
        body, condition = (self.computations[c] for c in loop.called_computation_ids[:2])
        bound = index = None
        for part in (p for i in condition.instructions for p in self.inside(i)):
            if part.opcode in ("and", "or"):
                return None
            if part.opcode == "constant":
                bound = _integer(part.literal)
            elif part.opcode == "get-tuple-element":
                index = part.tuple_index
        if bound is None or index is None:
            return None
        root = self.instructions[body.root_id]
        init = self.operands(loop)[0]
        if root.opcode != "tuple" or init.opcode != "tuple":
            return None
        start = _integer(self._source(self.operands(init)[index]).literal)
        step = next(
            (_integer(p.literal) for p in self._near(self.operands(root)[index]) if p.opcode == "constant"), None
        )
        if start is None or not step:
            return None
        return max(0, -(-(bound - start) // step))

    def config(self, instruction: Any) -> bytes:
        """What the compiler was told of an instruction: its own text, or one that the module keeps for several."""
        if instruction.HasField("shared_config"):
            return self.proto.shared_configs[instruction.shared_config.index]
        return instruction.backend_config

    def numbers(self, instruction: Any) -> tuple[int, ...] | None:
        """What an instruction holds, if it is a constant of few integers or a copy of one."""
        source = self._source(instruction)
        few = source.opcode == "constant" and math.prod(source.shape.dimensions) <= _FEW
        return _integers(source.literal) if few else None

    def _source(self, instruction: Any) -> Any:
        while instruction.opcode in _COPIES and instruction.operand_ids:
            instruction = self.operands(instruction)[0]
        return instruction

    def _near(self, instruction: Any) -> Iterator[Any]:
        yield from self.inside(instruction)
        yield from self.operands(instruction)


def _valid_positions(size: int, out: int, window: Any) -> int:
    """Pairs of an output position and a window position that fall on an element of the input."""
    n, stride = window.size, window.stride or 1
    dilation, base = window.window_dilation or 1, window.base_dilation or 1
    if n == 1 and stride == 1 and base == 1 and not window.padding_low:
        return min(out, size)
    # The side with fewer positions is walked, the other is solved.
    span = (size - 1) * base + 1
    count = 0
    for k in range(n):
        shift = k * dilation - window.padding_low
        if base == 1:
            first = max(0, -(shift // stride))
            last = min(out - 1, (size - 1 - shift) // stride)
            count += max(0, last - first + 1)
        else:
            count += _hits(shift, stride, base, span, out)
    return count


def _hits(shift: int, stride: int, base: int, span: int, out: int) -> int:
    """How many o in [0, out) have 0 <= shift + o * stride < span, a multiple of base."""
    first = max(0, -(shift // stride))
    last = min(out - 1, (span - 1 - shift) // stride)
    period = base // math.gcd(stride, base)
    for o in range(first, min(first + period, last + 1)):
        if (shift + o * stride) % base == 0:
            return (last - o) // period + 1
    return 0


def _integers(literal: Any) -> tuple[int, ...] | None:
    if literal.s8s:
        return struct.unpack(f"{len(literal.s8s)}b", literal.s8s)
    if literal.s16s:
        return struct.unpack(f"<{len(literal.s16s) // 2}h", literal.s16s)
    found = next((v for v in (literal.s32s, literal.s64s, literal.u32s, literal.u64s, literal.u8s) if v), None)
    return None if found is None else tuple(found)


def _integer(literal: Any) -> int | None:
    for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
        if len(values) == 1:
            return values[0]
    return None
