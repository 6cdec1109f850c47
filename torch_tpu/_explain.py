"""``torch_tpu.explain()``: what ran lately, what caused it, and what was slow about it."""

from dataclasses import asdict, dataclass, field

from torch_tpu import _C
from torch_tpu._keys import Change, changes, nearest


@dataclass(frozen=True)
class Flush:
    """A recorded program that ran: what asked for it, and how it got its executable."""

    step: int
    where: str
    cause: str
    calls: int
    how: str
    seconds: float  # of the host, compiling included
    count: int


@dataclass(frozen=True)
class Compile:
    """A program that was not in memory: compiled or loaded from disk, and what changed since its like."""

    step: int
    where: str
    source: str  # "compiled" or "loaded from disk"
    why_not_on_disk: str
    calls: int
    seconds: float
    like: bool  # a program that is alike was made before; `changes` is against it
    changes: list[Change]
    key: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Fallback:
    """An op that ran on the CPU."""

    step: int
    where: str
    op: str
    count: int


@dataclass(frozen=True)
class HostRead:
    """A value that the host read, and waited for."""

    step: int
    where: str
    type: str
    count: int


@dataclass(frozen=True)
class Explanation:
    """What the last steps did. Printing it gives a report; the lists are for programs."""

    steps: int
    flushes: list[Flush]
    compiles: list[Compile]
    fallbacks: list[Fallback]
    host_reads: list[HostRead]

    def as_dict(self) -> dict:
        """The same as dicts and lists."""
        return asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"The last {self.steps} steps, and what followed them:" if self.steps else "Since the start:"]
        lines += _section("flushes: recorded calls that ran together", [_flush_line(f) for f in self.flushes])
        lines += _section("programs that were not in memory", [_compile_lines(c) for c in self.compiles])
        lines += _section(
            "ops that ran on the CPU", [f"{_at(f.step, f.where)}  {f.op}{_times(f.count)}" for f in self.fallbacks]
        )
        lines += _section(
            "values that the host read", [f"{_at(r.step, r.where)}  {r.type}{_times(r.count)}" for r in self.host_reads]
        )
        return "\n".join(lines)


def explain(steps: int = 3) -> Explanation:
    """What the last ``steps`` steps and what followed them did: flushes, compiles, fallbacks, reads by the host.

    Each has the line of Python that caused it; a compile also says which part of the program's key changed, from
    what to what. A step ends with an optimizer's ``step()``; where none has, all is there. What is kept is
    bounded, some hundred events of each kind. ``print`` it, or read its lists.
    """
    ended, events = _C.journal()
    first = max(ended - steps, 0)
    found = Explanation(ended - first, [], [], [], [])
    keys: list[dict[str, str]] = []
    for e in events:
        key = e["parts"]
        if e["step"] >= first:
            _add(found, e, keys)
        if key:
            keys.append(key)
    return found


def _add(found: Explanation, e: dict, earlier: list[dict[str, str]]) -> None:
    at = {"step": e["step"], "where": e["where"]}
    if e["kind"] == "flush":
        found.flushes.append(
            Flush(**at, cause=e["what"], calls=e["calls"], how=e["note"], seconds=e["seconds"], count=e["count"])
        )
    elif e["kind"] == "fallback":
        found.fallbacks.append(Fallback(**at, op=e["what"], count=e["count"]))
    elif e["kind"] == "host_read":
        found.host_reads.append(HostRead(**at, type=e["what"], count=e["count"]))
    else:
        like = nearest(e["parts"], earlier)
        found.compiles.append(
            Compile(
                **at,
                source=e["what"],
                why_not_on_disk=e["note"],
                calls=e["calls"],
                seconds=e["seconds"],
                like=like is not None,
                changes=changes(like, e["parts"]) if like else [],
                key=e["parts"],
            )
        )


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", f"{title}: {len(lines) or 'none'}"] + ["  " + line for line in lines]


def _at(step: int, where: str) -> str:
    return f"step {step}, {where or 'no Python line (backward)'}:"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _flush_line(f: Flush) -> str:
    return f"{_at(f.step, f.where)}  {f.cause}: {f.calls} calls{_times(f.count)}, {f.how}, {f.seconds / f.count * 1e3:.1f} ms"


def _compile_lines(c: Compile) -> str:
    why = f", as {c.why_not_on_disk}" if c.why_not_on_disk else ""
    line = f"{_at(c.step, c.where)}  {c.calls} calls, {c.source} in {c.seconds * 1e3:.1f} ms{why}"
    if not c.like:
        return line + "\n      nothing like it was made before"
    if not c.changes:
        return line + "\n      made before, and no longer in memory"
    return line + "".join(f"\n      {change}" for change in c.changes)
