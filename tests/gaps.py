"""Reads gaps.toml: which OpInfo checks are known not to pass, and why."""

import tomllib
from pathlib import Path

GAPS = tomllib.loads((Path(__file__).parent / "gaps.toml").read_text())["gap"]


def gap_for(name: str, dtype: str, kind: str) -> str | None:
    """The reason why a check is listed, if it is."""
    for gap in GAPS:
        if gap["entry"] == name and dtype in gap["dtypes"] and kind in gap["kinds"]:
            return gap["reason"]
    return None
