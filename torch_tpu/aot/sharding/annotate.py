"""Writes into a recorded program how its arrays are cut: ``mhlo.sharding`` attributes, which XLA's partitioner follows."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch_tpu.aot.recording import Program
from torch_tpu.aot.sharding.text import TYPE, Dims, dims_of

_CALL = re.compile(
    r'^  (?P<names>%\d+(?:, %\d+)*) = "func\.call"\((?P<operands>[^)]*)\)(?P<rest>.*) -> (?P<types>\(?.*?\)?)(?P<loc> loc\(#loc\d+\))?$'
)
_OVER_STACKS = re.compile(r"callee = @\w*_over_stacks_\d+")
_MAIN = "func.func public @main("
_FUNCTION = re.compile(r"^func\.func (?:private|public) @([\w.]+)\(")
_NARROW_PRODUCT = re.compile(
    r'^  (?P<name>%\d+) = (?P<product>"stablehlo\.dot_general"\(.*) : '
    r"(?P<operands>\(tensor<[\dx]*x(?P<type>bf16|f16)>, tensor<[\dx]*x(?P=type)>\)) -> tensor<(?P<dims>(?:\d+x)*)f32>(?P<loc>.*)$"
)
REPLICATED = "{replicated}"


def of_stack(how: str) -> str:
    """How a stack is cut of arrays that are each cut like this."""
    return how.replace("devices=[", "devices=[1,")


def cut(dims: Dims, along: int | None, devices: int, parts: int | None = None) -> str:
    """The sharding of an array that is cut along a dimension, into as many parts as there are devices, or fewer that
    several devices in a row have the same of. None: every device has all of it."""
    parts = parts or devices
    if along is None or parts == 1:
        return REPLICATED
    tiles = ",".join(str(parts if i == along else 1) for i in range(len(dims)))
    if parts == devices:
        return f"{{devices=[{tiles}]<=[{devices}]}}"
    return f"{{devices=[{tiles},{devices // parts}]<=[{devices}] last_tile_dim_replicate}}"


@dataclass(frozen=True)
class Cuts:
    """How a program's arrays are cut."""

    arguments: list[str]
    results: list[str]  # of those that get an argument's buffer, the argument's cut is taken
    of_call: Callable[[Dims], str | None] = lambda _: None  # of a call's result, where the partitioner is not to choose
    # Functions with a product whose parts devices add up: in the product's own type, where it is made in float32.
    narrow_sums: frozenset[str] = frozenset()


def annotated(program: Program, cuts: Cuts) -> str:
    """The program's module, annotated."""
    return "\n".join(_lines(program, cuts)) + "\n"


def _header(header: str, arguments: list[str], results: list[str]) -> str:
    inside, _, after = header.partition(") -> (")
    start, _, listed = inside.partition("(")
    pieces = re.split(r", (?=%\d+: )", listed)
    given = []
    for piece, how in zip(pieces, [*arguments, *[REPLICATED] * len(pieces)], strict=False):
        attribute = f'mhlo.sharding = "{how}"'
        found = re.match(rf"(%\d+: {TYPE})(?: \{{(.*?)\}})?(.*)$", piece)
        others = f", {found[2]}" if found[2] else ""
        given.append(f"{found[1]} {{{attribute}{others}}}{found[3]}")
    types = re.findall(TYPE, after)
    returned = [f'{t} {{mhlo.sharding = "{how}"}}' for t, how in zip(types, results, strict=True)]
    return f"{start}({', '.join(given)}) -> ({', '.join(returned)}) {{"


def aliases(module: str) -> dict[int, int]:
    """Result of main -> the argument whose buffer it gets."""
    header = module[module.index(_MAIN) :].partition("\n")[0]
    pieces = re.split(r", (?=%\d+: )", header.partition("(")[2].partition(") -> (")[0])
    found = {}
    for i, piece in enumerate(pieces):
        if match := re.search(r"tf\.aliasing_output = (\d+)", piece):
            found[int(match[1])] = i
    return found


def _lines(program: Program, cuts: Cuts) -> Iterator[str]:
    in_main, function, given = False, "", aliases(program.module)
    constrained: dict[str, str] = {}
    rename = lambda text: re.sub(r"%\d+", lambda m: constrained.get(m[0], m[0]), text)  # noqa: E731
    for line in program.module.splitlines():
        if found := _FUNCTION.match(line):
            function = found[1]
        if line.startswith(_MAIN):
            in_main = True
            results = [cuts.arguments[given[i]] if i in given else how for i, how in enumerate(cuts.results)]
            yield _header(line, cuts.arguments, results)
        elif in_main and line == "}":
            in_main = False
            yield line
        elif in_main and (call := _CALL.match(line)):
            yield f'  {call["names"]} = "func.call"({rename(call["operands"])}){call["rest"]} -> {call["types"]}{call["loc"] or ""}'
            for name, type_ in zip(call["names"].split(", "), re.findall(TYPE, call["types"]), strict=True):
                is_stack = _OVER_STACKS.search(call["rest"]) is not None
                how = cuts.of_call(dims_of(type_)[is_stack:])
                if how is None or how == REPLICATED:
                    continue
                how = of_stack(how) if is_stack else how
                constrained[name] = f"%cut{name[1:]}"
                yield (
                    f'  {constrained[name]} = "stablehlo.custom_call"({name}) <{{call_target_name = "Sharding"}}> '
                    f'{{mhlo.sharding = "{how}"}} : ({type_}) -> {type_}{call["loc"] or ""}'
                )
        elif function in cuts.narrow_sums and (p := _NARROW_PRODUCT.match(line)):
            own, name = f"tensor<{p['dims']}{p['type']}>", f"%narrow{p['name'][1:]}"
            yield f"  {name} = {p['product']} : {p['operands']} -> {own}{p['loc']}"
            yield f'  {p["name"]} = "stablehlo.convert"({name}) : ({own}) -> tensor<{p["dims"]}f32>{p["loc"]}'
        else:
            yield rename(line) if in_main else line
