"""Prints what pyproject.toml requires, a requirement a line: the build's, or those of the extra given."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
extra = sys.argv[1] if len(sys.argv) > 1 else None
requires = project["project"]["optional-dependencies"][extra] if extra else project["build-system"]["requires"]
print(*requires, sep="\n")
