"""Names of TPU hardware, as people write them, and the published figures of its chips (chips.toml)."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch_tpu.aot.errors import CheckError

_ALIASES = {
    "v5": "v5p",
    "v5lite": "v5e",
    "v5litepod": "v5e",
    "trillium": "v6e",
    "v6": "v6e",
    "ironwood": "tpu7x",
    "v7": "tpu7x",
    "v7x": "tpu7x",
    "tpu7": "tpu7x",
}
# Google Compute Engine machine types: prefix -> generation; the number before "t" counts chips.
_MACHINES = {
    "ct4p-hightpu": "v4",
    "ct5l-hightpu": "v5e",
    "ct5lp-hightpu": "v5e",
    "ct5p-hightpu": "v5p",
    "ct6e-standard": "v6e",
    "tpu7x-standard": "tpu7x",
}
# Generations whose accelerator types ("v5p-8") count TensorCores, two a chip, rather than chips.
_COUNTED_IN_CORES = {"v2", "v3", "v4", "v5p"}
_THREE_DIMENSIONAL = {"v4", "v5p", "tpu7x"}


@dataclass(frozen=True)
class Chip:
    """A TPU generation. Figures are of one device, as PJRT shows it: a chip, or a core of a chip with two."""

    generation: str
    devices_a_chip: int
    hbm: int  # bytes, all of them: a program can use a little less
    flops: float  # bfloat16, a second
    hbm_bandwidth: float  # bytes a second
    ici_bandwidth: float  # bytes a second that come in over all links
    ici_axes: int
    ici_wraps: int  # an axis of a multiple of so many chips is a ring
    clock: float  # Hz
    mxu: int  # rows and columns of a matrix unit
    mxu_share: float  # of the peak, that large products reach
    cores: int  # TensorCores, each with a vector unit, of a device
    sparse_cores: int  # of a device
    topology_options: tuple[tuple[str, str], ...]
    source: str

    @property
    def vector_rate(self) -> float:
        """Cycles a second of all vector units of a device."""
        return self.clock * self.cores


@dataclass(frozen=True)
class Slice:
    """Chips of one generation in a grid."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """As libtpu takes it: ``v6e:2x4``."""
        return f"{self.chip.generation}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def devices(self) -> int:
        return self.chips * self.chip.devices_a_chip

    def of(self, chips: int) -> "Slice":
        """So many chips (a power of two) of this generation, in their usual shape."""
        return Slice(self.chip, _grid(chips, len(self.shape)))

    def with_more_memory(self) -> Iterator["Slice"]:
        """As many chips of other generations whose devices have more HBM, by at least half of it: the least first."""
        hbm = self.chip.hbm
        newest_first = reversed(chips().values())
        for chip in sorted(newest_first, key=lambda chip: chip.hbm):
            if chip.hbm >= 1.5 * hbm and self.chips & (self.chips - 1) == 0:
                hbm = chip.hbm
                yield Slice(chip, _grid(self.chips, 3 if chip.generation in _THREE_DIMENSIONAL else 2))

    @property
    def gather_bandwidth(self) -> float:
        """Bytes a second that come in at the chip with the fewest links, where all devices gather from all others.

        A chip has two links an axis, at the edge of one that is no ring, or that has two chips, only one.
        """
        rings = [n % self.chip.ici_wraps == 0 for n in self.shape]
        if self.chip.ici_axes == 3:  # switches close all axes, or none
            rings = [all(rings)] * len(rings)
        links = sum(2 if ring else 1 for n, ring in zip(self.shape, rings, strict=True) if n > 1)
        return self.chip.ici_bandwidth * max(links, 1) / (2 * self.chip.ici_axes)


@cache
def chips() -> dict[str, Chip]:
    """Every known generation, by name."""
    table = tomllib.loads((Path(__file__).parent / "chips.toml").read_text())
    return {
        name: Chip(
            generation=name,
            devices_a_chip=row["devices"],
            hbm=(row["hbm_gib"] << 30) // row["devices"],
            flops=row["bf16_tflops"] * 1e12 / row["devices"],
            hbm_bandwidth=row["hbm_gbps"] * 1e9 / row["devices"],
            ici_bandwidth=row["ici_gbps"] * 1e9 / row["devices"],
            ici_axes=row["ici_axes"],
            ici_wraps=row["ici_wraps"],
            clock=row["mxu_ghz"] * 1e9,
            mxu=row["mxu"],
            mxu_share=row["mxu_share"],
            cores=row["cores"] // row["devices"],
            sparse_cores=row["sparse_cores"] // row["devices"],
            topology_options=tuple(row.get("topology_options", {}).items()),
            source=row["source"],
        )
        for name, row in table.items()
    }


def _grid(count: int, dimensions: int) -> tuple[int, ...]:
    """The usual shape of ``count`` chips: powers of two, as equal as can be, the larger last."""
    bits = count.bit_length() - 1
    if count != 1 << bits:
        raise CheckError(f"A slice has 1, 2, 4, 8, ... chips: got {count}.", "Give its shape: v6e:2x4.")
    if dimensions == 3 and count <= 4:
        return {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1)}[count]
    return tuple(sorted(1 << (bits // dimensions + (i < bits % dimensions)) for i in range(dimensions)))


def parse(text: str) -> Slice:
    """The slice that a user's name means.

    Takes libtpu's names (``v6e:2x4``), accelerator types (``v6e-8``, ``v5litepod-8``, ``v5p-8``), machine types
    (``ct6e-standard-4t``) and a generation alone (``ironwood``: one chip).
    Raises CheckError, with the nearest name, for anything else.
    """
    name = re.sub(r"^tpu[ -]", "", text.strip().lower())
    machine = re.fullmatch(r"(ct\w+-\w+|tpu7x-standard)-(\d+)t", name)
    if machine and machine[1] in _MACHINES:
        generation, count, grid = _MACHINES[machine[1]], int(machine[2]), None
    else:
        match = re.fullmatch(r"([a-z0-9]+?)(?:-(\d+)|[:=_]([0-9x]+))?", name)
        generation = _ALIASES.get(match[1], match[1]) if match else ""
        count = int(match[2]) if match and match[2] else None
        grid = match[3] if match else None
        if count is not None and generation in _COUNTED_IN_CORES:
            if count % 2:
                raise CheckError(
                    f"{text}: the number counts TensorCores, two a chip: got {count}.", "Give an even one."
                )
            count //= 2
    if generation not in chips():
        known = [*chips(), *_ALIASES]
        near = difflib.get_close_matches(generation or name, known, 1)
        advice = f"Did you mean {near[0]}? " if near else ""
        raise CheckError(
            f"Unknown TPU: {text!r}.", f"{advice}Known: {', '.join(chips())}; for example v6e:2x4 or v6e-8."
        )
    dimensions = 3 if generation in _THREE_DIMENSIONAL else 2
    if grid is None:
        shape = _grid(count or 1, dimensions)
    else:
        shape = tuple(int(n) if n else 0 for n in grid.split("x"))
        if not 1 <= len(shape) <= 3 or 0 in shape:
            raise CheckError(f"{text}: {grid!r} is no shape of a slice.", "Give it as 2x4 or 2x2x1.")
        shape += (1,) * (dimensions - len(shape))
    return Slice(chips()[generation], shape)
