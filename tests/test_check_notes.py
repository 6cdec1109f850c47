"""What `torch-tpu check` says of a step beyond its figures: each note has a module that shows it and one that does not."""

import re

import torch

from tests.marks import needs_libtpu
from torch_tpu import aot
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
