"""Mixed precision: which ops run in which dtype, the weight cache, GradScaler."""

import threading

import pytest
import torch


def test_bfloat16_is_the_default_in_every_thread():
    dtypes = []

    def run():
        with torch.autocast("tpu"):
            dtypes.append((torch.ones(2, 2, device="tpu") @ torch.ones(2, 2, device="tpu")).dtype)

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert dtypes == [torch.bfloat16, torch.bfloat16]
    assert torch.get_autocast_dtype("tpu") == torch.bfloat16


def test_each_list_is_followed():
    x = torch.rand(4, 4, device="tpu") + 0.5
    low = x.bfloat16()
    layer = torch.nn.Linear(4, 4).to("tpu")
    with torch.autocast("tpu"):
        assert torch.is_autocast_enabled("tpu")
        assert layer(x).dtype == torch.bfloat16
        assert torch.einsum("ij,jk->ik", x, x).dtype == torch.bfloat16
        assert torch.nn.functional.conv1d(x[None], x[None]).dtype == torch.bfloat16
        assert torch.log(low).dtype == torch.float32
        assert torch.nn.functional.mse_loss(low, low).dtype == torch.float32
        assert torch.softmax(low, -1).dtype == torch.float32
        assert low.sum().dtype == torch.float32
        assert torch.softmax(low, -1, dtype=torch.bfloat16).dtype == torch.bfloat16
        assert torch.norm(low).dtype == torch.float32
        assert torch.norm(low, 2, 1).dtype == torch.float32
        assert torch.addcmul(x, low, low).dtype == torch.float32
        assert torch.addcmul(low, low, low).dtype == torch.bfloat16
        assert (x + x).dtype == torch.float32
        assert (x.double() @ x.double()).dtype == torch.float64
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        with torch.autocast("tpu", enabled=False):
            assert layer(x).dtype == torch.float32
    assert layer(x).dtype == torch.float32
    with torch.autocast("tpu", dtype=torch.float16):
        assert layer(x).dtype == torch.float16


def test_gradients_have_the_parameters_dtype():
    layer = torch.nn.Linear(8, 1).to("tpu")
    reference = torch.nn.Linear(8, 1)
    reference.load_state_dict(layer.state_dict())
    x = torch.randn(16, 8)
    with torch.autocast("tpu"):
        loss = torch.nn.functional.mse_loss(layer(x.to("tpu")), torch.ones(16, 1, device="tpu"))
    loss.backward()
    torch.nn.functional.mse_loss(reference(x), torch.ones(16, 1)).backward()
    assert layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(layer.weight.grad.cpu(), reference.weight.grad, rtol=0.05, atol=0.05)


def test_an_unsafe_loss_is_refused():
    p = torch.full((2,), 0.5, device="tpu")
    with torch.autocast("tpu"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        torch.nn.functional.binary_cross_entropy(p, p)


@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler("tpu"), lambda: torch.tpu.amp.GradScaler()])
def test_grad_scaler_skips_a_step_with_inf(make):
    scaler = make()
    weight = torch.nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scale = scaler.get_scale()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0] and scaler.get_scale() == scale
    optimizer.zero_grad()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0] and scaler.get_scale() == scale / 2


def test_the_short_names_work():
    x = torch.ones(2, 2, device="tpu")
    with torch.tpu.amp.autocast():
        assert (x @ x).dtype == torch.bfloat16
    assert torch.tpu.is_bf16_supported()
    assert torch.tpu.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
