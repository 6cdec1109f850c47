"""Which programs a run would compile, in which step, and what makes one that comes later another than those before.

A program is told from others by its calls, types and dimensions, as in eager mode; what differs is said in the words of
``torch_tpu.explain()``.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch_tpu._keys import Change, changes, nearest
from torch_tpu.aot.recording import Program, Recording
from torch_tpu.aot.sharding.text import places_of
from torch_tpu.aot.steps import FORWARD, training_ends

_CALL = re.compile(r'"func\.call"\(.*callee = @(\w+)\}>.* loc\((#\w+)\)$', re.MULTILINE)
_NUMBERED = re.compile(r"_\d+(?=[(}])")


@dataclass(frozen=True)
class Later:
    """A program that comes up after the first step."""

    step: int  # in which it comes first
    ended_by: str
    calls: int
    changes: list[Change]  # since the program before that is most like it; empty: none is alike
    state: list[str]  # of the optimizer, that it takes and that one did not: "exp_avg"
    where: str  # the Python line of the first call that differs

    @property
    def is_of_a_size(self) -> bool:
        """Whether it has the calls of the one before, on arrays of other sizes."""
        return bool(self.changes) and self.changes[0].part.startswith(("input ", "result "))


@dataclass(frozen=True)
class Compiles:
    first_step: int  # programs that come up until the end of the first step, set-up included
    later: list[Later]


def compiles_of(recording: Recording) -> Compiles:
    """Steps are an optimizer's, or forwards without gradients where nothing trains."""
    ends = training_ends(recording)
    if not ends:
        # A forward's last program runs after its end, when something is read.
        ends = [end + 1 for end in recording.ends.get(FORWARD, [])] or [len(recording.order)]
    first_runs = {program: run for run, program in reversed(list(enumerate(recording.order)))}
    keys = [p.parts | {"text": str(i)} for i, p in enumerate(recording.programs)]
    first_step, later = 0, []
    for i, program in enumerate(recording.programs):
        step = bisect.bisect_right(ends, first_runs[i]) + 1
        if step == 1:
            first_step += 1
            continue
        like = nearest(keys[i], keys[:i])
        before = recording.programs[int(like["text"])] if like else None
        later.append(
            Later(
                step,
                program.ended_by,
                sum(sum(lines.values()) for lines in program.rows.values()),
                changes(like, keys[i]) if like else [],
                sorted(_state(program) - _state(before)) if before else [],
                _first_difference(before.module, program.module) if before else "",
            )
        )
    return Compiles(first_step, later)


def _state(program: Program) -> set[str]:
    """The kinds of optimizer state among its arguments."""
    return {kind for a in program.arguments for kind, of, _ in [a.name.partition(" of ")] if of and kind != "gradient"}


def _calls(module: str) -> Iterator[tuple[str, str]]:
    """(what it computes, location) of each call of @main."""
    main, *functions = module.split("func.func private @")
    bodies = {f[: f.index("(")]: _NUMBERED.sub("", f) for f in functions}
    for callee, location in _CALL.findall(main):
        yield bodies.get(callee, callee), location


def _first_difference(before: str, after: str) -> str:
    earlier = _calls(before)
    for body, location in _calls(after):
        if body != next(earlier, ("", ""))[0]:
            return places_of(after).get(location, ("", ""))[1]
    return ""
