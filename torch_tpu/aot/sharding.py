"""Spreads a recorded program over a slice as FSDP does, by annotations that XLA's partitioner follows.

Parameters, gradients and optimizer state are cut along the dimension that the devices divide with the least padding, or
the longest of those, unless they have only a few elements; inputs and what is computed from them, along the batch. The
partitioner then gathers each parameter where it is used, and scatters its gradient. Only the program's text changes:
the numbers are those of one device with the whole batch.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.recording import Argument, Program

_TYPE = r"tensor<[^>]*>"
_CALL = re.compile(
    r'^  (?P<names>%\d+(?:, %\d+)*) = "func\.call"\((?P<operands>[^)]*)\)(?P<rest>.*) -> (?P<types>\(?.*?\)?)(?P<loc> loc\(#loc\d+\))?$'
)

# Elements of an array that every device holds: gathering a norm's weights or a table of frequencies at each use, and what is
# computed from them, costs more than it saves.
_SMALL = 1 << 16
# Rows and columns of a tile, by dimension from the end: memory holds whole ones.
_TILE = {-2: 8, -1: 128}


def dims_of(type_: str) -> tuple[int, ...]:
    """``tensor<8x16xbf16>`` -> ``(8, 16)``."""
    return tuple(int(d) for d in type_[len("tensor<") : -1].split("x")[:-1])


@dataclass(frozen=True)
class _Plan:
    devices: int
    batch: int
    tokens: int
    parameters: dict[tuple[int, ...], str]  # shape -> how it is cut

    def cut(self, dims: tuple[int, ...], along: int | None) -> str:
        if along is None:
            return "{replicated}"
        parts = ",".join(str(self.devices if i == along else 1) for i in range(len(dims)))
        return f"{{devices=[{parts}]<=[{self.devices}]}}"

    def parameter(self, dims: tuple[int, ...]) -> str:
        if math.prod(dims) < _SMALL:
            return self.cut(dims, None)
        able = [i for i, d in enumerate(dims) if d % self.devices == 0]
        return self.cut(dims, min(able, key=lambda i: (self._padding(dims, i), -dims[i])) if able else None)

    def _padding(self, dims: tuple[int, ...], along: int) -> float:
        """What a part of an array takes, cut like this, for each byte of its elements."""
        part, tile = dims[along] // self.devices, _TILE.get(along - len(dims), 1)
        return -(-part // tile) * tile / part

    def of_stack(self, how: str) -> str:
        """How a stack of arrays is cut that are cut like this: each of them so."""
        return how.replace("devices=[", "devices=[1,")

    def by_batch(self, dims: tuple[int, ...]) -> str | None:
        # A vector as long as the batch may be anything, such as half a head's frequencies.
        whole = (self.tokens,) if len(dims) == 1 else (self.batch, self.tokens)
        return self.cut(dims, 0) if dims and dims[0] in whole else None


def _plan(program: Program, devices: int) -> _Plan:
    inputs = [_one(a) for a in program.arguments if not a.name and _one(a)]
    if not inputs:
        raise CheckError("--shard fsdp: the program takes no batch.", "Give the inputs as arguments of the function.")
    # Of a model's inputs, those with the most dimensions are of the whole batch; positions and masks may not be.
    rank = max(map(len, inputs))
    longest = Counter(d[:2] for d in inputs if len(d) == rank).most_common(1)[0][0]
    batch = longest[0]
    if batch % devices:
        raise CheckError(
            f"--shard fsdp: a batch of {batch} does not divide among {devices} devices.",
            "Give a multiple of their number.",
        )
    plan = _Plan(devices, batch, batch * longest[1] if len(longest) > 1 else batch, {})
    for a in program.arguments:
        if a.name and _one(a):
            plan.parameters[_one(a)] = plan.parameter(_one(a))
    return plan


def _one(argument: Argument) -> tuple[int, ...]:
    """The dimensions of an array; of a stack, those of one in it."""
    return dims_of(argument.type)[1 if argument.stacked else 0 :]


def _of_argument(argument: Argument, plan: _Plan) -> str:
    dims = _one(argument)
    how = plan.parameters.get(dims) if argument.name else plan.by_batch(dims)
    how = how or "{replicated}"
    return plan.of_stack(how) if argument.stacked else how


def _of_result(result: Argument, plan: _Plan) -> str:
    dims = _one(result)
    how = plan.parameters.get(dims) or plan.by_batch(dims) or "{replicated}"
    return plan.of_stack(how) if result.stacked else how


def _annotated_header(header: str, arguments: list[str], results: list[str]) -> str:
    inside, _, after = header.partition(") -> (")
    start, _, listed = inside.partition("(")
    pieces = re.split(r", (?=%\d+: )", listed)
    given = []
    for piece, how in zip(pieces, [*arguments, *["{replicated}"] * len(pieces)], strict=False):
        attribute = f'mhlo.sharding = "{how}"'
        found = re.match(rf"(%\d+: {_TYPE})(?: \{{(.*?)\}})?(.*)$", piece)
        others = f", {found[2]}" if found[2] else ""
        given.append(f"{found[1]} {{{attribute}{others}}}{found[3]}")
    types = re.findall(_TYPE, after)
    returned = [f'{t} {{mhlo.sharding = "{how}"}}' for t, how in zip(types, results, strict=True)]
    return f"{start}({', '.join(given)}) -> ({', '.join(returned)}) {{"


def _aliases(header: str) -> dict[int, int]:
    """Result -> the argument whose buffer it gets."""
    pieces = re.split(r", (?=%\d+: )", header.partition("(")[2].partition(") -> (")[0])
    found = {}
    for i, piece in enumerate(pieces):
        if match := re.search(r"tf\.aliasing_output = (\d+)", piece):
            found[int(match[1])] = i
    return found


def fsdp(program: Program, devices: int) -> str:
    """The program's module, annotated for ``devices`` of a slice. Raises CheckError if its batch does not divide."""
    plan = _plan(program, devices)
    arguments = [_of_argument(a, plan) for a in program.arguments]
    return "\n".join(_lines(program, plan, arguments)) + "\n"


def _lines(program: Program, plan: _Plan, arguments: list[str]) -> Iterator[str]:
    in_main = False
    constrained: dict[str, str] = {}
    rename = lambda text: re.sub(r"%\d+", lambda m: constrained.get(m[0], m[0]), text)  # noqa: E731
    for line in program.module.splitlines():
        if line.startswith("func.func public @main("):
            in_main = True
            aliases = _aliases(line)
            results = []
            for i, r in enumerate(program.results):
                results.append(arguments[aliases[i]] if i in aliases else _of_result(r, plan))
            yield _annotated_header(line, arguments, results)
        elif in_main and line == "}":
            in_main = False
            yield line
        elif in_main and (call := _CALL.match(line)):
            yield f'  {call["names"]} = "func.call"({rename(call["operands"])}){call["rest"]} -> {call["types"]}{call["loc"] or ""}'
            for name, type_ in zip(call["names"].split(", "), re.findall(_TYPE, call["types"]), strict=True):
                dims = dims_of(type_)
                how = plan.by_batch(dims) or plan.parameters.get(dims)
                if how is None or how == "{replicated}":
                    continue
                constrained[name] = f"%cut{name[1:]}"
                yield (
                    f'  {constrained[name]} = "stablehlo.custom_call"({name}) <{{call_target_name = "Sharding"}}> '
                    f'{{mhlo.sharding = "{how}"}} : ({type_}) -> {type_}{call["loc"] or ""}'
                )
        else:
            yield rename(line) if in_main else line
