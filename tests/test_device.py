"""Devices: counting, choosing, naming, and errors that name what is wrong."""

import pytest
import torch

import torch_tpu
from tests.process import run_python


def test_there_is_a_device():
    assert torch.tpu.is_available()
    assert torch.tpu.device_count() >= 1
    assert torch.tpu.current_device() == 0


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(RuntimeError, match=r"tpu: no device tpu:99"):
        torch.tpu.set_device(99)
    with pytest.raises(RuntimeError, match="tpu:99"):
        torch.ones(1, device="tpu:99").cpu()
    assert torch.ones(1, device="tpu").item() == 1


def test_another_kind_of_device_is_refused():
    with pytest.raises(ValueError, match="Expected a tpu device"):
        torch.tpu.set_device("cpu")


def test_the_device_has_a_name_and_properties():
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name("tpu:0") != ""
    assert properties.platform == torch_tpu.platform()
    assert properties.total_memory > 2**28
    assert torch_tpu.plugin_path().endswith(".so")


def test_the_cpu_plugin_does_not_pose_as_a_tpu():
    if torch_tpu.platform() == "cpu":
        assert "tpu" not in torch.tpu.get_device_name().lower()


def test_eight_devices_of_the_cpu_plugin():
    code = """
        import torch
        assert torch.tpu.device_count() == torch.accelerator.device_count() == 8
        x = torch.ones(2, device="tpu:7")
        with torch.tpu.device("tpu:3"):
            assert torch.tpu.current_device() == 3 == torch.accelerator.current_device_index()
            y = torch.ones(2, device="tpu")
            with torch.tpu.device_of(x):
                assert torch.ones(1, device="tpu").device.index == 7
        assert y.device.index == 3 and torch.tpu.current_device() == 0
        torch.tpu.set_device(5)
        with torch.accelerator.device_index(2):
            assert torch.tpu.current_device() == 2
        assert torch.ones(2).tpu().device.index == 5
        assert torch.ones(2).to("tpu").device.index == 5
        assert (x.to("tpu:3") + y).tolist() == [2, 2]
        try:
            x + y
        except RuntimeError as error:
            assert "tpu:7" in str(error) and "tpu:3" in str(error), error
        else:
            raise AssertionError
        assert (y + 1).tolist() == [2, 2]
        print("done")
    """
    assert run_python(code, TORCH_TPU_DEVICE_COUNT="8", TORCH_TPU_PLATFORM="cpu") == "done"


def test_backward_works_after_a_cpu_backward():
    code = """
        import torch
        torch.ones(2, requires_grad=True).sum().backward()
        x = torch.ones(2, device="tpu:1", requires_grad=True)
        (x * x).sum().backward()
        print(x.grad.tolist())
    """
    assert run_python(code, TORCH_TPU_DEVICE_COUNT="2", TORCH_TPU_PLATFORM="cpu") == "[2.0, 2.0]"


def test_the_current_device_belongs_to_its_thread():
    code = """
        import threading, torch
        torch.tpu.set_device(1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_device()))
        thread.start(); thread.join()
        print(seen, torch.tpu.current_device())
    """
    assert run_python(code, TORCH_TPU_DEVICE_COUNT="2", TORCH_TPU_PLATFORM="cpu") == "[0] 1"


def test_default_device_can_be_tpu():
    code = """
        import torch
        torch.set_default_device("tpu")
        print(torch.ones(2).device, torch.nn.Linear(2, 2).weight.device, torch.tensor([1]).device)
    """
    assert run_python(code) == "tpu:0 tpu:0 tpu:0"


def test_host_formats_need_a_copy():
    x = torch.ones(2, device="tpu")
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        x.numpy()
    assert x.cpu().numpy().tolist() == [1, 1]
    assert "device='tpu:0'" in repr(x)
    assert [float(v) for v in x] == [1, 1] and f"{x[0]:.1f}" == "1.0" and bool(x[0])
    assert x.type() == "torch.tpu.FloatTensor" and x.is_tpu and x.get_device() == 0


def test_dlpack_shares_within_pytorch():
    x = torch.zeros(2, device="tpu")
    alias = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    del x
    alias += 1
    assert alias.device.type == "tpu" and alias.tolist() == [1, 1]
