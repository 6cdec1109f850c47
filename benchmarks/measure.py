"""How figures are taken: candidates take turns in one process, and the median of the rounds counts, since machines are
noisy and only ratios within a run can be compared.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable

# By name, what it measures; a name in several figures means the same candidate.
Figures = dict[str, float]


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def rounds(candidates: dict[str, Callable[[], float]], n: int = 7) -> Figures:
    """Calls each candidate, which returns its time, in turn; the median of each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(n):
        for name, run in candidates.items():
            times[name].append(run())
    return {name: statistics.median(values) for name, values in times.items()}


def timed(step: Callable, finish: Callable, n: int, unit: float = 1e3, warm: int = 1) -> Callable[[], float]:
    """Measures ``n`` steps in one go, after ``warm`` more, each time it is called: time a step in 1/``unit`` s.

    ``finish(last)`` waits for the work of what the last step returned.
    """

    def run() -> float:
        for _ in range(warm):
            last = step()
        finish(last)
        start = time.perf_counter()
        for _ in range(n):
            last = step()
        finish(last)
        return (time.perf_counter() - start) / n * unit

    return run


def in_mode(name: str, measure: Callable[[], float]) -> Callable[[], float]:
    """``measure``, in a mode of torch_tpu."""
    import torch_tpu

    def run() -> float:
        with torch_tpu.mode(name):
            return measure()

    return run


def on_tpu(make: Callable[[], Callable], n: int, mode: str = "defer", unit: float = 1e3, steps: int = 6) -> Callable:
    """As ``timed``, of the step that ``make`` makes, in a mode of torch_tpu; ``steps`` are run first, to compile."""
    import torch

    import torch_tpu

    with torch_tpu.mode(mode):
        step = make()
        for _ in range(steps):
            step()
        torch.tpu.synchronize()
    return in_mode(mode, timed(step, lambda _: torch.tpu.synchronize(), n, unit))


def on_cpu(step: Callable, n: int, unit: float = 1e3, steps: int = 3) -> Callable[[], float]:
    """As ``timed``, of a step of PyTorch on the CPU."""
    for _ in range(steps):
        step()
    return timed(step, lambda _: None, n, unit)


def ratios(figures: Figures, *pairs: tuple[str, str]) -> Figures:
    """``figures`` and the quotients of pairs among them; a figure's unit, after a comma, is left out of their names."""
    short = {name: name.rsplit(",", 1)[0] for name in figures}
    return figures | {f"{short[a]} / {short[b]}": figures[a] / figures[b] for a, b in pairs if {a, b} <= set(figures)}
