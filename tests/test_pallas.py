"""JAX functions and Pallas kernels as ops. Kernels compile ahead of time; functions without any also run here."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.decoder import Decoder
from tests.marks import needs_libtpu
from tests.process import run_python
from torch_tpu import aot
from torch_tpu.aot.check import judge
from torch_tpu.aot.compiler import Compiler
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.script import record
from torch_tpu.aot.steps import step_between

jax = pytest.importorskip("jax")
from torch_tpu import pallas  # noqa: E402
from torch_tpu.pallas.attention import splash  # noqa: E402


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


@pytest.mark.parametrize(
    ("dtype", "causal", "rows", "keys"),
    [(torch.float32, True, 256, 256), (torch.float32, False, 256, 384), (torch.bfloat16, True, 1280, 1280)],
)
def test_the_kernels_numbers_are_attentions(dtype, causal, rows, keys):
    torch.manual_seed(0)
    shapes = [(2, 4, rows, 128), (2, 2, keys, 128), (2, 2, keys, 128)]
    here = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    expected = F.scaled_dot_product_attention(*here, is_causal=causal, enable_gqa=True)
    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    there = [t.detach().to("tpu").requires_grad_() for t in here]
    interpreted = splash(4, 2, rows, keys, causal, 128**-0.5, interpret=True)
    out = pallas.call(interpreted, *there, independent=2)
    out.backward(gradient.to("tpu"))
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 3e-2}
    torch.testing.assert_close(out.cpu(), expected, **near)
    for a, e in zip(there, here, strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad, **near)


def query_and_key(length, batch=1):
    shapes = [(batch, 8, length, 128), (batch, 2, length, 128)]
    return [torch.empty(shape, dtype=torch.bfloat16, device="tpu").requires_grad_() for shape in shapes]


def attention(q, k):
    return F.scaled_dot_product_attention(2 * q, k, k, is_causal=True, enable_gqa=True)


def attend(length=1024, again=False, batch=1, **parts):
    with aot.topology("v6e", **parts) as recording, pallas.flash_attention():
        q, k = query_and_key(length, batch)
        out = checkpoint(attention, q, k, use_reentrant=False) if again else attention(q, k)
        out.sum().backward()
        recording.cut()
    return recording


@pytest.mark.parametrize("again", [False, True], ids=["kept", "computed again"])
def test_flash_attention_is_a_kernel_forward_and_one_backward(again):
    (program,) = attend(again=again).programs
    assert program.module.count("@tpu_custom_call") == 2
    assert sum(program.rows["torch_tpu::foreign"].values()) == 2 + again
    assert "1024x1024" not in program.module


def test_what_the_kernel_does_not_cover_keeps_its_form():
    with aot.topology("v6e") as recording, pallas.flash_attention():
        q, k = query_and_key(1024)
        F.scaled_dot_product_attention(q, k, k, dropout_p=0.1, enable_gqa=True).sum().backward()
        F.scaled_dot_product_attention(q[..., :64], k[..., :64], k[..., :64], enable_gqa=True).sum().backward()
        recording.cut()
    assert all("@tpu_custom_call" not in p.module for p in recording.programs)


@pytest.mark.parametrize(("shared", "batch", "key_heads"), [({"batch_parts": 4}, 1, 2), ({"head_parts": 2}, 4, 1)])
def test_a_kernel_is_made_for_a_devices_part(shared, batch, key_heads):
    (program,) = attend(batch=4, **shared).programs
    kernels = [line for line in program.module.splitlines() if "@tpu_custom_call" in line]
    assert len(kernels) == 2
    many = batch * key_heads  # each with four query heads
    assert all(f"tensor<{many}x4x1024x128xbf16>, tensor<{many}x1024x128xbf16>" in line for line in kernels)
    assert f"<=[{math.prod(shared.values())}]" in program.module


def test_operands_that_do_not_divide_among_devices_are_refused():
    with (
        aot.topology("v6e", batch_parts=4),
        pytest.raises(ValueError, match=r"\[6, 8\] does not divide among 4 devices"),
    ):
        pallas.call(jax.numpy.sin, torch.empty(6, 8, device="tpu"), independent=1)


SPREAD = """
    import jax, torch
    from tests.spread_on_cpu import largest_difference, run, values_for
    from torch_tpu import aot, pallas
    from torch_tpu.aot.sharding import spread

    def mixed(x, y):
        # Elements of the batch stay apart; what is saved for the gradient has a piece that no device shares.
        table = jax.numpy.arange(8, dtype="float32")
        return jax.nn.softmax(jax.numpy.einsum("bij,bkj->bik", x * table, jax.numpy.sin(y)))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)
        def forward(self, x):
            return pallas.call(mixed, self.inner(x), x, independent=1).square().sum()

    def step(**parts):
        net = Net()
        with aot.topology("v6e:2x2", **parts) as recording:
            net.to("tpu")
            x = torch.zeros(8, 4, 8).to("tpu")
            optimizer = torch.optim.SGD(net.parameters())
            recording.cut()
            net(x).backward()
            optimizer.step()
            recording.cut()
        return [p for p in recording.programs if not p.is_setup][-1]

    alone, program = step(), step(batch_parts=4)
    (module,) = spread([program], "fsdp", 4).modules
    assert module.count("SPMDFullToShardShape") >= 4
    assert "tensor<2x4x8xf32>" in module
    values = values_for(alone)
    print(largest_difference(run(alone.module, values), run(module, values, 4)))
"""


def test_devices_that_each_take_their_part_make_what_one_makes():
    said = run_python(SPREAD, 300, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
    assert float(said) < 1e-5


@needs_libtpu
def test_the_time_of_kernels_is_of_what_they_do():
    recording = attend()
    with Compiler() as compiler:
        step = step_between(recording, "all of it", 0, len(recording.order))
        report = judge("", recording, step, [recording.target], compiler, "quick", 0)
    time = report.targets[0].steps[0].time
    # Seven products of three blocks of four, forward and backward.
    assert time.flops == 7 * 3 * 8 * (2 * 512 * 512 * 128)
    assert "tpu_custom_call" not in time.uncosted_calls


@needs_libtpu
@pytest.mark.parametrize("shard", ["fsdp", "tp"])
def test_of_devices_each_computes_its_part_of_the_kernels(shard):
    with torch.device("meta"):
        net = Decoder(vocabulary=1024, width=1024, inner=2048, heads=8, key_heads=8, layers=2).to(torch.bfloat16)

    def flops(batch, **how):
        ids = torch.empty(batch, 512, dtype=torch.int64, device="meta")
        (step,) = aot.check(net, ids, train=True, attention="pallas", **how).targets[0].steps
        assert step.verdict == "ok", step.message
        return step.time.flops

    alone = flops(1 if shard == "fsdp" else 4, topology="v6e:1x1")
    assert flops(4, topology="v6e:2x2", shard=shard) == pytest.approx(alone / (1 if shard == "fsdp" else 4), rel=0.02)


@needs_libtpu
@pytest.mark.slow
def test_flash_attention_compiles_ahead_of_time():
    recording = attend()
    with Compiler() as compiler:
        step = step_between(recording, "all of it", 0, len(recording.order))
        report = judge("", recording, step, [recording.target], compiler, "full", 0)
    (step,) = report.targets[0].steps
    assert step.verdict == "ok", step.message
    assert step.time.flops == 7 * 3 * 8 * (2 * 512 * 512 * 128)


def test_a_script_is_recorded_with_kernels_where_asked(tmp_path):
    script = tmp_path / "attend.py"
    script.write_text(
        "import torch\nimport torch.nn.functional as F\n"
        "q = torch.randn(1, 2, 256, 128, dtype=torch.bfloat16, device='tpu')\n"
        "print(F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().item())\n"
    )
    for attention, kernels in (("tiles", False), ("pallas", True)):
        programs = record(script, [], parse("v6e"), attention=attention).recording.programs
        assert any("@tpu_custom_call" in p.module for p in programs) == kernels


def test_without_jax_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(aot.CheckError, match="needs the package jax"):
        aot.check(torch.nn.Linear(8, 8), torch.zeros(8, 8), attention="pallas")


def test_slices_of_other_numbers_of_devices_are_checked_one_by_one():
    with pytest.raises(aot.CheckError, match="the slices have 8, 16 devices"):
        aot.check(
            torch.nn.Linear(8, 8),
            torch.zeros(16, 8),
            topology=["v6e:2x4", "v6e:4x4"],
            shard="fsdp",
            attention="pallas",
        )
