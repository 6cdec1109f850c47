"""A function for each device's part of its arrays, within a program that the partitioner spreads over devices.

The partitioner cannot cut a Mosaic kernel. So the kernel is made for a device's part, and the program says, around it,
how arrays are cut there, in the partitioner's own custom calls, as JAX's shard_map does.
"""

import hashlib
import re
from dataclasses import dataclass

_TYPE = re.compile(r"tensor<[^>]*>")
_MANUAL = "{manual}"
Dims = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What a device has of an array: one of ``count`` equal pieces along a dimension."""

    along: int
    count: int

    def of(self, dims: Dims) -> Dims:
        return tuple(d // self.count if i == self.along else d for i, d in enumerate(dims))

    def whole(self, dims: Dims) -> Dims:
        return tuple(d * self.count if i == self.along else d for i, d in enumerate(dims))


def share(dims: Dims, independent: int, batch: int, heads: int) -> Part | None:
    """A device's part of an operand whose first ``independent`` dimensions (batch, heads) a function treats element by element.

    ``batch``, ``heads``: how many devices share these. None: all devices have all of it. Raises ValueError where it does not divide.
    """
    parts = [Part(along, count) for along, count in enumerate((batch, heads)[:independent]) if count > 1]
    if not parts:
        return None
    (part,) = parts
    if part.along >= len(dims) or dims[part.along] % part.count:
        raise ValueError(
            f"tpu: torch_tpu.pallas: dimension {part.along} of an operand of size {list(dims)} does not divide among "
            f"{part.count} devices.\nGive a multiple of their number, or call the function with independent=0."
        )
    return part


def between(whole: Dims, piece: Dims) -> Part | None:
    """How an array was cut, from its size and its piece's."""
    differ = [i for i, (a, b) in enumerate(zip(whole, piece, strict=True)) if a != b]
    if not differ:
        return None
    (along,) = differ
    return Part(along, whole[along] // piece[along])


def _sharding(rank: int, part: Part | None) -> str:
    if part is None:
        return "{replicated}"
    tiles = ",".join(str(part.count if i == part.along else 1) for i in range(rank))
    return f"{{devices=[{tiles}]<=[{part.count}]}}"


def _dims(type_: str) -> tuple[Dims, str]:
    *dims, element = type_[len("tensor<") : -1].split("x")
    return tuple(map(int, dims)), element


def _whole(type_: str, part: Part | None) -> str:
    if part is None:
        return type_
    dims, element = _dims(type_)
    return f"tensor<{'x'.join(map(str, part.whole(dims)))}x{element}>"


def over_devices(functions: str, operands: list[Part | None], results: list[Part | None]) -> str:
    """Functions of which the first takes whole arrays, and calls what was the first on each device's parts of them.

    ``functions``: the text of functions, of which the first is for parts.
    """
    header = functions.partition("{\n")[0]
    name = re.search(r"@([\w]+)\(", header)[1]
    given, _, made = header.partition(") -> ")
    lines: list[str] = []

    def call(target: str, value: str, sharding: str, from_: str, to: str) -> str:
        found = f"%{len(lines)}"
        lines.append(
            f'  {found} = "stablehlo.custom_call"({value}) <{{call_target_name = "{target}"}}> '
            f'{{mhlo.sharding = "{sharding}"}} : ({from_}) -> {to}'
        )
        return found

    pieces, wholes, taken = _TYPE.findall(given), [], []
    for i, (piece, part) in enumerate(zip(pieces, operands, strict=True)):
        whole = _whole(piece, part)
        cut = call("Sharding", f"%arg{i}", _sharding(len(_dims(piece)[0]), part), whole, whole)
        taken.append(call("SPMDFullToShardShape", cut, _MANUAL, whole, piece))
        wholes.append(whole)
    made_pieces, made_wholes, returned = _TYPE.findall(made), [], []
    lines.append(
        f"  %part:{len(made_pieces)} = func.call @{name}({', '.join(taken)}) : "
        f"({', '.join(pieces)}) -> ({', '.join(made_pieces)})"
    )
    for i, (piece, part) in enumerate(zip(made_pieces, results, strict=True)):
        whole = _whole(piece, part)
        own = call("Sharding", f"%part#{i}", _MANUAL, piece, piece)
        returned.append(call("SPMDShardToFullShape", own, _sharding(len(_dims(piece)[0]), part), piece, whole))
        made_wholes.append(whole)
    lines.append(f"  return {', '.join(returned)} : {', '.join(made_wholes)}")
    body = "\n".join(lines)
    arguments = ", ".join(f"%arg{i}: {whole}" for i, whole in enumerate(wholes))
    mark = hashlib.sha256(body.encode()).hexdigest()[:8]
    return f"func.func private @{name}_{mark}({arguments}) -> ({', '.join(made_wholes)}) {{\n{body}\n}}\n{functions}"
