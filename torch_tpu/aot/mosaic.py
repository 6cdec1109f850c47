"""What a Pallas kernel does, counted from its own program (Mosaic, in the call's configuration).

Needs jaxlib, which every program with such a kernel was made with, and which reads it (mosaic_walk.py).
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache


@dataclass
class Work:
    """Of one run of a kernel."""

    products: Counter = field(default_factory=Counter)  # (rows, contracted, columns) -> how many
    elements: float = 0.0  # that the vector unit makes
    transcendentals: float = 0.0
    bytes: float = 0.0  # of the blocks that come from HBM and go to it
    said_flops: float = 0.0  # of products of unknown sizes

    @property
    def flops(self) -> float:
        return self.said_flops + sum(2 * math.prod(sizes) * n for sizes, n in self.products.items())

    def padded_flops(self, mxu: int) -> float:
        """The same for a unit of ``mxu`` x ``mxu``, which a product with a shorter side does not fill.

        One side of it is what is contracted, the other the shorter one of the result.
        """
        up = lambda n: -(-n // mxu) * mxu  # noqa: E731
        padded = (2 * max(m, n) * up(k) * up(min(m, n)) * times for (m, k, n), times in self.products.items())
        return self.said_flops + sum(padded)


@cache
def work(body: str, scalars: tuple[tuple[int, ...] | None, ...]) -> Work | None:
    """Counts a kernel's work.

    ``body``: as it stands in a ``tpu_custom_call``. ``scalars``: the numbers of the operands that come first, of those
    that are constants. None: there is no jaxlib, it cannot read the kernel, or the size of the grid is not in it.
    """
    try:
        from torch_tpu.aot import mosaic_walk
    except ImportError:
        return None
    return mosaic_walk.work(body, scalars)
