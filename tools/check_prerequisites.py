"""Checks what the build needs and pip cannot install; names each missing thing with its command.

Runs in the system's Python, so it keeps to what old ones know.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

VERSION = "{}.{}".format(*sys.version_info)
PROGRAM = "#include <version>\n#if __cplusplus < 202002L\n#error\n#endif\nint main() { return 0; }\n"


def installer():
    """The command of this system's package manager, and how it names a development package."""
    if sys.platform == "darwin":
        return "brew install {}", {}
    for tool, names in (
        ("apt-get", {"compiler": "g++", "venv": "python3-venv", "headers": "python3-dev"}),
        ("dnf", {"compiler": "gcc-c++", "venv": "python3", "headers": "python3-devel"}),
        ("zypper", {"compiler": "gcc-c++", "venv": "python3", "headers": "python3-devel"}),
        ("pacman", {"compiler": "gcc", "venv": "python", "headers": "python"}),
    ):
        if shutil.which(tool):
            verb = "-S" if tool == "pacman" else "install"
            return "sudo {} {} {{}}".format(tool, verb), names
    return "install {} with your system's package manager", {}


def compiles():
    """True if the C++ compiler takes C++20."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "program.cpp")
        with open(source, "w") as file:
            file.write(PROGRAM)
        command = [*compiler.split(), "-std=c++20", "-c", source, "-o", os.path.join(folder, "program.o")]
        try:
            return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
        except OSError:
            return False


def has_venv():
    """True if `python -m venv` can make an environment with pip in it."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return False
    return True


def main():
    command, names = installer()
    missing = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        missing.append("Python 3.11 to 3.13 (this is {}): name one with make PYTHON=python3.12 ...".format(VERSION))
    if not has_venv():
        missing.append("Python's venv module: " + command.format(names.get("venv", "python3-venv")))
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        missing.append("Python's headers: " + command.format(names.get("headers", "python3-dev")))
    if not compiles():
        missing.append(
            "a C++20 compiler (g++ 11 or clang 14, or newer): " + command.format(names.get("compiler", "g++"))
        )
    if missing:
        sys.exit("torch_tpu: missing, with the command that installs it:\n  " + "\n  ".join(missing))


main()
