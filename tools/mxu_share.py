"""Prints what share of each chip's peak the TPU compiler's own cycles give large bfloat16 products: chips.toml's mxu_share.

    python tools/mxu_share.py [CHIP...]

The products are those of a decoder's layer, 4,096 and 8,192 wide, of 8,192 tokens: forward, the gradient of the input,
the gradient of the weights. The share is of all of them, by time at the peak: needs libtpu, and some seconds a product.
"""

import click
import torch

from torch_tpu import aot
from torch_tpu.aot import hardware
from torch_tpu.aot.compiler import Compiler

TOKENS = 8192
WEIGHTS = [(4096, 4096), (4096, 14336), (8192, 8192), (8192, 28672)]


def products() -> list[tuple[int, int, int]]:
    """(rows, contracted, columns)"""
    found = []
    for before, after in WEIGHTS:
        found += [(TOKENS, before, after), (TOKENS, after, before), (before, TOKENS, after)]
    return list(dict.fromkeys(found))


def cycles_of(sizes: tuple[int, int, int], chip: str, compiler: Compiler) -> float:
    """Seconds that the compiler expects of a product."""
    rows, contracted, columns = sizes
    left, right = (
        torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((rows, contracted), (contracted, columns))
    )
    report = aot.check(torch.matmul, left, right, topology=chip, depth="full", compiler=compiler)
    time = report.targets[0].steps[0].time
    return max(cost.seconds for cost in time.most_expensive if cost.flops)


@click.command()
@click.argument("chosen", nargs=-1)
def main(chosen: tuple[str, ...]) -> None:
    with Compiler() as compiler:
        for name in chosen or hardware.chips():
            chip = hardware.chips()[name]
            at_peak = [2 * m * k * n / chip.flops for m, k, n in products()]
            expected = [cycles_of(sizes, name, compiler) for sizes in products()]
            each = " ".join(f"{a / b:.2f}" for a, b in zip(at_peak, expected, strict=True))
            click.echo(f"{name:6} {sum(at_peak) / sum(expected):.2f}  ({each})")


if __name__ == "__main__":
    main()
