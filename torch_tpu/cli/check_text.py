"""A check's report in a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_tpu.aot.compiles import Later
from torch_tpu.aot.recording import line
from torch_tpu.aot.report import LayoutCopies, Report, StepReport, TargetReport, Tried

_GIB = 1 << 30
LAYOUT_SHARE = 0.01  # of the time, from which on layout copies are worth a line


def gib(n: float) -> str:
    return f"{n / _GIB:.2f} GiB" if n >= _GIB / 10 else f"{n / (1 << 20):.1f} MiB"


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"


def scaled(n: float) -> str:
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f} "


def verdict(step: StepReport | Tried) -> str:
    return {
        "ok": "compiles and fits",
        "oom": "does not fit",
        "refused": "refused by the compiler",
        "crashed": "the compiler crashed",
    }[step.verdict]


def outcome(way: Tried) -> str:
    """What a way to make the program fit comes to."""
    if not way.verdict:
        return f"with {way.options}, not tried: {way.message}"
    how = "compiled, layers as loops" if way.rolled else "compiled"
    if way.verdict == "ok":
        return f"with {way.options} ({how}): fits, {gib(way.peak)} of {gib(way.limit)}"
    return f"with {way.options} ({how}): {verdict(way)}" + (f", {gib(way.peak)}" if way.verdict == "oom" else "")


def _summary(report: Report) -> Table:
    table = Table()
    for name in ("", *(t.name for t in report.targets)):
        table.add_column(name)
    rows: dict[str, list[str]] = {}
    several = report.is_one_step and len(report.targets[0].steps) > 1

    def put(row: str, text: str) -> None:
        rows.setdefault(row, []).append(text)

    for target in report.targets:
        step = main_step(target)
        put("verdict", "; ".join(sorted({verdict(s) for s in target.steps})))
        put("programs", str(len(target.steps)))
        put("devices", f"{target.devices}, {target.shard}" if target.shard != "none" else "-")
        put("layers rolled", ", ".join(f"{times} x {calls} calls" for calls, times in step.loops) or "-")
        m, t = step.memory, step.time
        put("HBM of a device", gib(target.hbm_limit))
        put("  peak", gib(m.peak) if m else "-")
        put("  arguments", gib(m.arguments) if m and m.needed is None else "-")
        put("  outputs", gib(m.outputs) if m and m.needed is None else "-")
        put("  temporaries", gib(m.temporaries) if m and m.needed is None else "-")
        put("  code", gib(m.code) if m and m.code is not None else "-")
        put("  other live values", gib(m.resident) if m and m.resident else "-")
        put("matrix products", f"{scaled(t.flops)}FLOP" if t else "-")
        put("HBM traffic", f"{scaled(t.bytes)}B" if t else "-")
        put("interconnect", f"{scaled(t.link_bytes)}B" if t and t.link_bytes else "-")
        put("time, expected", duration(t.expected) if t else "-")
        put("  lower to upper", f"{duration(t.lower)} to {duration(t.upper)}" if t else "-")
        put("  of all programs", duration(step_seconds(target)) if several and t else "-")
        put("MFU", f"{t.mfu:.1%}" if t else "-")
        put(
            "bound by",
            ", ".join(f"{k} {v:.0%}" for k, v in sorted(t.share_by_bound.items(), key=lambda x: -x[1])) if t else "-",
        )
        put("compiled in", f"{sum(s.compile_seconds for s in target.steps):.1f} s ({target.depth})")
    for name, cells in rows.items():
        if any(c != "-" for c in cells):
            table.add_row(name, *cells)
    return table


def main_step(target: TargetReport) -> StepReport:
    """The program to show: of those that were refused the one that needs most memory, else the one with the most to
    multiply, or that takes longest."""

    def weight(step: StepReport) -> tuple[float, ...]:
        if step.verdict != "ok":
            return 1, step.memory.peak if step.memory else 0
        return 0, step.time.flops if step.time else 0, step.time.expected if step.time else 0

    return max(target.steps, key=weight)


def step_seconds(target: TargetReport) -> float:
    """The expected time of all programs, each so often as it runs."""
    return sum(s.runs * s.time.expected for s in target.steps if s.time)


def programs(report: Report, target: TargetReport) -> tuple[str, list[str], list[list[str]]]:
    """A table of a target's programs: title, head and rows."""
    rows = [
        [
            str(s.runs),
            duration(s.time.expected) if s.time else "-",
            gib(s.memory.peak) if s.memory else "-",
            str(s.calls),
            s.title,
        ]
        for s in target.steps
    ]
    return f"{target.name}: the programs of {report.covers}", ["runs", "time of a run", "HBM", "calls", "program"], rows


def _where(where: str) -> str:
    return line(where) if where else ""


def notes(report: Report) -> list[str]:
    """Sentences about what the figures hide."""
    found = compiles_note(report) + _emulation_notes(report)
    for target in report.targets:
        step = main_step(target)
        found += [f"{target.name}: {note}." for note in target.notes]
        found += [f"{target.name}: {outcome(way)}." for way in target.ways]
        if target.devices > target.chips:
            found.append(f"{target.name}: a chip shows as two devices; figures are of one, half a chip.")
        if target.devices > 1 and target.shard == "none":
            found.append(
                f"{target.name}: the program runs on one of {target.devices} devices; the others do the same or nothing."
            )
        parts = target.devices if target.shard != "none" else 1
        if step.memory and step.gradient_bytes > 0.05 * step.memory.peak * parts:
            found.append(
                f"{target.name}: gradients of {gib(step.gradient_bytes)} in all are alive when the optimizer's step ends "
                "(zero_grad comes after it), so the program returns them; one function of the whole step, compiled "
                "(docs/compile.md), need not."
            )
        if step.loops:
            found.append(
                f"{target.name}: layers that repeat are a loop over stacked parameters, gradients and optimizer state, as one "
                "writes it by hand (--no-roll: one by one)."
            )
        found += [note for s in target.steps if (note := _layout_note(target, s))]
        t = step.time
        if t is None:
            continue
        if t.float32_passes > 1.5:
            found.append(
                f"{target.name}: float32 matrix products take {t.float32_passes:.1f} passes of the MXU: "
                "use bfloat16, or torch.set_float32_matmul_precision('medium')."
            )
        if t.padding > 0.1:
            found.append(
                f"{target.name}: {t.padding:.0%} of the HBM traffic pads tiles of 8 x 128: make last dimensions multiples of 128."
            )
        if t.unknown_loops:
            found.append(f"{target.name}: {t.unknown_loops} loops end by data: each is counted as one run.")
        for call, count in t.uncosted_calls.items():
            found.append(
                f"{target.name}: the time of {count} calls of {call} is not known beyond their memory traffic."
            )
    return found


def _about(target: TargetReport, step: StepReport) -> str:
    """Which program a note is about."""
    return target.name if len(target.steps) == 1 else f"{target.name}, the program {step.title}"


def layout_sentence(copies: LayoutCopies) -> str:
    what = f"{copies.runs:.0f} copies only change" if copies.runs > 1 else "a copy only changes"
    return f"{what} the layout of values ({scaled(copies.bytes)}B), {copies.share:.0%} of the time"


def _layout_note(target: TargetReport, step: StepReport) -> str | None:
    copies = step.time.layout_copies if step.time else None
    if copies is None or copies.share < LAYOUT_SHARE:
        return None
    shown = copies.largest[:1] + [c for c in copies.largest[1:3] if c.share >= LAYOUT_SHARE]
    places = ", ".join(f"{_where(c.where) or 'no Python line'} ({c.op}, {c.share:.1%})" for c in shown)
    return f"{_about(target, step)}: {layout_sentence(copies)}: {places}."


def _why(later: Later) -> str:
    if later.state:
        why = f"it takes the optimizer's state too: {', '.join(later.state)}"
    else:
        why = "; ".join(map(str, later.changes[:2])) or "nothing like it came before"
    at = f", first at {_where(later.where)}" if later.where else ""
    return f"in step {later.step} ({why}{at})"


def compiles_note(report: Report) -> list[str]:
    """Of the programs that a run compiles, where there are more than those of its first step."""
    compiles, uneven = report.compiles, [f for f in report.findings if f.kind == "last batch"]
    found = []
    if later := compiles.later:
        more = f", and {len(later) - 3} more" if len(later) > 3 else ""
        sizes = ": each size is a program: pad to few" if sum(c.is_of_a_size for c in later) > 1 else ""
        found.append(
            f"Compiles: {compiles.first_step} program{'s' * (compiles.first_step != 1)} in the first step, {len(later)} later, "
            f"{'; '.join(map(_why, later[:3]))}{more}{sizes}."
        )
    found += [
        f"Compiles: {f.what}, at {_where(f.where)}, which is a program of its own: drop_last=True leaves it out."
        for f in uneven
    ]
    return found


def _emulation_notes(report: Report) -> list[str]:
    """Of 64-bit arithmetic: the same on all targets."""
    found = []
    several = len(report.targets[0].steps) > 1
    for step in report.targets[0].steps:
        about = f"In the program {step.title}, " if several else ""
        for kind, says, hint in (
            ("float64", "float64 is computed in pairs of float32, since a TPU has none", "use float32"),
            ("int64", "int64 is computed in pairs of int32", "use int32 where the numbers allow it"),
        ):
            if rows := [e for e in step.emulated if e.type == kind]:
                places = [f"{_where(e.where) or 'no Python line'} ({e.op}, {e.elements:,} numbers)" for e in rows[:3]]
                more = [f"{len(rows) - 3} more"] if len(rows) > 3 else []
                found.append(f"{about}{says}: {', '.join(places + more)}: {hint}.")
    return found


def show(report: Report, console: Console) -> None:
    console.print(Text(report.title, style="bold"))
    console.print(_summary(report))
    for target in report.targets:
        for step in target.steps:
            if step.message:
                console.print(
                    Text(f"{target.name}, the program {step.title}: {verdict(step)}:\n{step.message}", style="red")
                )
            if step.verdict == "oom" and step.memory and step.memory.largest:
                table = Table(title=f"{target.name}: the largest values", title_justify="left")
                for column in ("bytes", "what", "type", "line"):
                    table.add_column(column)
                for a in step.memory.largest[:10]:
                    table.add_row(gib(a.nbytes), Text(a.name), a.type, Text(_where(a.where)))
                console.print(table)
        if len(target.steps) > 1:
            title, head, rows = programs(report, target)
            table = Table(*head, title=title, title_justify="left")
            for row in rows:
                table.add_row(*map(Text, row))
            console.print(table)
    first = main_step(report.targets[0])
    if first.time and first.time.most_expensive:
        table = Table(title=f"{report.targets[0].name}: where the time goes", title_justify="left")
        for column in ("time", "share", "bound", "op", "line"):
            table.add_column(column, overflow="fold")
        for cost in first.time.most_expensive:
            table.add_row(
                duration(cost.seconds), f"{cost.share:.0%}", cost.bound, Text(cost.op), Text(_where(cost.where))
            )
        console.print(table)
    missing = report.unsupported
    native = [op for op in report.ops if op.runs_on == "native"]
    console.print(
        f"Ops: {len(native)} kinds, {sum(op.calls for op in native)} calls are lowered; {len(missing)} kinds are not."
    )
    for op in missing:
        console.print(
            Text(f"  {op.name}: runs on the host, {op.calls} times: {', '.join(map(_where, op.lines))}", style="red")
        )
    for f in report.findings:
        if f.kind == "stopped":
            console.print(
                Text(f"The script stopped early, and the check covers what ran before: {f.what}", style="red")
            )
    reads = [f for f in report.findings if f.kind == "host read"]
    if reads:
        console.print(
            "The host reads values, which waits for the device; the check went on with 0 (int64: 1), or with what --value gave:"
        )
        for f in reads[:10]:
            console.print(Text(f"  {f.count} x {f.what} at {_where(f.where)}"))
    if report.redirects:
        console.print("Sent to tpu, or to one process:")
        for f in report.redirects[:10]:
            console.print(Text(f"  {f.what} at {_where(f.where)}"))
    for note in notes(report):
        console.print(Text(f"Note: {note}"))
    console.print(
        Text(
            f"Times are estimates ({first.time.method if first.time else 'none'}); nothing ran on a TPU. Captured in {report.capture_seconds:.1f} s; libtpu {report.libtpu}.",
            style="dim",
        )
    )
