"""Prints, for CMake, where torch, pybind11 and the PJRT header are: three paths in a list.

Imports none of them: torch alone takes seconds.
"""

import importlib.util
import sys
from pathlib import Path


def folder(package: str, install: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"torch_tpu: the build needs the Python package {package}.\nInstall it: pip install {install}")
    return Path(next(iter(spec.submodule_search_locations)))


torch = folder("torch", "'torch==2.13.*'")
pybind11 = folder("pybind11", "pybind11") / "include"
pjrt = folder("xla_plugins", "xla-cpu-pjrt") / "xla_cpu_pjrt" / "include"
if not (pjrt / "pjrt_c_api.h").exists():
    sys.exit("torch_tpu: pjrt_c_api.h was not found.\nInstall its package: pip install xla-cpu-pjrt")
print(torch, pybind11, pjrt, sep=";")
