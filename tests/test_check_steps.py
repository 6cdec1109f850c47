"""Which programs are a step's, how often each runs in it, and what makes a run compile another."""

import re
import textwrap
from types import SimpleNamespace

import pytest
import torch

from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.aot.compiles import compiles_of
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.script import record
from torch_tpu.aot.steps import step_of_script
from torch_tpu.cli import check_html, check_text
from torch_tpu.cli.check_text import main_step


@pytest.fixture
def recorded(tmp_path):
    def of(code):
        path = tmp_path / "train.py"
        path.write_text("import torch\n" + textwrap.dedent(code))
        return record(path, [], parse("v6e")).recording

    return of


@pytest.fixture
def step(recorded):
    return lambda code: step_of_script(recorded(code))


def rows(step):
    return [(runs, program.ended_by.split(" at ")[0]) for program, runs in zip(step.programs, step.runs, strict=True)]


READ, STEPPED = "a value read by the host", "an optimizer's step"


def test_a_loop_is_reported_as_its_later_steps_are(step):
    found = step(
        """
        net = torch.nn.Linear(16, 4).to("tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(9):
            net(torch.zeros(8, 16, device="tpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    assert found.what == "a training step"
    assert rows(found) == [(1, STEPPED)]
    assert "exp_avg of weight" in {a.name for a in found.programs[0].arguments}


def test_two_optimizers_are_one_step(step):
    found = step(
        """
        make, judge = torch.nn.Linear(4, 16).to("tpu"), torch.nn.Linear(16, 1).to("tpu")
        makes, judges = torch.optim.Adam(make.parameters()), torch.optim.Adam(judge.parameters())
        for _ in range(9):
            fake = make(torch.zeros(8, 4, device="tpu"))
            judges.zero_grad()
            judge(fake.detach()).mean().backward()
            judges.step()
            makes.zero_grad()
            judge(fake).mean().neg().backward()
            makes.step()
        """
    )
    assert rows(found) == [(1, STEPPED), (1, STEPPED)]
    updated = [{a.type for a in p.arguments if a.name == "exp_avg of weight"} for p in found.programs]
    assert updated == [{"tensor<16x4xf32>"}, {"tensor<1x16xf32>"}]


def test_a_compiled_model_is_recorded(step):
    found = step(
        """
        net = torch.compile(torch.nn.Linear(16, 4).to("tpu"), backend="tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(9):
            net(torch.zeros(8, 16, device="tpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    assert rows(found) == [(1, STEPPED)]
    assert "aten::addmm" in found.programs[0].rows


def test_parts_of_a_batch_count_as_often_as_they_come_in_a_step(step):
    found = step(
        """
        net = torch.nn.Linear(16, 4).to("tpu")
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(9):
            for _ in range(4):
                loss = net(torch.zeros(8, 16, device="tpu")).sum()
                loss.backward()
                print(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    # The first part makes the gradients, the others add to them.
    assert rows(found) == [(1, READ), (3, READ), (1, STEPPED)]


def test_a_script_of_one_step_is_reported_whole(step):
    found = step(
        """
        net = torch.nn.Linear(16, 4).to("tpu")
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        loss = net(torch.zeros(8, 16, device="tpu")).sum()
        print(loss.item())
        loss.backward()
        optimizer.step()
        """
    )
    assert (found.what, rows(found)) == ("the script", [(1, READ), (1, STEPPED)])


def test_without_training_what_came_again_is_reported(step):
    found = step(
        """
        net = torch.nn.Linear(16, 4).to("tpu")
        with torch.no_grad():
            for n in (3, 8, 8, 8):
                print(net(torch.zeros(n, 16, device="tpu")).sum().item())
        """
    )
    assert (found.what, rows(found)) == ("what came again", [(3, READ)])


class Reads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 128), torch.nn.Linear(128, 8)

    def forward(self, x):
        hidden = self.a(x).relu()
        return self.b(hidden).square().mean() + hidden.argmax().item()


@needs_libtpu
@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.SGD, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)]
)
def test_programs_that_the_first_step_had_too_are_in_the_report(optimizer):
    report = aot.check(Reads(), torch.empty(32, 64, device="meta"), train=True, optimizer=optimizer)
    first, last = report.targets[0].steps
    assert (first.runs, last.runs, report.covers) == (1, 1, "a training step")
    assert first.title.startswith(f"ended by {READ} at ") and last.title == f"ended by {STEPPED}"
    assert check_text.step_seconds(report.targets[0]) == first.time.expected + last.time.expected
    page = check_html.page(report)
    assert "the programs of a training step" in page and "All of them: <b>" in page


@needs_libtpu
def test_one_program_has_no_table_of_programs():
    report = aot.check(torch.nn.Linear(8, 8), torch.empty(2, 8, device="meta"))
    assert (report.covers, [s.runs for s in report.targets[0].steps]) == ("a call", [1])
    assert "the programs of" not in check_html.page(report)


# --- what a run compiles


LOOP = """
    from torch.utils.data import DataLoader, TensorDataset
    net = torch.nn.Linear(16, 4).to("tpu")
    optimizer = torch.optim.{optimizer}
    power = 1
    for (x,) in DataLoader(TensorDataset(torch.zeros({samples}, 16)), 8):
        {change}
        net(x.to("tpu")).pow(power).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SGD, ADAMW = "SGD(net.parameters(), 0.1)", "AdamW(net.parameters())"


def loop(optimizer=SGD, samples=8000, change="pass"):
    return LOOP.format(optimizer=optimizer, samples=samples, change=change)


def test_a_loop_of_equal_steps_compiles_in_its_first_only(recorded):
    found = compiles_of(recorded(loop()))
    assert (found.first_step, found.later) == (1, [])


def test_the_optimizers_state_makes_the_second_step_another_program(recorded):
    (later,) = compiles_of(recorded(loop(ADAMW))).later
    assert (later.step, later.state) == (2, ["exp_avg", "exp_avg_sq"])
    assert later.where.endswith("train.py:10")


def test_a_last_batch_of_another_size_is_a_program_and_its_input_is_named(recorded):
    recording = recorded(loop(samples=21))
    (later,) = compiles_of(recording).later
    assert later.step == 3 and later.is_of_a_size
    assert (later.changes[0].before, later.changes[0].after) == ("tensor<8x16xf32>", "tensor<5x16xf32>")
    assert later.where.endswith("train.py:9")
    (finding,) = [f for f in recording.findings if f.kind == "last batch"]
    assert finding.what == "a DataLoader's last batch has 5 of 8" and finding.where.endswith("train.py:7")
    assert not [f for f in recorded(loop(samples=24)).findings if f.kind == "last batch"]


def test_a_number_that_is_a_part_of_the_program_is_found_at_its_line(recorded):
    first, second = compiles_of(
        recorded(loop(change="net.weight.data = net.weight.data[:, :16].roll(power); power += 1"))
    ).later
    assert all(later.where for later in (first, second)) and (first.step, second.step) == (2, 3)


def test_a_length_that_grows_is_a_program_each_time(recorded):
    recording = recorded(
        """
        net = torch.nn.Linear(16, 4).to("tpu")
        with torch.no_grad():
            for n in range(1, 6):
                print(net(torch.zeros(n, 16).to("tpu")).sum().item())
        """
    )
    found = compiles_of(recording)
    assert found.first_step == 1 and [c.step for c in found.later] == [2, 3, 4, 5]
    assert all(c.is_of_a_size for c in found.later)


@needs_libtpu
def test_the_report_says_why_a_later_step_compiles_again():
    report = aot.check(torch.nn.Linear(8, 8), torch.empty(2, 8, device="meta"), train=True)
    (note,) = [n for n in check_text.notes(report) if n.startswith("Compiles:")]
    assert re.match(
        r"Compiles: 1 programs? in the first step, 1 later, in step 2 \(it takes the optimizer's state too: exp_avg, exp_avg_sq",
        note,
    )
    assert "Compiles: 1 program" in check_html.page(report)
    once = aot.check(torch.nn.Linear(8, 8), torch.empty(2, 8, device="meta"))
    assert not [n for n in check_text.notes(once) if n.startswith("Compiles:")]


def test_the_program_shown_is_the_one_that_needs_most_memory_if_several_do_not_fit():
    def program(verdict, peak, flops):
        return SimpleNamespace(
            verdict=verdict, memory=SimpleNamespace(peak=peak), time=flops and SimpleNamespace(flops=flops, expected=1)
        )

    read, whole = program("oom", 45, flops=2), program("oom", 64, flops=None)
    assert main_step(SimpleNamespace(steps=[read, whole])) is whole
    fits, small = program("ok", 99, flops=5), program("ok", 1, flops=1)
    assert main_step(SimpleNamespace(steps=[fits, small])) is fits
    assert main_step(SimpleNamespace(steps=[fits, read])) is read
