"""Which of a recording's programs are the work of one step, and how often each runs in it."""

from collections import Counter
from dataclasses import dataclass

from torch_tpu.aot.recording import Program, Recording

FORWARD = "forward"  # among the ends of a recording's steps: a model's forward without gradients


@dataclass(frozen=True)
class Step:
    """What a report is about."""

    what: str  # "a training step", "a call", "what came again", "the script", "the module"
    programs: list[Program]
    runs: list[int]  # by program

    @property
    def is_one(self) -> bool:
        """Whether it is one step, so that its programs' times add up."""
        return self.what in ("a training step", "a call")


def step_between(recording: Recording, what: str, first: int, last: int) -> Step:
    """The programs of these runs of the recording, each once."""
    counts = Counter(recording.order[first:last])
    return Step(what, [recording.programs[i] for i in counts], list(counts.values()))


def training_ends(recording: Recording) -> list[int]:
    """Where the training steps ended: those of the optimizer that stepped most, the last of several."""
    ends = [ends for what, ends in recording.ends.items() if what != FORWARD]
    return max(ends, key=lambda e: (len(e), e[-1]), default=[])


def step_of_script(recording: Recording) -> Step:
    """A script's last training step, from one step of an optimizer to its next: other optimizers' steps are in between.

    Of a script that trains one step or none: the programs that came again, else all that take arrays, else all.
    """
    ends = training_ends(recording)
    if len(ends) > 1:
        return step_between(recording, "a training step", ends[-2], ends[-1])
    programs = [p for p in recording.programs if not p.is_setup] or recording.programs
    again = [p for p in programs if p.runs > 1] if not ends else []
    chosen = again or programs
    return Step("what came again" if again else "the script", chosen, [p.runs for p in chosen])
