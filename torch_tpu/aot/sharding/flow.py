"""Which dimension of each weight tensor parallelism cuts, found by following a program's activations in their order.

An activation is whole on every device, or cut. A product of a whole one with a weight cuts the weight along its output
features, and its result is cut; a product that sums over what is cut cuts the weight along its input features, and its
result, which the devices add up, is whole. A table that rows are read from is cut along its rows. A weight stays whole
if the result of cutting it would be added to a whole activation.

In between, a cut goes through elementwise operations, reshapes, slices and attention; the result of an operation that
is not known here is whole. Where a cut dimension is first split, into heads, the first part counts blocks that stay
whole, which limits the parts of the weights it comes from. A weight that makes heads of a cut activation (the second of
a low-rank pair) is cut by them, and what made the activation stays whole.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch_tpu.aot.sharding.cut import Cut, along
from torch_tpu.aot.sharding.text import Block, Dims, Operation

# Elements of a weight that every device holds whole: smaller ones cost more to cut than they take.
SMALL = 1 << 16


@dataclass(frozen=True)
class Weight:
    """A parameter, or one of a stack. ``dims``: the parameter's dimension that each dimension of the value is; None where
    it has none, such as that of the stack."""

    name: str
    dims: tuple[int | None, ...]


@dataclass(frozen=True)
class Rows:
    """Rows that were read from a table, as they are. ``dim``: of the value, that is along a row."""

    table: str
    dim: int


# A function that torch_tpu.pallas wrote; the op that calls it has a number in its name.
_FOREIGN = re.compile("foreign_[0-9a-f]{16}")
CONSTANT = "constant"  # the same everywhere, whatever it is combined with
WHOLE = None
State = Cut | Weight | Rows | str | None


_BEFORE_HEADS, _HEADS, _SUMS = range(3)


@dataclass
class Found:
    """What is known of the weights. Grows over the programs of a recording."""

    devices: int
    size: dict[str, Dims]  # of a weight, of one in a stack
    heads: frozenset[str] = frozenset()  # weights whose results are split into heads
    whole: frozenset[str] = frozenset()  # weights that stay so
    biases: frozenset[str] = frozenset()  # tables whose rows are added to what is cut
    new_biases: set[str] = field(default_factory=set)  # likewise, for the next walk
    # Weights that turn out to stay so, for the next walk. Of several kinds the first counts, as it may be why there are
    # others: those before a weight that makes heads, those of heads that devices cannot share, those of sums.
    doubts: tuple[set[str], ...] = field(default_factory=lambda: (set(), set(), set()))
    dim: dict[str, int] = field(default_factory=dict)  # that is cut, of one in a stack
    limit: dict[str, int] = field(default_factory=dict)  # blocks that a weight's parts cannot split
    follows: dict[str, frozenset[str]] = field(default_factory=dict)  # vector -> weights whose results it is added to
    rows: set[str] = field(default_factory=set)  # weights that are cut along their input features
    tables: set[str] = field(default_factory=set)  # that rows are read from

    def parts(self, name: str) -> int:
        """How many parts a weight is cut into: the devices' number, or a divisor of it."""
        if name not in self.dim:
            return 1
        if name in self.follows:
            return min(map(self.parts, self.follows[name]), default=1)
        return math.gcd(self.devices, self.limit.get(name, self.devices))


class Flow:
    """One walk over a program's operations, which adds to ``found``."""

    def __init__(self, functions: dict[str, Block], found: Found):
        self.sums: set[str] = set()  # functions whose products devices add up, in the forward
        self.heads: set[str] = set()  # weights whose results are split into heads
        self._functions = functions
        self._found = found
        self._calls: dict[tuple, list[State]] = {}
        self._function = ""
        self._scouting = False

    def run(self, arguments: list[State]) -> list[State]:
        """The states of main's results."""
        return self._call("main", arguments)

    def scout(self, arguments: list[State]) -> None:
        """Finds ``heads``, with the first product of each weight as if it were cut along its output features."""
        self._scouting = True
        self._call("main", arguments)

    def _call(self, name: str, arguments: list[State]) -> list[State]:
        block = self._functions.get(name)
        if block is None:
            return []
        key = (name, tuple(arguments))
        if key not in self._calls:
            caller, self._function = self._function, name
            self._calls[key] = self._block(block, dict(zip(block.arguments, arguments, strict=False)))
            self._function = caller
        return self._calls[key]

    def _block(self, block: Block, env: dict[str, State]) -> list[State]:
        for op in block.operations:
            if op.name == "return":
                break
            states = [env.get(name) for name in op.operands]
            results = self._results(op, states, env)
            env.update(zip(op.results, results + [WHOLE] * (len(op.results) - len(results)), strict=False))
        return [env.get(name) for name in block.returned]

    def _results(self, op: Operation, states: list[State], env: dict[str, State]) -> list[State]:
        if op.name == "call":
            return self._foreign(op, states) if _FOREIGN.match(op.callee) else self._call(op.callee, states)
        if op.name == "while":
            return self._while(op, states, env)
        if op.name in ("if", "case"):
            branches = [self._block(region, dict(env)) for region in op.regions]
            return [_merged(states) for states in zip(*branches, strict=False)]
        if op.name == "optimization_barrier" or "LayoutConstraint" in op.attributes:
            return states
        if all(s == CONSTANT for s in states):
            return [CONSTANT] * len(op.results)
        if handler := _HANDLERS.get(op.name):
            return [handler(self, op, states)] * len(op.results)
        same = [made == op.result_dims[0] for made in op.result_dims]
        if op.name not in _OPAQUE and all(same) and all(d in ((), op.result_dims[0]) for d in op.operand_dims):
            return [self._together(states, op.result_dims[0], op.name == "add")] * len(op.results)
        return [WHOLE] * len(op.results)

    def _foreign(self, op: Operation, states: list[State]) -> list[State]:
        """What others wrote, such as an attention kernel: batch and heads come first in all that it takes and makes."""
        at = next((i for i, s in enumerate(states) if isinstance(s, Cut)), None)
        if at is None:
            return [WHOLE] * len(op.results)
        cut, dims = states[at], op.operand_dims[at]
        return [cut.moved(dims, made, {d: d for d in (0, 1) if len(made) > 2}) for made in op.result_dims]

    def _while(self, op: Operation, states: list[State], env: dict[str, State]) -> list[State]:
        body = op.regions[-1]
        for _ in range(4):  # what a loop carries becomes cut at most once
            after = self._block(body, env | dict(zip(body.arguments, states, strict=False)))
            merged = [_merged(pair) for pair in zip(states, after, strict=False)]
            if merged == states:
                break
            states = merged
        return states

    # --- elementwise

    def _together(self, states: list[State], dims: Dims, adds: bool) -> State:
        """``adds``: the operation is an addition."""
        state = _merged(states)
        if isinstance(state, Cut):
            for other in states:
                if isinstance(other, Weight):
                    self._meets(other, state, dims)
            if adds and not state.blocks:
                return self._sum(states, state, dims)
        return state

    def _sum(self, states: list[State], cut: Cut, dims: Dims) -> State:
        alone = cut.weights - self._found.tables
        for other in states:
            if isinstance(other, Rows) and self._is_bias(other, cut, dims):
                self._found.new_biases.add(other.table)
            elif (other is WHOLE or isinstance(other, Rows)) and alone:
                self._doubt(_SUMS, self._first(alone))
                return WHOLE
        return cut

    def _is_bias(self, rows: Rows, cut: Cut, dims: Dims) -> bool:
        """Whether rows are biases, such as one of each expert, rather than what a residual begins with: there are fewer
        of them than features."""
        count, features = self._found.size[rows.table]
        return count < features and [p.dim for p in cut.pieces(dims)] == [rows.dim]

    def _meets(self, vector: Weight, cut: Cut, dims: Dims) -> None:
        """A bias is cut as what it is added to."""
        pieces = cut.pieces(dims)
        if len(self._found.size[vector.name]) != 1 or vector.name in self._found.dim or len(pieces) != 1:
            return
        if vector.dims[pieces[0].dim] == 0 and pieces[0].inner == 1 and pieces[0].size == dims[pieces[0].dim]:
            self._found.dim[vector.name] = 0
            self._found.follows[vector.name] = cut.weights

    # --- shapes

    def _reshape(self, op: Operation, states: list[State]) -> State:
        (state,), (dims,), (made,) = states, op.operand_dims, op.result_dims
        if isinstance(state, Weight):
            kept = [d for d, size in zip(state.dims, dims, strict=True) if size != 1]
            if [s for s in dims if s != 1] != [s for s in made if s != 1]:
                return WHOLE
            return Weight(state.name, tuple(kept.pop(0) if size != 1 else None for size in made))
        if isinstance(state, Rows):
            return state if made == dims else WHOLE
        if not isinstance(state, Cut) or state.blocks:
            return state
        pieces = state.pieces(made)
        if len(pieces) < 2:
            return state.with_pieces(pieces, made)
        self.heads |= state.weights
        if math.gcd(self._found.devices, pieces[0].size) > 1:
            self._limit(state.weights, pieces[0].size)
            return Cut(state.with_pieces(pieces[:1], made).digits, True, state.weights)
        # Such as query, key and value in one: each of them is cut.
        return state.with_pieces(pieces[1:], made)

    def _first(self, weights: frozenset[str]) -> frozenset[str]:
        """The one that was cut first: the others' cuts may come of it."""
        return frozenset(sorted(weights, key=list(self._found.dim).index)[:1])

    def _doubt(self, kind: int, weights: frozenset[str]) -> None:
        # What its input says of a weight, in the forward, goes before what its gradient meets.
        self._found.doubts[kind].update(weights - self._found.rows)

    def _limit(self, weights: Iterable[str], blocks: int) -> None:
        for name in weights:
            self._found.limit[name] = math.gcd(blocks, self._found.limit.get(name, blocks))

    def _moved(self, op: Operation, state: State, to: dict[int, int], position: int = 0) -> State:
        """``to``: the dimension of the result that is made of each of the operand's."""
        dims, made = op.operand_dims[position], op.result_dims[0]
        if isinstance(state, Cut):
            return state.moved(dims, made, to)
        if isinstance(state, Weight):
            back = {there: here for here, there in to.items()}
            kept = [back.get(i) for i in range(len(made))]
            return Weight(state.name, tuple(None if k is None or dims[k] == 1 else state.dims[k] for k in kept))
        return WHOLE if isinstance(state, Rows) else state

    def _transpose(self, op: Operation, states: list[State]) -> State:
        return self._moved(op, states[0], {d: i for i, d in enumerate(op.integers("permutation"))})

    def _broadcast(self, op: Operation, states: list[State]) -> State:
        if states[0] is WHOLE and math.prod(op.operand_dims[0]) == 1:
            return CONSTANT
        return self._moved(op, states[0], dict(enumerate(op.integers("broadcast_dimensions"))))

    def _part(self, op: Operation, states: list[State]) -> State:
        """A slice, or an array with padding: the first operand's dimensions, of other sizes."""
        return self._moved(op, states[0], {d: d for d in range(len(op.operand_dims[0]))})

    def _update(self, op: Operation, states: list[State]) -> State:
        """A part of an array overwritten: the array may be zeros so far."""
        if isinstance(states[0], Cut):
            return states[0]
        update = states[1]
        if isinstance(update, Cut):
            return update.moved(op.operand_dims[1], op.result_dims[0], {d: d for d in range(len(op.result_dims[0]))})
        return states[0]

    def _concatenate(self, op: Operation, states: list[State]) -> State:
        moved = [
            self._moved(op, s, {d: d for d in range(len(op.operand_dims[i]))}, i) if isinstance(s, Cut) else s
            for i, s in enumerate(states)
        ]
        return WHOLE if any(isinstance(s, Weight) for s in moved) else _merged(moved)

    def _reduce(self, op: Operation, states: list[State]) -> State:
        gone = op.integers("dimensions")
        kept = [d for d in range(len(op.operand_dims[0])) if d not in gone]
        state = _merged(states[: len(op.results)])
        return self._moved(op, state, {d: i for i, d in enumerate(kept)}) if isinstance(state, Cut) else WHOLE

    def _sort(self, op: Operation, states: list[State]) -> State:
        state = _merged(states)
        if isinstance(state, Cut) and all(p.dim != op.number("dimension") for p in state.pieces(op.result_dims[0])):
            return state
        return WHOLE

    # --- tables

    def _gather(self, op: Operation, states: list[State]) -> State:
        table, dims = states[0], op.operand_dims[0]
        gone = {*op.integers("collapsed_slice_dims"), *op.integers("operand_batching_dims")}
        rows = dict(zip((d for d in range(len(dims)) if d not in gone), op.integers("offset_dims"), strict=False))
        if isinstance(table, Weight):
            return self._looked_up(table, op, rows)
        return self._moved(op, table, rows) if isinstance(table, Cut) else WHOLE

    def _looked_up(self, table: Weight, op: Operation, rows: dict[int, int]) -> State:
        """``rows``: the table's dimensions along a row -> the result's."""
        collapsed = op.integers("collapsed_slice_dims")
        if table.name in self._found.biases:
            collapsed = tuple(rows)
        if len(collapsed) == 1 and table.dims[collapsed[0]] is not None:
            self._decide(table, table.dims[collapsed[0]])
            self._found.tables.add(table.name)
        where = self._cut_dim(table)
        if where in rows:
            return along(rows[where], op.result_dims[0], table.name)
        return Rows(table.name, *rows.values()) if len(self._found.size[table.name]) == 2 and len(rows) == 1 else WHOLE

    def _scatter(self, op: Operation, states: list[State]) -> State:
        """Rows written into an array, which may be zeros so far."""
        if isinstance(states[0], Cut):
            return states[0]
        gone = {*op.integers("inserted_window_dims"), *op.integers("input_batching_dims")}
        rows = [d for d in range(len(op.operand_dims[0])) if d not in gone]
        to = dict(zip(op.integers("update_window_dims"), rows, strict=True))
        return self._moved(op, states[2], to, 2) if isinstance(states[2], Cut) and len(states) == 3 else WHOLE

    # --- products

    def _decide(self, weight: Weight, dim: int, rows: bool = False, blocks: int | None = None) -> None:
        """``rows``: along its input features; ``blocks``: of the activation that it is multiplied by, if those stay whole."""
        found, name = self._found, weight.name
        if name in found.dim or name in found.whole or math.prod(found.size[name]) < SMALL:
            return
        found.dim[name] = dim
        if rows:
            found.rows.add(name)
        if blocks is not None:
            self._limit([name], blocks)

    def _cut_dim(self, weight: Weight) -> int | None:
        """The dimension of the value along which the weight is cut."""
        dim = self._found.dim.get(weight.name)
        return weight.dims.index(dim) if dim is not None and dim in weight.dims else None

    def _product(self, op: Operation, states: list[State]) -> State:
        batch = [op.integers("lhs_batching_dimensions"), op.integers("rhs_batching_dimensions")]
        over = [op.integers("lhs_contracting_dimensions"), op.integers("rhs_contracting_dimensions")]
        to: list[dict[int, int]] = []  # dimension of an operand -> of the result
        after = len(batch[0])
        for i in (0, 1):
            free = [d for d in range(len(op.operand_dims[i])) if d not in batch[i] + over[i]]
            to.append({d: n for n, d in enumerate(batch[i])} | {d: after + n for n, d in enumerate(free)})
            after += len(free)
        weights = [i for i in (0, 1) if isinstance(states[i], Weight) and self._is_matrix(states[i])]
        if len(weights) == 1 and states[1 - weights[0]] != CONSTANT:
            return self._product_with(op, states, weights[0], over, to, batch)
        if isinstance(states[0], Cut) and isinstance(states[1], Cut):
            self._check_heads(states, op.operand_dims, over)
        found = [
            s.moved(op.operand_dims[i], op.result_dims[0], to[i]) for i, s in enumerate(states) if isinstance(s, Cut)
        ]
        return _merged([WHOLE, *found])

    def _check_heads(self, cuts: list[Cut], dims: list[Dims], over: list[Dims]) -> None:
        """Of two activations that are multiplied, one that is not cut by heads: its weights stay whole.

        Devices would have to add up scores, or to gather what the other one's heads need.
        """
        for i, cut in enumerate(cuts):
            summed = any(p.dim in over[i] for p in cut.pieces(dims[i]))
            if not cut.blocks and (summed or cuts[1 - i].blocks):
                self._doubt(_HEADS, cut.weights)

    def _is_matrix(self, weight: Weight) -> bool:
        return len(self._found.size[weight.name]) >= 2 and sum(d is not None for d in weight.dims) >= 2

    def _product_with(
        self, op: Operation, states: list[State], at: int, over: list[Dims], to: list[dict[int, int]], batch: list[Dims]
    ) -> State:
        weight, given = states[at], states[1 - at]
        pieces = given.pieces(op.operand_dims[1 - at]) if isinstance(given, Cut) else []
        summed = [p for p in pieces if p.dim in over[1 - at]]
        free = [d for d in to[at] if d not in batch[at] and weight.dims[d] is not None]
        known = weight.name in self._found.dim
        if summed and not self._scouting:
            dim = over[at][over[1 - at].index(summed[0].dim)]
            if not known and summed[0].inner * summed[0].size != op.operand_dims[at][dim]:
                self._doubt(_HEADS, given.weights)
            if not known and weight.name in self._found.heads and not given.blocks:
                self._doubt(_BEFORE_HEADS, self._first(given.weights))
            if weight.dims[dim] is not None:
                self._decide(weight, weight.dims[dim], True, given.count if given.blocks else None)
        elif free and (self._scouting or not pieces):
            self._decide(weight, weight.dims[max(free, key=lambda d: op.operand_dims[at][d])])
        where = self._cut_dim(weight)
        if where in to[at]:
            return WHOLE if known and self._scouting else along(to[at][where], op.result_dims[0], weight.name)
        if where is not None and weight.name in self._found.rows:
            self.sums.add(self._function)
        return given.moved(op.operand_dims[1 - at], op.result_dims[0], to[1 - at]) if pieces else WHOLE


_HANDLERS: dict[str, Callable[[Flow, Operation, list[State]], State]] = {
    "reshape": Flow._reshape,
    "transpose": Flow._transpose,
    "broadcast_in_dim": Flow._broadcast,
    "slice": Flow._part,
    "dynamic_slice": Flow._part,
    "pad": Flow._part,
    "dynamic_update_slice": Flow._update,
    "concatenate": Flow._concatenate,
    "reduce": Flow._reduce,
    "sort": Flow._sort,
    "gather": Flow._gather,
    "scatter": Flow._scatter,
    "dot_general": Flow._product,
}
# Their results have their operands' dimensions, but elements do not come from the same places.
_OPAQUE = {"custom_call", "composite", "fft", "cholesky", "triangular_solve", "convolution", "reduce_window"}


def _merged(states: Iterable[State]) -> State:
    """What is made of these: cut if one is, as the one is that has the most blocks; a weight only of weights and constants."""
    states = list(states)
    cuts = [s for s in states if isinstance(s, Cut)]
    if cuts:
        best = max(cuts, key=lambda c: (c.blocks, c.count))
        return Cut(
            best.digits, best.blocks, best.weights if best.blocks else frozenset().union(*(c.weights for c in cuts))
        )
    if all(s == CONSTANT for s in states):
        return CONSTANT
    if len({s for s in states if s != CONSTANT}) == 1:
        return next(s for s in states if s != CONSTANT)
    if all(s == CONSTANT or isinstance(s, Weight) for s in states):
        return next(s for s in states if isinstance(s, Weight))
    return WHOLE
