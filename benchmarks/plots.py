"""Plots of the figures, one SVG a benchmark: a bar a candidate, with its value, and the ratios below.

Needs matplotlib: pip install 'torch_tpu[bench]'.
"""

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

# One hue for this backend, greys for what it is measured beside.
OURS, OTHERS = "#1f6feb", "#9aa4af"


def _is_ours(name: str) -> bool:
    return not name.startswith(("CPU torch", "JAX", "jax", "import torch,"))


def _unit(name: str) -> str:
    return name.rsplit(", ", 1)[1] if ", " in name else ""


def _plot(name: str, title: str, figures: dict[str, float], setup: dict[str, str], folder: Path) -> Path:
    values = {k: v for k, v in figures.items() if " / " not in k and isinstance(v, (int, float))}
    ratios = {k: v for k, v in figures.items() if " / " in k}
    units = dict.fromkeys(map(_unit, values))
    heights = [0.4 * sum(_unit(k) == unit for k in values) + 0.5 for unit in units]
    notes = [f"{k}: {v:.3g}" for k, v in ratios.items()]
    notes += textwrap.wrap("; ".join(f"{k}: {v}" for k, v in setup.items()), 110)
    head, foot = 0.8, 0.25 * len(notes) + 0.3
    height = sum(heights) + head + foot
    figure, axes = plt.subplots(
        len(units), 1, figsize=(9, height), height_ratios=heights, squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(rect=(0, foot / height, 1, 1 - (head + foot) / height))
    for axis, unit in zip(axes[:, 0], units, strict=True):
        bars = {k.removesuffix(f", {unit}"): v for k, v in values.items() if _unit(k) == unit}
        drawn = axis.barh(list(bars), list(bars.values()), color=[OURS if _is_ours(k) else OTHERS for k in bars])
        axis.bar_label(drawn, [f"{v:.3g} {unit}" for v in bars.values()], padding=4)
        axis.invert_yaxis()
        axis.margins(x=0.18)
        axis.xaxis.set_visible(False)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    wrapped = "\n".join(textwrap.wrap(f"{name}: {title}", 100))
    figure.text(0.01, 1 - 0.12 / height, wrapped, va="top", fontweight="bold")
    figure.text(0.01, 0.12 / height, "\n".join(notes), va="bottom", fontsize=8, color="#57606a")
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def write(figures: dict[str, dict], titles: dict[str, str], folder: Path) -> list[Path]:
    """Plots the benchmarks in ``titles`` that have figures; ``figures["setup"]`` stands below each."""
    plt.rcParams |= {"svg.hashsalt": "torch_tpu", "font.family": "sans-serif"}
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _plot(name, title, figures[name], figures["setup"], folder)
        for name, title in titles.items()
        if any(isinstance(v, (int, float)) for v in figures[name].values())
    ]
