"""Ahead of time: runs user code without data, and asks the real TPU compiler about it, with no TPU.

``topology`` records what code would run; ``check`` says whether it would run, fit, and how fast.
"""

from torch_tpu.aot.check import check
from torch_tpu.aot.errors import CheckError, CompilerError
from torch_tpu.aot.recording import Finding, Program, Recording, topology
from torch_tpu.aot.report import Report

__all__ = ["CheckError", "CompilerError", "Finding", "Program", "Recording", "Report", "check", "topology"]
