"""Which PJRT plugin a process uses, and what it says when there is none that works."""

from pathlib import Path

import pytest
import torch
from process import run_python

from tests.marks import needs_libtpu
from torch_tpu import _plugins

# Makes the device's first value, and prints what is said where no plugin can make it.
FIRST_USE = """
    import torch
    import torch_tpu
    {before}
    try:
        print(torch.ones(2, device="tpu").cpu().tolist())
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
INSTALLED = _plugins.installed(_plugins.CPU_PLUGINS)


def first_use(before: str = "", **environment: str) -> str:
    settings = {"TORCH_TPU_PJRT_PLUGIN": "", "TORCH_TPU_PLATFORM": ""}
    return run_python(FIRST_USE.format(before=before), **settings | environment)


def test_no_plugin_says_what_to_install():
    said = first_use("torch_tpu._C.set_plugin_candidates([], [])")
    assert "tpu: no PJRT plugin was found.\nInstall one: pip install xla-cpu-pjrt" in said
    assert "TORCH_TPU_PJRT_PLUGIN" in said


def test_a_path_that_is_missing_is_named():
    said = first_use(TORCH_TPU_PJRT_PLUGIN="/missing/plugin.so")
    assert "tpu: there is no PJRT plugin at /missing/plugin.so.\nSet TORCH_TPU_PJRT_PLUGIN" in said


def test_a_file_that_is_no_library_is_named(tmp_path):
    path = tmp_path / "plugin.so"
    path.write_text("not a library")
    said = first_use(TORCH_TPU_PJRT_PLUGIN=str(path))
    assert f"tpu: the PJRT plugin {path} does not load: " in said


def test_a_library_that_is_no_plugin_is_named():
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    said = first_use(TORCH_TPU_PJRT_PLUGIN=str(library))
    assert f"tpu: {library} is not a PJRT plugin: it has no function GetPjrtApi." in said


def test_a_device_count_that_is_no_number_is_refused():
    assert "TORCH_TPU_DEVICE_COUNT is many" in first_use(TORCH_TPU_DEVICE_COUNT="many")


def test_a_failure_is_said_again_at_the_next_use():
    said = run_python(
        """
        import torch, torch_tpu
        for _ in range(2):
            try:
                torch.ones(2, device="tpu").cpu()
            except RuntimeError as error:
                print("there is no PJRT plugin at" in str(error))
        """,
        TORCH_TPU_PJRT_PLUGIN="/missing/plugin.so",
    )
    assert said.split() == ["True", "True"]


@pytest.mark.parametrize("path", INSTALLED, ids=lambda path: Path(path).parent.name)
def test_the_environment_chooses_the_plugin(path):
    said = first_use("print(torch_tpu.plugin_path(), torch_tpu.platform())", TORCH_TPU_PJRT_PLUGIN=path)
    assert said.splitlines() == [f"{path} cpu", "[1.0, 1.0]"]


@pytest.mark.parametrize("path", INSTALLED, ids=lambda path: Path(path).parent.name)
def test_every_plugin_keeps_nan_in_maximum(path):
    said = run_python(
        """
        import torch, torch_tpu
        x = torch.tensor([1.0, float("nan"), 3.0])
        print(torch.maximum(x.to("tpu"), x.flip(0).to("tpu")).cpu().isnan().tolist(), x.to("tpu").amax().isnan().item())
        """,
        TORCH_TPU_PJRT_PLUGIN=path,
    )
    assert said == "[False, True, False] True"


@pytest.mark.parametrize("path", INSTALLED, ids=lambda path: Path(path).parent.name)
def test_every_plugin_is_quiet(path):
    # run_python gives stdout alone, so what the plugin prints is sent there.
    said = run_python(
        """
        import os
        os.dup2(1, 2)
        import torch, torch_tpu
        torch.ones(2, device="tpu").add(1).cpu()
        """,
        TORCH_TPU_PJRT_PLUGIN=path,
    )
    assert said == ""


def test_finding_plugins_imports_none_and_is_cheap():
    said = run_python(
        """
        import sys, time
        import torch  # loads torch_tpu by itself
        from torch_tpu import _plugins
        best = 1.0
        for _ in range(5):
            start = time.perf_counter()
            _plugins.candidates()
            best = min(best, time.perf_counter() - start)
        print(best < 0.003, [name for name, _ in _plugins.CPU_PLUGINS + _plugins.TPU_PLUGINS if name in sys.modules])
        """
    )
    assert said == "True []"


def test_no_plugin_is_loaded_by_the_import():
    said = run_python(
        """
        import torch, torch_tpu
        print([line for line in open("/proc/self/maps") if "pjrt" in line or "libtpu" in line])
        """
    )
    assert said == "[]"


@needs_libtpu
@pytest.mark.parametrize(
    ("worker", "platform"), [("0", "tpu"), ("WARNING: could not determine TPU worker number", "cpu")]
)
def test_a_worker_number_means_that_there_is_a_tpu(worker, platform):
    """Where there is none, libtpu puts a sentence there."""
    code = "import torch, torch_tpu; print(torch_tpu.platform())"
    settings = {"TORCH_TPU_PJRT_PLUGIN": "", "TORCH_TPU_PLATFORM": "", "TPU_WORKER_ID": worker}
    assert run_python(code, **settings) == platform
