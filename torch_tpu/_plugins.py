"""Finds the PJRT plugins that are installed, without importing or loading any.

Cheap enough for ``import torch``: it only asks where packages are. Which of them a process uses is decided by
``csrc/pjrt/plugin.cpp``; the order of the CPU plugins is explained in ``docs/decisions/0001-default-cpu-plugin.md``.
"""

import importlib.machinery
import os
import sys

# (package, the plugin inside it), best first.
CPU_PLUGINS = (
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("xla_plugins", "xla_cpu_pjrt/xla_cpu_pjrt.so"),
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
)
TPU_PLUGINS = (("libtpu", "libtpu.so"),)


def candidates() -> tuple[list[str], list[str]]:
    """The paths of the installed CPU plugins and of the installed TPU plugins, each best first."""
    return installed(CPU_PLUGINS), installed(TPU_PLUGINS)


def installed(plugins: tuple[tuple[str, str], ...]) -> list[str]:
    paths = []
    for package, inside in plugins:
        # PathFinder, not importlib.util.find_spec: that runs the finders which other packages have installed.
        spec = importlib.machinery.PathFinder.find_spec(package, sys.path)
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            path = os.path.join(folder, inside)
            if os.path.isfile(path):
                paths.append(path)
                break
    return paths
