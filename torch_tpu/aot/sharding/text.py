"""A recorded module's text as operations: what an analysis of its dataflow needs, and no more.

Reads the generic form in which programs are emitted. What it does not know, such as functions in another form, it
leaves out: values that come from there are then unknown.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

Dims = tuple[int, ...]

TYPE = r"tensor<(?:[^<>]|<[^>]*>)*>"
_FUNCTION = re.compile(r"func\.func (?:public |private )?@(?P<name>[\w.]+)\((?P<arguments>.*)")
_OPERATION = re.compile(
    r'^\s*(?:(?P<results>%\w+(?:, %\w+)*) = )?"(?P<name>[\w.]+)"\((?P<operands>[^)]*)\)(?P<rest>.*)$'
)
_ATTRIBUTES = re.compile(r"^ <\{(.*?)\}>(?= : | \(\{| \{)")
_RETURN = re.compile(r"^\s*(?:return|func\.return) (?P<operands>%[^:]*) : ")
_ARGUMENT = re.compile(rf"(%\w+): ({TYPE})")

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_LOCATION = re.compile(rf"^#(\w+) = loc\({_TEXT}(?:\((?:callsite\()?{_TEXT}\({_TEXT}:(\d+):)?", re.MULTILINE)


def dims_of(type_: str) -> Dims:
    """``tensor<8x16xbf16>`` -> ``(8, 16)``."""
    return tuple(int(d) for d in re.match(r"tensor<((?:\d+x)*)", type_)[1].split("x")[:-1])


def element_of(type_: str) -> str:
    """``tensor<8x16xbf16>`` -> ``bf16``."""
    return re.match(r"tensor<(?:\d+x)*(.*)>", type_)[1]


@dataclass
class Operation:
    name: str  # without its dialect
    operands: list[str]
    results: list[str]
    attributes: str
    operand_dims: list[Dims] = field(default_factory=list)
    result_dims: list[Dims] = field(default_factory=list)
    regions: list["Block"] = field(default_factory=list)
    operand_elements: list[str] = field(default_factory=list)  # their types: "bf16"
    location: str = ""  # "#loc3"

    @cached_property
    def _lists(self) -> dict[str, Dims]:
        found = re.findall(r"(\w+) = (?:array<i64(?:: )?([^>]*)>|\[([-\d, ]*)\])", self.attributes)
        return {name: tuple(int(n) for n in (a or b).split(",") if n.strip()) for name, a, b in found}

    def integers(self, name: str) -> Dims:
        """A list of integers among its attributes, or in one of them."""
        return self._lists.get(name, ())

    def number(self, name: str) -> int:
        return int(re.search(rf"\b{name} = (-?\d+)", self.attributes)[1])

    @property
    def callee(self) -> str:
        return re.search(r"callee = @([\w.]+)", self.attributes)[1]


@dataclass
class Block:
    arguments: list[str]
    argument_dims: list[Dims]
    operations: list[Operation] = field(default_factory=list)

    @property
    def returned(self) -> list[str]:
        return self.operations[-1].operands if self.operations and self.operations[-1].name == "return" else []


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _add_types(operation: Operation, text: str) -> None:
    """From ``: (operands) -> results loc(#loc3)``."""
    given, _, made = text.partition(" -> ")
    made, _, location = made.partition(" loc(")
    operands = re.findall(TYPE, given)
    operation.operand_dims = [dims_of(t) for t in operands]
    operation.operand_elements = [element_of(t) for t in operands]
    operation.result_dims = [dims_of(t) for t in re.findall(TYPE, made)]
    operation.location = location.rstrip(")")


def _operation(line: str, lines: Iterator[str]) -> Operation | None:
    if found := _RETURN.match(line):
        return Operation("return", _names(found["operands"]), [], "")
    found = _OPERATION.match(line)
    if found is None:
        return None
    attributes = _ATTRIBUTES.match(found["rest"])
    made = Operation(
        found["name"].rpartition(".")[2],
        _names(found["operands"]),
        _names(found["results"] or ""),
        attributes[1] if attributes else "",
    )
    rest = found["rest"][attributes.end() :] if attributes else found["rest"]
    if rest.endswith("({"):
        while not rest.startswith("})"):
            block, rest = _block(lines)
            made.regions.append(block)
    _add_types(made, rest)
    return made


def _block(lines: Iterator[str], arguments: str = "") -> tuple[Block, str]:
    """The operations up to a closing brace, and the line that has it."""
    given = _ARGUMENT.findall(arguments)
    block = Block([name for name, _ in given], [dims_of(t) for _, t in given])
    for line in lines:
        text = line.strip()
        if text.startswith("}"):
            return block, text
        if text.startswith("^"):
            given = _ARGUMENT.findall(text)
            block.arguments, block.argument_dims = [name for name, _ in given], [dims_of(t) for _, t in given]
        elif operation := _operation(line, lines):
            block.operations.append(operation)
    return block, "})"


def functions_of(module: str) -> dict[str, Block]:
    """The module's functions by name."""
    lines = iter(module.splitlines())
    found = {}
    for line in lines:
        if match := _FUNCTION.match(line.strip()):
            inside = match["arguments"].partition(") -> ")[0]
            found[match["name"]] = _block(lines, inside)[0]
    return found


def places_of(module: str) -> dict[str, tuple[str, str]]:
    """Location -> the op's name, and the user's innermost Python line: ``"#loc3"`` -> ``("aten.mm", "train.py:7")``."""
    return {f"#{name}": (op, f"{file}:{line}" if line else "") for name, op, _, file, line in _LOCATION.findall(module)}
