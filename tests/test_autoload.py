"""``import torch`` alone makes the device valid, in either import order, at little cost."""

from tests.process import run_python

# CPU seconds and MiB that loading the backend adds to `import torch`.
COST = """
    import os, time
    import torch
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    start, before = time.process_time(), resident()
    torch._import_device_backends()
    print(time.process_time() - start, resident() - before)
"""


def test_import_torch_is_enough():
    assert run_python("import torch; print(torch.ones(2, device='tpu').sum().item())") == "2.0"


def test_importing_torch_tpu_first_works():
    out = run_python("import torch_tpu, torch; print(torch_tpu.__version__, torch.zeros(1, device='tpu').device)")
    assert out.endswith("tpu:0")


def test_it_works_when_autoload_is_off():
    code = "import torch_tpu, torch; print(torch.zeros(1, device='tpu').device)"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "tpu:0"


def test_autoload_can_be_turned_off():
    code = "import torch; print(torch._C._get_privateuse1_backend_name(), hasattr(torch, 'tpu'))"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "privateuseone False"


def test_importing_opens_no_device_and_loads_no_plugin():
    code = """
        import torch, sys
        torch.manual_seed(0); torch.tpu.is_available(); torch.tpu.current_device(); torch.device("tpu:0")
        maps = open("/proc/self/maps").read()
        print(torch.tpu.is_initialized(), "pjrt" in maps, "jax" in sys.modules)
    """
    assert run_python(code) == "False False False"


def test_autoload_costs_little():
    runs = [run_python(COST, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in runs) < 0.15
    assert min(float(megabytes) for _, megabytes in runs) < 30


def test_the_device_module_can_be_imported():
    run_python(
        "import torch, torch.tpu, torch.tpu.random; assert torch.tpu.random is torch.tpu.memory.__class__ or True"
    )
    assert run_python("import torch; print(torch.get_device_module('tpu') is torch.tpu)") == "True"


def test_tensors_and_modules_have_their_methods():
    code = """
        import torch
        t = torch.ones(2).tpu()
        m = torch.nn.Linear(2, 2).tpu()
        s = torch.ones(2).untyped_storage().tpu()
        print(t.is_tpu, t.cpu().is_tpu, m.weight.device, s.device, t.dtype)
    """
    assert run_python(code) == "True False tpu:0 tpu:0 torch.float32"


def test_another_torch_is_named_before_the_core_loads():
    code = """
        import sys, torch
        torch.__version__ = "2.12.0"
        sys.modules["torch_tpu._C"] = None  # built for 2.13, it would not load
        try:
            torch._import_device_backends()
        except RuntimeError as error:
            print(error.__cause__)
    """
    out = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "built for torch 2.13.*: got torch 2.12.0" in out
