"""The TPU compiler in its child process. Needs libtpu, and no TPU."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.marks import needs_libtpu
from torch_tpu import _plugins
from torch_tpu.aot import CheckError, CompilerError, protos
from torch_tpu.aot.compiler import Compiler, _shared_options
from torch_tpu.aot.estimate import estimate
from torch_tpu.aot.hardware import chips, parse
from torch_tpu.aot.hlo import Module
from torch_tpu.aot.memory import measure

PROGRAM = """module @program {
func.func public @main(%0: tensor<2048x2048xbf16> loc("a.weight"), %1: tensor<2048x2048xbf16> loc("b.weight")) -> (tensor<2048x2048xbf16>) {
  %2 = "func.call"(%0, %1) <{callee = @f}> : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16> loc(#loc0)
  return %2 : tensor<2048x2048xbf16>
}
func.func private @f(%0: tensor<2048x2048xbf16>, %1: tensor<2048x2048xbf16>) -> (tensor<2048x2048xbf16>) {
  %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]>}> : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
  return %2 : tensor<2048x2048xbf16>
}
}
#loc0 = loc("Model.layer/aten.mm"(callsite("f"("model.py":5:1) at "main"("train.py":9:1))))
"""


@pytest.fixture(autouse=True, scope="module")
def empty_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_TPU_CHECK_CACHE", str(tmp_path_factory.mktemp("answers")))
        yield


@pytest.fixture(scope="module")
def compiler():
    with Compiler(timeout=300) as started:
        yield started


@needs_libtpu
def test_every_generation_has_a_topology(compiler):
    for name in chips():
        target = parse(name)
        found = compiler.describe(target)
        assert len(found["devices"]) == target.devices, name
        assert found["devices"][0][1]["device_memory_bytes_limit"] > 7e9


@needs_libtpu
def test_the_first_phase_gives_schedule_and_buffers(compiler):
    target = parse("v6e")
    parts = protos.partial_programs(compiler.compile(PROGRAM, target, "quick")["programs"])
    module = Module(protos.hlo_module(parts["opt_hlo"], with_config=True))
    memory = measure(protos.buffer_assignment(parts["buffer_assignment"]), module, 1 << 35, ["a.weight", "b.weight"], 0)
    assert memory.arguments == 2 * 2 * 2048**2
    assert memory.outputs == 2 * 2048**2
    assert memory.fits
    assert {a.name for a in memory.largest} >= {"argument 0 a.weight", "argument 1 b.weight"}
    e = estimate(module, target)
    assert e.flops == 2 * 2048**3
    line = e.steps[0].line
    assert line.op == "Model.layer/aten.mm"
    assert line.frames == (("model.py", "f", 5), ("train.py", "main", 9))


@needs_libtpu
def test_a_whole_compile_gives_cycles_and_code(compiler):
    reply = compiler.compile(PROGRAM, parse("v6e"), "full")
    module = Module(protos.hlo_module(reply["program"], reply["format"] == "hlo_with_config"))
    assert estimate(module, parse("v6e")).has_cycles
    assert reply["memory"]["code"] > 0


@needs_libtpu
@pytest.mark.parametrize("depth", ["quick", "full"])
def test_a_program_that_does_not_fit_is_an_oom(compiler, depth):
    huge = PROGRAM.replace("2048x2048", "131072x131072")
    with pytest.raises(CompilerError) as caught:
        compiler.compile(huge, parse("v6e"), depth)
    assert caught.value.kind == "oom"


@needs_libtpu
def test_refused_text_is_a_sentence(compiler):
    with pytest.raises(CompilerError, match="garbage") as caught:
        compiler.compile("module {garbage", parse("v6e"))
    assert caught.value.kind == "refused"


@needs_libtpu
def test_a_crash_is_a_sentence_and_the_next_request_works(compiler):
    with pytest.raises(CompilerError, match="The TPU compiler crashed: SIGFPE"):
        compiler.describe(replace(parse("v6e"), shape=(0, 1)))
    assert compiler.describe(parse("v6e"))["devices"]


@needs_libtpu
def test_shapes_that_libtpu_does_not_know_are_refused(compiler):
    with pytest.raises(CheckError, match="libtpu knows no topology v6e:3x3"):
        compiler.describe(replace(parse("v6e"), shape=(3, 3)))


@needs_libtpu
def test_nothing_reaches_the_users_terminal():
    code = (
        "from torch_tpu.aot.compiler import Compiler; from torch_tpu.aot.hardware import parse\n"
        "with Compiler() as c: c.describe(parse('v6e'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_libtpu
def test_a_compile_that_takes_too_long_is_ended():
    with Compiler(timeout=0.1) as impatient, pytest.raises(CompilerError, match=r"took more than 0 s"):
        impatient.describe(parse("v6e"))


def test_without_libtpu_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_plugins, "TPU_PLUGINS", ())
    monkeypatch.delenv("TORCH_TPU_AOT_PLUGIN", raising=False)
    with pytest.raises(CheckError, match="pip install"):
        Compiler().start()


@needs_libtpu
def test_an_answer_is_found_again_and_a_damaged_one_is_asked_anew(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CHECK_CACHE", str(tmp_path))
    asked = []
    ask = compiler._ask
    monkeypatch.setattr(compiler, "_ask", lambda request: asked.append(1) or ask(request))
    first = compiler.compile(PROGRAM, parse("v6e"))
    assert compiler.compile(PROGRAM, parse("v6e")) == first
    assert len(asked) == 1
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert compiler.compile(PROGRAM, parse("v6e"))["programs"] == first["programs"]
    assert len(asked) == 2


def test_options_for_several_devices_are_those_of_the_chip_and_give_way_to_the_users(monkeypatch):
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    gather = "xla_tpu_enable_sparse_core_collective_offload_all_gather"
    assert _shared_options(parse("v6e:2x4"), 1) == {}
    assert _shared_options(parse("v6e:2x4"), 8)[gather] == "true"
    assert gather not in _shared_options(parse("v5e:2x4"), 8)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{gather}=false")
    assert gather not in _shared_options(parse("v6e:2x4"), 8)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{gather}_of_another_name=false")
    assert gather in _shared_options(parse("v6e:2x4"), 8)
