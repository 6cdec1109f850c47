"""The steps that the estimate is held against: what their layers compute again, and that every row says where it is from."""

import tomllib

import pytest

from tests.marks import needs_libtpu

pytest.importorskip("jax")
from tools import validate_estimator

ROWS = tomllib.loads(validate_estimator.ROWS.read_text())["row"]
SMALL = {
    "name": "small",
    "topology": "v6e-8",
    "model": {"hidden": 512, "mlp": 1024, "heads": 4, "key_heads": 2, "layers": 2, "vocabulary": 1024},
    "sequence": 1024,
    "batch": 1,
    "fused_backward": True,
}


def test_rows_are_of_at_least_five_models_and_say_where_they_are_from():
    assert len({row["name"].partition(",")[0] for row in ROWS}) >= 5
    for row in ROWS:
        assert row["source"].startswith("https://")
        assert sum(figure in row for figure in ("seconds", "tokens", "tflops")) == 1
        assert set(row["keeps"]) <= set(validate_estimator.STAGES)


@needs_libtpu
@pytest.mark.parametrize(
    ("keeps", "again"),
    [
        (["qkv", "context", "out", "mlp"], set()),
        (["qkv", "out"], {"kernel", "mlp"}),
        ([], {"qkv", "kernel", "out", "mlp"}),
    ],
)
def test_a_layer_computes_again_what_it_does_not_keep(keeps, again):
    model, tokens = SMALL["model"], SMALL["sequence"]
    one, two = (validate_estimator.of_layers(SMALL | {"keeps": keeps}, layers, 1, "quick") for layers in (1, 2))
    # Of a head's 2 x 2 blocks three are computed; two products forward, five backward.
    kernel = 3 * model["heads"] * 2 * 512 * 512 * 128
    qkv, out, mlp = (2 * tokens * 512 * width for width in (4 * 128 + 2 * 2 * 128, 4 * 128, 2 * 1024))
    down = 2 * tokens * 1024 * 512
    forward = {"qkv": qkv, "kernel": 2 * kernel, "out": out, "mlp": mlp}
    expected = 3 * (qkv + out + mlp + down) + (2 + 5) * kernel + sum(forward[stage] for stage in again)
    assert two.flops - one.flops == expected
