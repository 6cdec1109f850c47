"""What a check refuses to do, in a sentence, and what to do instead."""


class CheckError(RuntimeError):
    """A mistake of the user's, or something that is missing: ``what`` happened, and the ``advice``."""

    def __init__(self, what: str, advice: str = ""):
        super().__init__(f"{what}\n{advice}" if advice else what)
        self.what = what
        self.advice = advice

    def __reduce__(self) -> tuple:
        return type(self), (self.what, self.advice)


class CompilerError(CheckError):
    """The TPU compiler refused a program. ``kind``: ``oom``, ``refused`` or ``crashed``."""

    def __init__(self, kind: str, what: str, advice: str = ""):
        super().__init__(what, advice)
        self.kind = kind

    def __reduce__(self) -> tuple:
        return type(self), (self.kind, self.what, self.advice)


def first_line(error: Exception | str) -> str:
    """What an error of someone else's, or its text, says first."""
    return next(iter(str(error).strip().splitlines()), "")
