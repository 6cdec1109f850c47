"""A child process that answers one JSON line for each JSON line it gets: a crash or a hang costs one request."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable


def serve(answer: Callable[[object], dict]) -> None:
    """The child's side: answers until stdin ends. What the work prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"status": "ready"}), file=out)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out)


class JsonWorker:
    """The parent's side. Starts the child at the first request, and again after it died."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        self._command = command
        self._environment = os.environ | environment
        self._process: subprocess.Popen | None = None

    def ask(self, request: object, timeout: float) -> dict:
        """The child's answer, or one whose ``status`` is ``crash`` or ``hang``, with ``why``."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self._environment,
            )
            started = self._answer(300)
            if started["status"] != "ready":
                raise RuntimeError(f"{' '.join(self._command)} does not start: {started['why']}")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer(timeout)

    def _answer(self, timeout: float) -> dict:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            silent = not selector.select(timeout)
        if silent:
            self._process.kill()
        line = "" if silent else self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._process = None
        if silent:
            return {"status": "hang", "why": f"no answer in {timeout:.0f} s"}
        return {"status": "crash", "why": f"the process ended with status {status}"}

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None
