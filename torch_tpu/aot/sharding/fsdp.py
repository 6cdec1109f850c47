"""Cuts a program as FSDP does.

Parameters, gradients and optimizer state are cut along the dimension that the devices divide with the least padding, or
the longest of those, unless they have only a few elements; inputs and what is computed from them, along the batch. The
partitioner then gathers each parameter where it is used, and scatters its gradient. Only the program's text changes:
the numbers are those of one device with the whole batch.
"""

import math
from collections import Counter
from dataclasses import dataclass

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.recording import Argument, Program
from torch_tpu.aot.sharding.annotate import REPLICATED, Cuts, cut, of_stack
from torch_tpu.aot.sharding.text import Dims, dims_of

# Elements of an array that every device holds: gathering a norm's weights or a table of frequencies at each use, and what is
# computed from them, costs more than it saves.
_SMALL = 1 << 16
# Rows and columns of a tile, by dimension from the end: memory holds whole ones.
_TILE = {-2: 8, -1: 128}


@dataclass(frozen=True)
class _Plan:
    devices: int
    batch: int
    tokens: int
    parameters: dict[Dims, str]  # how they are cut

    def parameter(self, dims: Dims) -> str:
        if math.prod(dims) < _SMALL:
            return REPLICATED
        able = [i for i, d in enumerate(dims) if d % self.devices == 0]
        along = min(able, key=lambda i: (self._padding(dims, i), -dims[i])) if able else None
        return cut(dims, along, self.devices)

    def _padding(self, dims: Dims, along: int) -> float:
        """What a part of an array takes, cut like this, for each byte of its elements."""
        part, tile = dims[along] // self.devices, _TILE.get(along - len(dims), 1)
        return -(-part // tile) * tile / part

    def by_batch(self, dims: Dims) -> str | None:
        # A vector as long as the batch may be anything, such as half a head's frequencies.
        whole = (self.tokens,) if len(dims) == 1 else (self.batch, self.tokens)
        return cut(dims, 0, self.devices) if dims and dims[0] in whole else None

    def of_call(self, dims: Dims) -> str | None:
        return self.by_batch(dims) or self.parameters.get(dims)

    def argument(self, argument: Argument) -> str:
        dims = _one(argument)
        return _each(argument, self.parameters.get(dims) if argument.name else self.by_batch(dims))

    def result(self, result: Argument) -> str:
        dims = _one(result)
        return _each(result, self.parameters.get(dims) or self.by_batch(dims))


def _one(argument: Argument) -> Dims:
    """The dimensions of an array; of a stack, those of one in it."""
    return dims_of(argument.type)[1 if argument.stacked else 0 :]


def _each(argument: Argument, how: str | None) -> str:
    """How an array is cut, or a stack of arrays, each of which is cut like this."""
    return of_stack(how or REPLICATED) if argument.stacked else how or REPLICATED


def fsdp(program: Program, devices: int) -> Cuts:
    """Raises CheckError if the program's batch does not divide."""
    plan = _plan(program, devices)
    return Cuts([plan.argument(a) for a in program.arguments], [plan.result(r) for r in program.results], plan.of_call)


def _plan(program: Program, devices: int) -> _Plan:
    inputs = [_one(a) for a in program.arguments if not a.name and _one(a)]
    if not inputs and program.multiplies:
        raise CheckError(
            "--shard fsdp: the program takes no batch.",
            "Give the inputs as arguments of the function; in a script, make them on the host.",
        )
    batch = tokens = 0  # of an optimizer's step by itself
    if inputs:
        # Of a model's inputs, those with the most dimensions are of the whole batch; positions and masks may not be.
        rank = max(map(len, inputs))
        longest = Counter(d[:2] for d in inputs if len(d) == rank).most_common(1)[0][0]
        batch = longest[0]
        tokens = math.prod(longest)
    if batch % devices:
        raise CheckError(
            f"--shard fsdp: a batch of {batch} does not divide among {devices} devices.",
            "Give a multiple of their number.",
        )
    plan = _Plan(devices, batch, tokens, {})
    for a in program.arguments:
        if a.name and _one(a):
            plan.parameters[_one(a)] = plan.parameter(_one(a))
    return plan
