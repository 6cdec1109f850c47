"""JAX functions and Pallas kernels as ops. Kernels compile ahead of time; functions without any also run here."""

import pytest
import torch
import torch.nn.functional as F

from tests.marks import needs_libtpu
from torch_tpu import aot
from torch_tpu.aot.check import judge
from torch_tpu.aot.compiler import Compiler
from torch_tpu.aot.steps import everything

jax = pytest.importorskip("jax")
from torch_tpu import pallas  # noqa: E402


def double(x):
    from jax.experimental import pallas as jax_pallas

    def kernel(given, out):
        out[...] = given[...] * 2

    return jax_pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def wave(x, y):
    return jax.numpy.sin(x) @ y, jax.nn.softmax(x)


def test_a_jax_function_is_an_op_with_a_gradient():
    torch.manual_seed(0)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    there = [t.detach().to("tpu").requires_grad_() for t in (x, y)]
    product, shares = pallas.call(wave, *there)
    torch.testing.assert_close(product.cpu(), x.sin() @ y)
    torch.testing.assert_close(shares.cpu(), x.softmax(-1))
    (product.sum() + shares.square().sum()).backward()
    ((x.sin() @ y).sum() + x.softmax(-1).square().sum()).backward()
    for a, e in zip(there, (x, y), strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-5)


def test_one_function_serves_views_that_differ():
    x = torch.randn(4, 4)
    there = x.to("tpu")
    total = pallas.call(wave, there, there)[0] + pallas.call(wave, there.t(), there)[0]
    torch.testing.assert_close(total.cpu(), x.sin() @ x + x.t().sin() @ x, rtol=1e-4, atol=1e-5)


def test_a_kernel_without_a_tpu_is_refused_with_what_to_do():
    with pytest.raises(NotImplementedError, match="otherwise=function"):
        pallas.call(double, torch.ones(8, 128, device="tpu")).cpu()


def test_a_registered_op_takes_its_other_form_here_and_its_kernel_in_a_check():
    with torch.library._scoped_library("pallas_test", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        pallas.register("pallas_test::double", double, otherwise=lambda x: x + x)
        assert torch.ops.pallas_test.double(torch.ones(8, 128, device="tpu")).sum().item() == 2 * 8 * 128
        with aot.topology("v6e") as recording:
            held = torch.ops.pallas_test.double(torch.ones(8, 128, device="tpu"))
            recording.cut()
            del held
    assert any("@tpu_custom_call" in p.module for p in recording.programs)


def test_attention_keeps_its_form_where_there_is_no_tpu():
    query = torch.randn(1, 1, 128, 128)
    with pallas.flash_attention():
        out = F.scaled_dot_product_attention(*[query.to("tpu")] * 3)
    torch.testing.assert_close(out.cpu(), F.scaled_dot_product_attention(query, query, query), rtol=1e-4, atol=1e-5)


def attend(length=1024):
    with aot.topology("v6e") as recording, pallas.flash_attention():
        q = torch.empty(1, 8, length, 128, dtype=torch.bfloat16, device="tpu").requires_grad_()
        k = torch.empty(1, 2, length, 128, dtype=torch.bfloat16, device="tpu").requires_grad_()
        F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum().backward()
        recording.cut()
    return recording


def test_flash_attention_is_kernels_forward_and_backward():
    (program,) = attend().programs
    assert program.module.count("@tpu_custom_call") == 3  # forward; keys' and values' gradients; the query's
    assert "1024x1024" not in program.module


@needs_libtpu
def test_the_time_of_kernels_is_of_what_they_do():
    recording = attend()
    with Compiler() as compiler:
        report = judge("", recording, everything(recording), [recording.target], compiler, "quick", 0)
    time = report.targets[0].steps[0].time
    # Nine products of three blocks of four, forward and backward.
    assert time.flops == 9 * 3 * 8 * (2 * 512 * 512 * 128)
    assert "tpu_custom_call" not in time.uncosted_calls


@needs_libtpu
@pytest.mark.slow
def test_flash_attention_compiles_ahead_of_time():
    recording = attend()
    with Compiler() as compiler:
        report = judge("", recording, everything(recording), [recording.target], compiler, "full", 0)
    (step,) = report.targets[0].steps
    assert step.verdict == "ok", step.message
    assert step.time.flops == 9 * 3 * 8 * (2 * 512 * 512 * 128)
