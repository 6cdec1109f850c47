"""Runs code in a fresh Python: for tests of what happens at import, in a fork, or under other settings."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_python(code: str, timeout: float = 120, **environment: str) -> str:
    """What ``code`` prints. Fails with its output if it does not exit with 0."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
