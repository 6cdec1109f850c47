"""The page of `torch-tpu check --html` in a real browser: it renders, its plots have their marks, and nothing complains."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
import torch

from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.cli import check_html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Runs in the page: what a reader would see of it.
LOOK = """
<script>
const problems = [];
addEventListener("error", e => problems.push(e.message));
addEventListener("load", () => {
  const box = e => { const b = e.getBoundingClientRect(); return [b.width, b.height]; };
  const seen = {
    problems, title: document.title,
    plots: [...document.querySelectorAll("svg")].map(s => ({ name: s.getAttribute("aria-label"),
      size: box(s),
      marks: [...s.querySelectorAll("rect, circle, polyline")].map(box),
      stray: [...s.querySelectorAll("rect, circle, text")].filter(e => {
        const b = e.getBoundingClientRect(), a = s.getBoundingClientRect();
        return b.left < a.left - 2 || b.right > a.right + 2 || b.top < a.top - 2 || b.bottom > a.bottom + 2;
      }).map(e => e.outerHTML.slice(0, 120)),
    })),
    tables: [...document.querySelectorAll("table")].map(t => t.rows.length),
    sideways: document.documentElement.scrollWidth - innerWidth,
    text: getComputedStyle(document.body).color, ground: getComputedStyle(document.body).backgroundColor,
  };
  document.documentElement.setAttribute("data-seen", JSON.stringify(seen));
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    torch.manual_seed(0)
    # Large enough that its parts are seen beside a chip's memory.
    with torch.device("meta"):
        net = torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 4096))
        x = torch.zeros(4096, 4096)
    report = aot.check(net, x, train=True, topology=["v6e:1x1", "v5e:1x1"])
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(check_html.page(report).replace("<style>", LOOK + "<style>", 1))
    return path


def browse(path, tmp_path, *options):
    """(what LOOK saw, what the browser logged)."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}", *options, "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_libtpu
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_renders_with_its_plots(page, tmp_path):
    seen, console = browse(page, tmp_path, "--window-size=1200,900")
    assert seen["problems"] == [] and console == []
    assert "Sequential" in seen["title"]
    assert [plot["name"] for plot in seen["plots"]] == 2 * [
        "HBM",
        "Memory over the program",
        "Roofline",
        "Time by module",
    ]
    for plot in seen["plots"]:
        assert min(plot["size"]) > 10, plot["name"]
        assert sum(w > 0 for w, _ in plot["marks"]) >= 2, plot["name"]
        assert plot["stray"] == [], plot["name"]
    assert len(seen["tables"]) >= 4
    assert seen["text"] != seen["ground"]


@needs_libtpu
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_fits_a_narrow_window(page, tmp_path):
    seen, _ = browse(page, tmp_path, "--window-size=500,900")
    assert seen["sideways"] <= 0


def test_the_kept_reports_are_those_of_the_page_that_lists_them():
    from tools import checks

    page = (checks.FOLDER / "README.md").read_text()
    assert page == checks.with_figures(page), "python tools/checks.py --table writes the figures anew"
    assert {path.stem for path in checks.FOLDER.glob("*.txt")} == set(checks.CHECKS)
