"""What a check refuses to do, in a sentence, and what to do instead."""


class CheckError(RuntimeError):
    """A mistake of the user's, or something that is missing: ``what`` happened, and the ``advice``."""

    def __init__(self, what: str, advice: str = ""):
        super().__init__(f"{what}\n{advice}" if advice else what)
        self.what = what
        self.advice = advice


class CompilerError(CheckError):
    """The TPU compiler refused a program. ``kind``: ``oom``, ``refused`` or ``crashed``."""

    def __init__(self, kind: str, what: str, advice: str = ""):
        super().__init__(what, advice)
        self.kind = kind
