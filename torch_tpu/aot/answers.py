"""The compiler's answers on disk: the same program for the same slice is compiled once by all processes of a user.

Safe to share between processes: a file is written aside and renamed. A damaged file counts as absent.
``TORCH_TPU_CHECK_CACHE`` names another folder; empty, it turns the cache off.
"""

import contextlib
import hashlib
import io
import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 30


class _Plain(pickle.Unpickler):
    """Loads what is made of dicts, lists, numbers and bytes, as answers are; runs no code of a file's choice."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"an answer holds {module}.{name}")


def _folder() -> Path | None:
    given = os.environ.get("TORCH_TPU_CHECK_CACHE")
    if given is not None:
        return Path(given) if given else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_tpu" / "check"


def _path(request: dict[str, Any], compiler: str) -> Path | None:
    folder = _folder()
    key = json.dumps([1, compiler, request], sort_keys=True).encode()
    return folder / hashlib.sha256(key).hexdigest() if folder else None


def find(request: dict[str, Any], compiler: str) -> dict[str, Any] | None:
    """The answer to a request, if this compiler gave it before."""
    path = _path(request, compiler)
    if path is None or not path.is_file():
        return None
    try:
        data = path.read_bytes()
        checksum, answer = data[:32], data[32:]
        return _Plain(io.BytesIO(answer)).load() if hashlib.sha256(answer).digest() == checksum else None
    except (OSError, pickle.UnpicklingError):
        return None


def keep(request: dict[str, Any], compiler: str, answer: dict[str, Any]) -> None:
    """Writes an answer, and drops the oldest where there are too many. A disk that refuses is left alone."""
    path = _path(request, compiler)
    if path is None:
        return
    data = pickle.dumps(answer)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as aside:
            aside.write(hashlib.sha256(data).digest() + data)
        os.replace(aside.name, path)
        files = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in path.parent.iterdir())
        total = sum(size for _, size, _ in files)
        for _, size, file in files:
            if total <= _MOST_BYTES:
                break
            file.unlink(missing_ok=True)
            total -= size
