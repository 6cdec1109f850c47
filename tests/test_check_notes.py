"""What `torch-tpu check` says of a step beyond its figures: each note has a module that shows it and one that does not."""

import re

import torch

from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.aot.emulated import emulated_ops
from torch_tpu.cli import check_html, check_text


def notes(report, about):
    """Those that hold these words."""
    return [note for note in check_text.notes(report) if about in note]


def transposed(x):
    return x.t().contiguous()


def doubled(x):
    return x + x


@needs_libtpu
def test_copies_that_only_change_a_layout_are_counted_with_their_line():
    x = torch.empty(4096, 8192, dtype=torch.bfloat16, device="meta")
    report = aot.check(transposed, x)
    copies = report.targets[0].steps[0].time.layout_copies
    assert (copies.count, copies.runs, copies.bytes) == (1, 1, x.nbytes)
    assert copies.share > 0.9
    line = transposed.__code__.co_firstlineno + 1
    assert copies.largest[0].where.endswith(f"test_check_notes.py:{line}")
    (note,) = notes(report, "layout")
    assert re.search(
        rf"a copy only changes the layout of values \(67.1 MB\), 100% of the time: .*notes.py:{line} \(", note
    )
    assert "<h3>Layout copies</h3>" in check_html.page(report)


@needs_libtpu
def test_a_step_without_layout_copies_says_nothing_of_them():
    report = aot.check(doubled, torch.empty(4096, 8192, dtype=torch.bfloat16, device="meta"))
    assert report.targets[0].steps[0].time.layout_copies.count == 0
    assert not notes(report, "layout")
    assert "Layout copies" not in check_html.page(report)


def in_float64(x):
    y = x.double()
    return (y @ y).sum(0).exp()


def as_float32(x):
    return (x @ x).sum(0).exp()


def hashed(ids):
    return ids * 7919 % 1000


def looked_up(ids, table):
    return torch.nn.functional.embedding(ids.clamp(0, 9) + 1, table)


@needs_libtpu
def test_float64_arithmetic_is_named_with_its_line_and_what_to_do():
    report = aot.check(in_float64, torch.empty(512, 512, device="meta"))
    line = in_float64.__code__.co_firstlineno + 2
    product, added = report.targets[0].steps[0].emulated
    assert [(e.type, e.op, e.elements) for e in (product, added)] == [
        ("float64", "aten.mm", 512 * 512),
        ("float64", "aten.sum.dim_IntList", 512 * 512),
    ]
    assert product.operations == ["dot_general"]  # the exponential takes 512 numbers: too few to matter
    (note,) = notes(report, "float64 is computed in pairs of float32")
    assert f"test_check_notes.py:{line} (aten.mm, 262,144 numbers)" in note and note.endswith("use float32.")
    assert "<h2>64-bit arithmetic</h2>" in check_html.page(report)


@needs_libtpu
def test_float32_arithmetic_and_token_ids_are_not_named():
    ids = torch.empty(1 << 17, dtype=torch.int64, device="meta")
    for report in (
        aot.check(as_float32, torch.empty(512, 512, device="meta")),
        aot.check(looked_up, ids, torch.empty(16, 8, device="meta")),
    ):
        assert report.targets[0].steps[0].emulated == []
        assert not notes(report, "in pairs of") and not notes(report, "int64")
        assert "64-bit" not in check_html.page(report)


@needs_libtpu
def test_int64_products_and_remainders_matter_where_they_are_long():
    report = aot.check(hashed, torch.empty(1 << 17, dtype=torch.int64, device="meta"))
    (note,) = notes(report, "int64 is computed in pairs of int32")
    assert "(aten.mul.Tensor, 131,072 numbers)" in note and "(aten.remainder.Scalar, 131,072 numbers)" in note
    assert note.endswith("use int32 where the numbers allow it.")
    few = aot.check(hashed, torch.empty(8, dtype=torch.int64, device="meta"))
    assert few.targets[0].steps[0].emulated == [] and not notes(few, "int64")


def test_layers_that_repeat_are_one_line_of_emulated_arithmetic():
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256, dtype=torch.float64) for _ in range(3)))
    with aot.topology("v6e") as recording:
        layers.to("tpu")
        out = layers(torch.zeros(256, 256, dtype=torch.float64, device="tpu"))
        recording.cut()
        del out
    (row,) = emulated_ops(recording.programs[-1].module)
    assert (row.op, row.calls) == ("Sequential.*/aten.addmm", 3)
