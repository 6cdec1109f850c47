"""The TPU compiler in a child process: libtpu needs no TPU to compile, but must not meet the user's program."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from multiprocessing.connection import Pipe
from typing import Any, Literal

from torch_tpu import _plugins
from torch_tpu.aot import answers
from torch_tpu.aot.errors import CheckError, CompilerError, first_line
from torch_tpu.aot.hardware import Slice

Depth = Literal["quick", "full"]

# libtpu asks a metadata server, takes a machine-wide lock and logs, unless it is told not to.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v6e-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TORCH_TPU_PLATFORM": "cpu",
}


# How programs of several devices are compiled. By default the compiler breaks a product whose operand is gathered into
# as many small ones as there are devices, and on square slices sums up whole gradients where each device needs a part.
# What LIBTPU_INIT_ARGS says of one goes first.
_SHARED = {
    "xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000",
    "xla_tpu_enable_sparse_core_collective_offload_nd_reduce_scatter": "true",
}
# On chips with SparseCores, which then gather and sum up while the TensorCores compute; by default only Ironwood's do.
_SPARSE_CORES = {
    "xla_tpu_enable_sparse_core_collective_offload_all_gather": "true",
    "xla_tpu_enable_sparse_core_collective_offload_2d_all_gather": "true",
    "xla_tpu_enable_sparse_core_collective_offload_3d_all_gather": "true",
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": "true",
    "xla_tpu_enable_sparse_core_offload_queuing_in_lhs": "true",
}


def _shared_options(target: Slice, partitions: int) -> dict[str, str]:
    if partitions == 1:
        return {}
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    options = _SHARED | (_SPARSE_CORES if target.chip.sparse_cores else {})
    return {name: value for name, value in options.items() if not re.search(rf"--{name}(?![\w])", given)}


def libtpu_path() -> str:
    """Where libtpu is. Raises CheckError if it is not installed."""
    given = os.environ.get("TORCH_TPU_AOT_PLUGIN")
    found = [given] if given else _plugins.installed(_plugins.TPU_PLUGINS)
    if not found or not os.path.isfile(found[0]):
        raise CheckError(
            "libtpu, which holds the TPU compiler, is not installed.", "Install it: pip install 'torch_tpu[check]'"
        )
    return found[0]


def libtpu_version() -> str:
    try:
        return metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        return "unknown"


def _sentence(stderr: str, code: int) -> str:
    """Why a process died: the check that failed, its last words, or the signal."""
    lines = [re.sub(r"^[FEWI]\d+ [\d:.]+\s+\d+ ", "", line.strip()) for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if "RAW: " not in line and not line.startswith(("***", "@", "PC:"))]
    for line in lines:
        if "Check failed" in line or "Unknown" in line:
            return line
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return f"{how}: {lines[-1]}" if lines else how


class Compiler:
    """A child process with libtpu. Started at the first request, again after a crash. Use as a context manager."""

    def __init__(self, timeout: float = 1800, environment: dict[str, str] | None = None):
        self._timeout = timeout
        self._environment = environment or {}
        self._process: subprocess.Popen | None = None
        self._connection: Any = None
        self._stderr: Any = None

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the child without waiting for it, so that libtpu loads while the user's program runs."""
        if self._process is not None:
            return
        libtpu_path()
        self._connection, theirs = Pipe()
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        environment = os.environ | _ENVIRONMENT | self._environment
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch_tpu.aot._child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment,
        )
        theirs.close()

    def close(self) -> None:
        if self._process is None:
            return
        self._connection.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
        self._process = None

    def _ask(self, request: dict) -> dict:
        self.start()
        deadline = time.monotonic() + self._timeout
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(request)
        while not self._connection.poll(0.2):
            if self._process.poll() is not None and not self._connection.poll(0):
                self._crashed()
            if time.monotonic() > deadline:
                self._process.kill()
                self.close()
                raise CompilerError(
                    "crashed",
                    f"The TPU compiler took more than {self._timeout:.0f} s.",
                    "Give it longer: --timeout SECONDS.",
                )
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._crashed()

    def _crashed(self) -> None:
        code = self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read()
        self.close()
        raise CompilerError("crashed", f"The TPU compiler crashed: {_sentence(said, code)}")

    def describe(self, target: Slice) -> dict:
        """``devices``: (kind, attributes) of each; ``has_phases``: whether the quick depth is there."""
        reply = self._ask({"verb": "describe", "topology": target.name, "options": list(target.chip.topology_options)})
        if "error" in reply:
            raise CheckError(f"libtpu knows no topology {target.name}: {first_line(_plain(reply['error']))}")
        return reply

    def compile(
        self,
        module: str,
        target: Slice,
        depth: Depth = "quick",
        partitions: int = 1,
        flags: dict[str, str] | None = None,
    ) -> dict:
        """Compiles a StableHLO module for one device of ``target``, or for ``partitions`` of them as one SPMD program.

        Quick: ``programs``, serialized PjRtPartialProgramProtos of the compiler's first phase. Full: ``format``,
        ``program`` (serialized HLO) and ``memory``. Both: ``seconds``. Raises CompilerError.
        """
        request = {
            "verb": "compile",
            "topology": target.name,
            "options": list(target.chip.topology_options),
            "module": module,
            "depth": depth,
            "partitions": partitions,
            "flags": list((_shared_options(target, partitions) | (flags or {})).items()),
        }
        version = f"{libtpu_version()} {os.environ.get('LIBTPU_INIT_ARGS', '')}"
        # A flag may ask for files to be written, which an answer does not hold.
        reply = answers.find(request, version) if not flags else None
        if reply is None:
            reply = self._ask(request)
            if not flags and "error" not in reply:
                answers.keep(request, version, reply)
        if depth == "quick" and "Failed to parse message of type" in reply.get("error", ""):
            # The phase takes text that is no StableHLO for another format, and says nothing about it.
            return self.compile(module, target, "full", partitions, flags)
        if "error" in reply:
            oom = reply["type"] == "OutOfMemoryError" or "HbmOom" in reply["error"]
            raise CompilerError("oom" if oom else "refused", _plain(reply["error"]))
        return reply


def _plain(error: str) -> str:
    """The compiler's words without ours around them."""
    text = re.sub(r"^tpu: \w+ failed: ", "", error)
    return text.split("\nThe device has no room for this.")[0].strip()
