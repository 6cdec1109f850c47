"""The C++ layers: a file includes only its own layer and those above it in this list."""

import re
from pathlib import Path

CSRC = Path(__file__).parent.parent / "csrc"
ABOVE = {
    "pjrt": {"stablehlo"},
    "stablehlo": set(),
    "cache": {"pjrt", "stablehlo"},
    "lowerings": {"stablehlo"},
    "tensor": {"pjrt", "stablehlo"},
    "exec": {"pjrt", "stablehlo", "cache", "lowerings", "tensor"},
    "device": {"pjrt", "stablehlo", "tensor"},
    "aten": {"pjrt", "stablehlo", "cache", "lowerings", "tensor", "exec", "device"},
    "python": {"pjrt", "stablehlo", "cache", "lowerings", "tensor", "exec", "device", "aten"},
}
BANNED = ("torch/extension.h", "ATen/ATen.h")


def sources():
    return [f for f in CSRC.rglob("*") if f.suffix in (".h", ".cpp")]


def test_a_layer_includes_only_those_above_it():
    wrong = []
    for file in sources():
        layer = file.relative_to(CSRC).parts[0]
        for included in re.findall(r'#include "([a-z0-9_]+)/', file.read_text()):
            if included in ABOVE and included != layer and included not in ABOVE[layer]:
                wrong.append(f"{file.relative_to(CSRC)} includes {included}/")
    assert not wrong


def test_heavy_headers_appear_nowhere():
    assert not [f for f in sources() for banned in BANNED if f"<{banned}>" in f.read_text()]


def test_lowerings_know_nothing_of_aten():
    wrong = [
        f"{file.name}: {header}"
        for file in (CSRC / "lowerings").glob("*")
        for header in re.findall(r"#include <((?:ATen|torch)/[^>]+)>", file.read_text())
    ]
    assert not wrong


def test_every_source_is_built():
    listed = (CSRC / "sources.cmake").read_text()
    assert not [
        f.name for f in sources() if f.suffix == ".cpp" and not f.stem.endswith("_test") and f.name not in listed
    ]
