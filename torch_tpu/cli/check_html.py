"""A check's report as one HTML page that needs nothing else: its drawings are SVG, made here."""

import math
from html import escape

from torch_tpu.aot import hardware
from torch_tpu.aot.memory import Memory
from torch_tpu.aot.recording import line
from torch_tpu.aot.report import Report, TargetReport, Time
from torch_tpu.cli.check_text import (
    LAYOUT_SHARE,
    duration,
    gib,
    layout_sentence,
    main_step,
    notes,
    programs,
    scaled,
    step_seconds,
    verdict,
)

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1a1a1a, #e8e8e8); --soft: light-dark(#666, #aaa); --rule: light-dark(#ddd, #444);
  --a: #3b6fb6; --b: #d98a2b; --c: #5a9a5a; --d: #a05a9a; --e: #8a8a3a; --bad: #c0392b; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: light-dark(#fff, #181818); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2.2rem; border-bottom: 1px solid var(--rule) }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } code, pre { font: 13px ui-monospace, monospace; overflow-wrap: anywhere } td:first-child { white-space: nowrap } td > code { white-space: normal } td.long { overflow-wrap: anywhere } pre { white-space: pre-wrap }
.bad { color: var(--bad) } .soft { color: var(--soft) } svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--ink) }
"""


def _table(head: list[str], rows: list[list[str]]) -> str:
    # In a narrow window long cells break anywhere, and short ones nowhere.
    cell = lambda c: f'<td class="long">{c}</td>' if len(c) > 20 else f"<td>{c}</td>"  # noqa: E731
    cells = "".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{escape(h)}</th>" for h in head) + f"</tr>{cells}</table>"


def _memory_bar(memory: Memory) -> str:
    """The parts of the peak against the device's HBM."""
    parts = [
        ("other live values", memory.resident, "--d"),
        ("needed", memory.needed or 0, "--bad"),
        *(
            []
            if memory.needed
            else [
                ("arguments", memory.arguments, "--a"),
                ("outputs", memory.outputs, "--c"),
                ("temporaries", memory.temporaries, "--b"),
                ("code and constants", (memory.code or 0) + memory.constants, "--e"),
            ]
        ),
    ]
    width, scale = 900, max(memory.peak, memory.limit) or 1
    x, bars, legend = 0.0, [], []
    for name, size, color in parts:
        if size < scale / 10_000:
            continue
        w = size / scale * width
        bars.append(
            f'<rect x="{x:.1f}" y="20" width="{w:.1f}" height="34" fill="var({color})"><title>{name}: {gib(size)}</title></rect>'
        )
        legend.append(f'<span style="color:var({color})">&#9632;</span> {name} {gib(size)}')
        x += w
    limit = memory.limit / scale * width
    return (
        f'<svg viewBox="0 0 {width + 10} 60" role="img" aria-label="HBM">{"".join(bars)}'
        f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="14" y2="60" stroke="var(--ink)" stroke-dasharray="3"/>'
        f'<text x="{limit:.1f}" y="12" text-anchor="end">{gib(memory.limit)} in a device</text></svg><p>{" &nbsp; ".join(legend)}</p>'
    )


def _over_program(memory: Memory) -> str:
    """What is alive along the schedule: temporaries on what stays, against the device's HBM."""
    moments = memory.over_program
    if not moments:
        return ""
    stays = memory.peak - memory.temporaries
    width, height, left, bottom, top = 900, 220, 70, 24, 16
    most = max(stays + max(m.nbytes for m in moments), memory.peak) or 1
    scale = max(most, memory.limit if memory.limit < 2 * most else most)
    y = lambda n: top + (1 - n / scale) * (height - top - bottom)  # noqa: E731
    step = (width - left) / len(moments)
    x = lambda i: left + i * step  # noqa: E731
    marks = [
        f'<rect x="{left}" y="{y(stays):.1f}" width="{width - left}" height="{height - bottom - y(stays):.1f}" fill="var(--a)">'
        f"<title>arguments, outputs and what else stays: {gib(stays)}</title></rect>"
    ]
    for i, m in enumerate(moments):
        marks.append(
            f'<rect x="{x(i):.1f}" y="{y(stays + m.nbytes):.1f}" width="{step + 0.3:.2f}" height="{y(stays) - y(stays + m.nbytes):.1f}" '
            f'fill="var(--b)"><title>{escape(m.op)}: {gib(m.nbytes)}</title></rect>'
        )
    ticks = dict.fromkeys([0, stays, stays + max(m.nbytes for m in moments)])
    for n in ticks:
        if n == 0 or all(abs(y(n) - y(other)) > 12 for other in ticks if other < n):
            marks.append(
                f'<text x="{left - 6}" y="{min(y(n) + 4, height - bottom):.1f}" text-anchor="end">{gib(n) if n else "0"}</text>'
            )
    if scale == memory.limit:
        marks.append(
            f'<line x1="{left}" x2="{width}" y1="{y(scale):.1f}" y2="{y(scale):.1f}" stroke="var(--ink)" stroke-dasharray="3"/>'
            f'<text x="{width}" y="12" text-anchor="end">{gib(scale)} in a device</text>'
        )
    peak = max(range(len(moments)), key=lambda i: moments[i].nbytes)
    marks.append(
        f'<text x="{left}" y="{height - 6}">start</text><text x="{width}" y="{height - 6}" text-anchor="end">end</text>'
    )
    return (
        f'<svg viewBox="0 0 {width + 10} {height}" role="img" aria-label="Memory over the program">{"".join(marks)}</svg>'
        '<p class="soft">Along the schedule, a loop\'s body once: temporaries (orange) on what stays (blue). '
        f"Most is alive at <code>{escape(moments[peak].op)}</code>.</p>"
    )


def _roofline(time: Time, target: TargetReport) -> str:
    """The program and its costliest steps under the chip's roof: operations a second by operations a byte, both logarithmic."""
    chip = hardware.parse(target.name).chip
    width, height, left, bottom = 900, 320, 90, 44
    lo, hi = -1.0, max(4.0, math.ceil(math.log10(max(time.intensity, time.ridge, 1))) + 1)
    shown = [
        (c.flops / c.bytes, c.flops / c.seconds, c) for c in time.most_expensive if c.flops and c.bytes and c.seconds
    ]
    slowest = min([rate for _, rate, _ in shown] + [time.flops / time.expected] * bool(time.flops), default=chip.flops)
    top = math.log10(chip.flops) + 0.3
    floor = min(math.log10(chip.flops) - 3, max(math.floor(math.log10(max(slowest, 1))), math.log10(chip.flops) - 7))

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = left + (math.log10(max(intensity, 10**lo)) - lo) / (hi - lo) * (width - left - 10)
        y = (top - math.log10(max(rate, 10**floor))) / (top - floor) * (height - bottom)
        return x, y

    ridge = at(time.ridge, chip.flops)
    start, end = at(max(10**lo, 10**floor / chip.hbm_bandwidth), 0), at(10**hi, chip.flops)
    start = at(10**lo, 10**lo * chip.hbm_bandwidth) if 10**lo * chip.hbm_bandwidth > 10**floor else start
    marks = []
    for exponent in range(int(lo), int(hi) + 1):
        x, _ = at(10.0**exponent, 1)
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - bottom}" stroke="var(--rule)"/>'
            f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle">{10.0**exponent:g}</text>'
        )
    for exponent in range(math.ceil(floor), math.floor(top) + 1):
        _, y = at(1, 10.0**exponent)
        marks.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>'
            f'<text x="{left - 6}" y="{min(y + 4, height - bottom):.1f}" text-anchor="end">{scaled(10.0**exponent)}FLOP/s</text>'
        )
    marks.append(
        f'<polyline points="{start[0]:.1f},{start[1]:.1f} {ridge[0]:.1f},{ridge[1]:.1f} {end[0]:.1f},{end[1]:.1f}" fill="none" stroke="var(--soft)" stroke-width="2"/>'
    )
    for intensity, rate, cost in shown:
        x, y = at(intensity, rate)
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 + 14 * cost.share:.1f}" fill="var(--a)" opacity=".6"><title>{escape(cost.op)}</title></circle>'
        )
    if time.flops:
        x, y = at(time.intensity, time.flops / time.expected)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="var(--b)"><title>the program</title></circle>')
    marks.append(
        f'<text x="{ridge[0]:.1f}" y="{ridge[1] - 6:.1f}" text-anchor="middle">{scaled(chip.flops)}FLOP/s</text>'
        f'<text x="{width - 10}" y="{height - 8}" text-anchor="end">operations a byte of HBM traffic</text>'
    )
    return (
        f'<svg viewBox="0 0 {width + 24} {height}" role="img" aria-label="Roofline">{"".join(marks)}</svg>'
        '<p class="soft">Orange: the program, by its expected time; blue: its costliest steps that multiply matrices, the larger the longer.</p>'
    )


def _bars(seconds: dict[str, float]) -> str:
    """The time of each module, the longest first."""
    shown = list(seconds.items())[:25]
    if not shown:
        return ""
    longest = shown[0][1] or 1.0
    rows = []
    for i, (name, value) in enumerate(shown):
        y = 20 * i
        rows.append(
            f'<rect x="380" y="{y + 3}" width="{value / longest * 420:.1f}" height="14" fill="var(--a)"/>'
            f'<text x="372" y="{y + 15}" text-anchor="end">{escape(name[-58:])}</text>'
            f'<text x="{386 + value / longest * 420:.1f}" y="{y + 15}">{duration(value)}</text>'
        )
    return f'<svg viewBox="0 0 900 {20 * len(shown)}" role="img" aria-label="Time by module">{"".join(rows)}</svg>'


def _layout_copies(time: Time) -> str:
    copies = time.layout_copies
    if copies.share < LAYOUT_SHARE:
        return ""
    rows = [
        [
            duration(c.seconds),
            f"{c.share:.1%}",
            f"{scaled(c.bytes)}B",
            f"<code>{escape(c.op)}</code>",
            escape(line(c.where) if c.where else ""),
        ]
        for c in copies.largest
    ]
    return (
        f"<h3>Layout copies</h3><p>In a run of the program, {layout_sentence(copies)}.</p>"
        f"{_table(['time', 'share', 'HBM traffic', 'op', 'line'], rows)}"
    )


def _target(target: TargetReport, report: Report) -> str:
    step = main_step(target)
    memory, time = step.memory, step.time
    bad = ' class="bad"' if step.verdict != "ok" else ""
    out = [
        f"<h2>{escape(target.name)} ({escape(target.device_kind)})</h2><p{bad}>{verdict(step).capitalize()}: the program {escape(step.title)}.</p>"
    ]
    if target.shard != "none":
        out.append(
            f"<p>One program of {target.devices} devices ({target.shard}); memory and time are of one of them.</p>"
        )
    if len(target.steps) > 1:
        title, head, rows = programs(report, target)
        out.append(f"<h3>{escape(title)}</h3>" + _table(head, [[escape(cell) for cell in row] for row in rows]))
        if report.is_one_step:
            out.append(f"<p>All of them: <b>{duration(step_seconds(target))}</b> expected.</p>")
    if step.message:
        out.append(f"<pre>{escape(step.message)}</pre>")
    if memory:
        out.append("<h3>Memory</h3>" + _memory_bar(memory) + _over_program(memory))
        rows = [
            [gib(a.nbytes), f"<code>{escape(a.name)}</code>", escape(a.type), escape(line(a.where) if a.where else "")]
            for a in memory.largest
        ]
        out.append(
            f"<details{' open' if step.verdict == 'oom' else ''}><summary>The largest values</summary>{_table(['size', 'what', 'type', 'line'], rows)}</details>"
        )
    if time:
        links = f", {scaled(time.link_bytes)}B over the interconnect" if time.link_bytes else ""
        out.append(
            f"<h3>Time</h3><p><b>{duration(time.expected)}</b> expected, {duration(time.lower)} to {duration(time.upper)}; "
            f"MFU {time.mfu:.1%}; {scaled(time.flops)}FLOP, {scaled(time.bytes)}B of HBM traffic{links}; bound by {time.bound}. By {escape(time.method)}.</p>"
        )
        out.append(_roofline(time, target))
        rows = [
            [
                duration(c.seconds),
                f"{c.share:.0%}",
                c.bound,
                f"<code>{escape(c.op)}</code>",
                escape(line(c.where) if c.where else ""),
            ]
            for c in time.most_expensive
        ]
        out.append(_table(["time", "share", "bound", "op", "line"], rows))
        out.append(_layout_copies(time))
        out.append("<h3>Time by module</h3>" + _bars(time.seconds_by_module))
    return "".join(out)


def _emulated(target: TargetReport) -> str:
    rows = [
        [
            e.type,
            f"<code>{escape(e.op)}</code>",
            escape(line(e.where) if e.where else ""),
            str(e.calls),
            f"{e.elements:,}",
            ", ".join(e.operations),
        ]
        for step in target.steps
        for e in step.emulated
    ]
    head = ["type", "op", "line", "calls", "numbers", "computed in pairs of 32 bits"]
    return f"<h2>64-bit arithmetic</h2>{_table(head, rows)}" if rows else ""


def page(report: Report) -> str:
    """The whole page."""
    ops = [
        [
            f"<code>{escape(op.name)}</code>",
            f'<span class="{"bad" if op.runs_on == "unsupported" else ""}">{op.runs_on}</span>',
            str(op.calls),
            escape(", ".join(map(line, op.lines))),
        ]
        for op in report.ops
    ]
    findings = [
        [escape(f.kind), escape(f.what), escape(line(f.where) if f.where else ""), str(f.count)]
        for f in (*report.findings, *report.redirects)
    ]
    remarks = "".join(f"<li>{escape(n)}</li>" for n in notes(report))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(report.title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(report.title)}</h1>"
        f'<p class="soft">Compiled by libtpu {escape(report.libtpu)} without a TPU; times are estimates. Captured in {report.capture_seconds:.1f} s.</p>'
        f"{''.join(_target(t, report) for t in report.targets)}"
        f"<h2>Notes</h2><ul>{remarks or '<li>None.</li>'}</ul>"
        f"<h2>What a TPU does not do by itself</h2>{_table(['kind', 'what', 'line', 'times'], findings)}"
        f"{_emulated(report.targets[0])}"
        f"<h2>Ops</h2>{_table(['op', 'runs', 'calls', 'lines'], ops)}</html>\n"
    )
