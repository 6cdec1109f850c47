"""Names of TPU hardware as people write them."""

import pytest

from torch_tpu.aot import CheckError
from torch_tpu.aot.hardware import chips, parse


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("v6e:2x4", "v6e:2x4"),
        ("v6e-8", "v6e:2x4"),
        ("v6e", "v6e:1x1"),
        ("v5litepod-8", "v5e:2x4"),
        ("v5e-16", "v5e:4x4"),
        ("v5p-8", "v5p:2x2x1"),
        ("v5p:2x2", "v5p:2x2x1"),
        ("ironwood", "tpu7x:1x1x1"),
        ("Trillium", "v6e:1x1"),
        ("ct6e-standard-4t", "v6e:2x2"),
        ("ct5lp-hightpu-8t", "v5e:2x4"),
        ("tpu7x-standard-4t", "tpu7x:2x2x1"),
        ("v6e-256", "v6e:16x16"),
    ],
)
def test_names_are_mapped(given, name):
    assert parse(given).name == name


@pytest.mark.parametrize("wrong", ["v9", "v6e:0x1", "v6e:", "v6e-3", "v5p-7", "h100", ""])
def test_other_names_are_refused_with_advice(wrong):
    with pytest.raises(CheckError) as caught:
        parse(wrong)
    assert caught.value.advice


def test_every_chip_has_its_figures_and_their_source():
    for chip in chips().values():
        assert chip.flops > 1e13
        assert chip.hbm_bandwidth > 1e11
        assert chip.source.startswith("https://")
