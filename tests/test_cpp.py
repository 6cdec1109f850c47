"""The C++ tests (the *_test.cpp files of csrc): built and run where GoogleTest is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT
from torch_tpu import _C

BUILD = ROOT / "build"


@pytest.mark.slow
def test_the_cpp_tests_pass():
    ninja = shutil.which("ninja", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if ninja is None or not (BUILD / "build.ninja").exists():
        pytest.skip("the core was not built in this folder")
    if re.search(r"^build cpp_tests:", (BUILD / "build.ninja").read_text(), re.M) is None:
        pytest.skip("GoogleTest is not installed (apt install libgtest-dev, then make build)")
    made = subprocess.run([ninja, "-C", BUILD, "cpp_tests"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    # As many devices as client_test.cpp asks for, whichever test opens the client.
    environment = os.environ | {"TORCH_TPU_PJRT_PLUGIN": _C.plugin_path(), "TORCH_TPU_DEVICE_COUNT": "8"}
    done = subprocess.run([BUILD / "cpp_tests"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\[  PASSED  \] \d+ tests", done.stdout), done.stdout
