"""Programs annotated for the devices of a slice, as tensor parallelism cuts them."""

import importlib.util
import math
import re

import pytest
import torch
import torch.nn.functional as F

from tests.decoder import Decoder
from tests.marks import needs_libtpu
from tests.process import run_python
from torch_tpu import aot
from torch_tpu.aot import protos
from torch_tpu.aot.compiler import Compiler
from torch_tpu.aot.estimate import estimate
from torch_tpu.aot.hardware import parse
from torch_tpu.aot.hlo import Module
from torch_tpu.aot.sharding import spread
from torch_tpu.aot.sharding.cut import Piece, along
from torch_tpu.aot.sharding.tensor_parallel import tensor_parallel
from torch_tpu.aot.sharding.text import functions_of

TOKENS, WIDTH, INNER, VOCABULARY = 256, 1024, 2048, 4096
COLUMNS, ROWS = 0, 1  # of torch.nn.Linear's weight: dimensions of output and input features


def record(net, *inputs, train=False, roll=False, dtype=torch.float32):
    """The programs of the last of two steps, or of a forward."""
    net.to(dtype)
    with aot.topology("v6e:2x2", on_read="assume", roll=roll) as recording, torch.set_grad_enabled(train):
        net.to("tpu")
        inputs = [x.to("tpu") for x in inputs]
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2 if train else 1):
            recording.cut()
            output = net(*inputs)
            if train:
                output.square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    return [p for p in recording.programs if not p.is_setup]


def small_decoder(**how):
    with torch.device("meta"):
        net = Decoder(vocabulary=VOCABULARY, width=WIDTH, inner=INNER, **how)
    return net, torch.empty(1, TOKENS, dtype=torch.int64, device="meta")


def cuts(net, *inputs, devices=4, **how):
    """Of each weight that is cut: the dimension, and the number of parts."""
    found = tensor_parallel(record(net, *inputs, **how), devices).found
    return {name: (dim, found.parts(name)) for name, dim in found.dim.items() if found.parts(name) > 1}


# --- which dimension is cut


def test_a_layer_is_cut_by_columns_then_by_rows_and_the_vocabulary_by_its_ids():
    net, ids = small_decoder(heads=8, layers=1)
    found = cuts(net, ids)
    for name in ("query", "key", "value", "gate", "up"):
        assert found.pop(f"layers.0.{name}.weight") == (COLUMNS, 4)
    for name in ("out", "down"):
        assert found.pop(f"layers.0.{name}.weight") == (ROWS, 4)
    assert found == {"tokens.weight": (0, 4), "head.weight": (0, 4)}


@pytest.mark.parametrize("train", [False, True], ids=["forward", "training"])
def test_rolled_layers_training_and_a_forward_are_cut_alike(train):
    net, ids = small_decoder(heads=8, key_heads=2, layers=3)
    one = {re.sub(r"\.\d\.", ".*.", name): how for name, how in cuts(net, ids).items()}
    net, ids = small_decoder(heads=8, key_heads=2, layers=3)
    assert cuts(net, ids, train=train, roll=True) == one


def test_a_bias_is_cut_as_what_it_is_added_to():
    net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
    found = cuts(net, torch.zeros(8, 256), train=True)
    assert found == {"0.weight": (COLUMNS, 4), "0.bias": (0, 4), "2.weight": (ROWS, 4)}


def test_state_and_gradients_are_cut_as_their_parameters():
    net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
    programs = record(net, torch.zeros(8, 256), train=True)
    module = spread(programs, "tp", 4).modules[-1]
    header = next(line for line in module.splitlines() if "@main(" in line)
    given = re.findall(r'%\d+: tensor<\S+> \{mhlo\.sharding = "([^"]*)"', header)
    by_name = {a.name: how for a, how in zip(programs[-1].arguments, given, strict=False)}
    assert by_name["2.weight"] == by_name["exp_avg of 2.weight"] == "{devices=[1,4]<=[4]}"
    assert by_name["0.bias"] == by_name["exp_avg_sq of 0.bias"] == "{devices=[4]<=[4]}"
    assert by_name["2.bias"] == by_name[""] == "{replicated}"
    made = re.findall(r'tensor<\S+> \{mhlo\.sharding = "([^"]*)"', header.partition(") -> (")[2])
    gradients = {r.name: how for r, how in zip(programs[-1].results, made, strict=True)}
    assert gradients["gradient of 2.weight"] == "{devices=[1,4]<=[4]}"


class Conv1D(torch.nn.Module):
    """GPT-2's layer, whose weight has its input features first."""

    def __init__(self, out, given):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.empty(given, out)), torch.nn.Parameter(torch.empty(out))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Fused(torch.nn.Module):
    """Attention with query, key and value in one, and an embedding that is also the head."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(1021, 512)
        self.qkv, self.out = Conv1D(3 * 512, 512), Conv1D(512, 512)

    def forward(self, ids):
        x = self.tokens(ids)
        q, k, v = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in self.qkv(x).split(512, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x @ self.tokens.weight.T


def fused():
    with torch.device("meta"):
        return Fused(), torch.empty(1, 200, dtype=torch.int64)


def test_fused_and_tied_weights():
    found = cuts(*fused())
    assert found == {"tokens.weight": (0, 4), "qkv.weight": (1, 4), "qkv.bias": (0, 4), "out.weight": (0, 4)}


@pytest.mark.parametrize("batch_first", [True, False])
def test_encoder_layers_of_pytorch(batch_first):
    with torch.device("meta"):
        net = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=batch_first)
        x = torch.empty(2, TOKENS, 512)
    found = cuts(net, x if batch_first else x.transpose(0, 1).contiguous(), train=True)
    assert found["self_attn.in_proj_weight"] == (COLUMNS, 4)
    assert found["self_attn.out_proj.weight"] == (ROWS, 4)
    assert (found["linear1.weight"], found["linear2.weight"]) == ((COLUMNS, 4), (ROWS, 4))


class LowRank(torch.nn.Module):
    """Attention whose queries come of two weights, with a norm between."""

    def __init__(self):
        super().__init__()
        linear = lambda out, given: torch.nn.Linear(given, out, bias=False)  # noqa: E731
        self.down, self.norm, self.up = linear(256, 512), torch.nn.RMSNorm(256), linear(512, 256)
        self.key, self.value, self.out = (linear(512, 512) for _ in range(3))

    def forward(self, x):
        made = (self.up(self.norm(self.down(x))), self.key(x), self.value(x))
        q, k, v = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in made)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_what_makes_heads_is_cut_by_them():
    with torch.device("meta"):
        found = cuts(LowRank(), torch.empty(1, TOKENS, 512), train=True)
    assert found == dict.fromkeys(("up.weight", "key.weight", "value.weight"), (COLUMNS, 4)) | {"out.weight": (ROWS, 4)}


def test_a_projection_before_the_layers_stays_whole():
    class Projected(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(256, WIDTH)
            self.decoder = Decoder(vocabulary=VOCABULARY, width=WIDTH, inner=INNER, heads=8, layers=2)

        def forward(self, x):
            return self.decoder.layers(self.project(x))

    with torch.device("meta"):
        found = cuts(Projected(), torch.empty(1, TOKENS, 256))
    assert "project.weight" not in found
    for i in range(2):
        assert found[f"decoder.layers.{i}.query.weight"] == found[f"decoder.layers.{i}.gate.weight"] == (COLUMNS, 4)
        assert found[f"decoder.layers.{i}.out.weight"] == found[f"decoder.layers.{i}.down.weight"] == (ROWS, 4)


def test_biases_that_are_looked_up_are_cut_as_what_they_are_added_to():
    class Biased(torch.nn.Module):
        """As experts have one each."""

        def __init__(self):
            super().__init__()
            self.biases = torch.nn.Parameter(torch.empty(64, 1024))
            self.inner, self.outer = torch.nn.Linear(512, 1024, bias=False), torch.nn.Linear(1024, 512, bias=False)

        def forward(self, x, which):
            return x + self.outer((self.inner(x) + self.biases[which]).relu())

    with torch.device("meta"):
        found = cuts(Biased(), torch.empty(8, 512), torch.empty(8, dtype=torch.int64))
    assert found == {"inner.weight": (COLUMNS, 4), "biases": (1, 4), "outer.weight": (ROWS, 4)}


def test_a_weight_whose_result_is_added_to_what_is_whole_stays_whole():
    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.alone, self.inner, self.outer = (torch.nn.Linear(512, 512, bias=False) for _ in range(3))

        def forward(self, x):
            x = x + self.alone(x)
            return x + self.outer(self.inner(x).relu())

    with torch.device("meta"):
        found = cuts(Residual(), torch.empty(8, 512), train=True)
    assert found == {"inner.weight": (COLUMNS, 4), "outer.weight": (ROWS, 4)}


class Cached(torch.nn.Module):
    """Attention of new tokens to those before, whose keys and values are updated in place."""

    def __init__(self):
        super().__init__()
        self.query, self.out = (torch.nn.Linear(512, 512, bias=False) for _ in range(2))
        self.key, self.value = (torch.nn.Linear(512, 256, bias=False) for _ in range(2))
        self.register_buffer("keys", torch.zeros(2, 4, 128, 64))
        self.register_buffer("values", torch.zeros(2, 4, 128, 64))

    def forward(self, x, at):
        made = (self.query(x), self.key(x), self.value(x))
        q, k, v = (t.unflatten(-1, (-1, 64)).transpose(1, 2) for t in made)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def test_a_cache_of_keys_is_cut_by_its_heads():
    with torch.device("meta"):
        net, x, at = Cached(), torch.empty(2, 1, 512), torch.empty(1, dtype=torch.int64)
    program = record(net, x, at)[-1]
    plan = tensor_parallel([program], 4)
    hows = dict(zip((a.name for a in program.arguments), plan.cuts(program).arguments, strict=True))
    assert hows["keys"] == hows["values"] == "{devices=[1,4,1,1]<=[4]}"
    assert not plan.notes


# --- a cut, followed


def test_a_cut_by_heads_goes_through_reshapes_and_transposes():
    features = along(1, (10, 512), "w")
    assert features.digits == ((1, 512),)
    heads = features.with_pieces([Piece(1, 1, 8)], (10, 8, 64))
    assert heads.digits == ((64, 8),)
    assert heads.pieces((10, 512)) == [Piece(1, 64, 8)]
    assert heads.pieces((10, 4, 2, 64)) == [Piece(1, 1, 4), Piece(2, 1, 2)]
    moved = heads.moved((10, 8, 64), (8, 10, 64), {0: 1, 1: 0, 2: 2})
    assert moved.digits == ((640, 8),)
    # Of a dimension that is the batch and the heads, the heads are cut.
    assert moved.pieces((80, 64)) == [Piece(0, 10, 8)]


def test_a_slice_of_a_cut_dimension_is_cut_and_an_element_is_not():
    features = along(1, (10, 1536), "w")
    assert features.moved((10, 1536), (10, 512), {0: 0, 1: 1}).digits == ((1, 512),)
    assert features.moved((10, 1536), (10, 1), {0: 0, 1: 1}) is None
    assert features.moved((10, 1536), (10,), {0: 0}) is None


def test_operations_are_read_with_their_attributes_and_regions():
    text = """module @program {
func.func public @main(%0: tensor<4x8xf32> loc("x.weight"), %1: tensor<f32>) -> (tensor<4xf32>) {
  %5 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 1>}> ({
  ^bb0(%2: tensor<f32>, %3: tensor<f32>):
  %4 = "stablehlo.add"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%4) : (tensor<f32>) -> ()
  }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32> loc(#loc0)
  return %5 : tensor<4xf32>
}
}
"""
    main = functions_of(text)["main"]
    assert (main.arguments, main.argument_dims, main.returned) == (["%0", "%1"], [(4, 8), ()], ["%5"])
    reduce = main.operations[0]
    assert (reduce.name, reduce.operands, reduce.integers("dimensions")) == ("reduce", ["%0", "%1"], (1,))
    assert (reduce.operand_dims, reduce.result_dims) == ([(4, 8), ()], [(4,)])
    assert reduce.regions[0].returned == ["%4"]


# --- heads and sizes that do not divide


def test_few_key_heads_are_cut_as_far_as_they_go():
    net, ids = small_decoder(heads=8, key_heads=2, layers=1)
    plan = tensor_parallel(record(net, ids), 8)
    assert plan.found.parts("layers.0.query.weight") == plan.found.parts("layers.0.out.weight") == 8
    assert plan.found.parts("layers.0.key.weight") == 2
    assert plan.notes == ["2 heads make 2 parts, each on 4 devices: layers.*.key.weight, layers.*.value.weight"]
    header = next(
        x for x in spread(record(*small_decoder(heads=8, key_heads=2)), "tp", 8).modules[0].splitlines() if "@main" in x
    )
    assert header.count('"{devices=[2,1,4]<=[8] last_tile_dim_replicate}"') == 2 * 3


def test_a_single_key_head_stays_whole():
    net, ids = small_decoder(heads=8, key_heads=1, layers=1)
    plan = tensor_parallel(record(net, ids, train=True), 4)
    assert plan.found.parts("layers.0.key.weight") == plan.found.parts("layers.0.value.weight") == 1
    assert plan.found.parts("layers.0.query.weight") == 4
    assert "layers.*.key.weight, layers.*.value.weight" in plan.notes[0]


def test_attention_whose_heads_do_not_divide_stays_whole():
    net, ids = small_decoder(heads=8, layers=1)
    with torch.device("meta"):
        net = Decoder(vocabulary=VOCABULARY, width=576, inner=INNER, heads=9, key_heads=3, layers=1)
    for train in (False, True):
        found = cuts(net, ids, train=train, devices=8)
        assert set(found) == {
            "tokens.weight",
            "layers.0.gate.weight",
            "layers.0.up.weight",
            "layers.0.down.weight",
            "head.weight",
        }


def test_a_vocabulary_that_does_not_divide_is_padded():
    net, ids = fused()
    notes = tensor_parallel(record(net, ids), 4).notes
    assert notes == ["padded from 1021 to 1024: tokens.weight"]


def test_nothing_to_cut_is_refused():
    with pytest.raises(aot.CheckError, match="--shard tp: no weight can be cut among 4 devices"):
        cuts(torch.nn.Linear(16, 16), torch.zeros(4, 16))


# --- what the compiler makes of it


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as found:
        yield found


def compiled(compiler, programs, slice_):
    """The last program as the compiler schedules it."""
    target = parse(slice_)
    text = spread(programs, "tp", target.devices).modules[-1]
    found = protos.partial_programs(compiler.compile(text, target, "quick", target.devices)["programs"])
    return Module(protos.hlo_module(found["opt_hlo"], with_config=True)), target


def collectives(module):
    """(kind, dims of an operand) of each."""
    kinds = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
    return [
        (i.opcode.removesuffix("-start"), tuple(o.shape.dimensions))
        for i in module.instructions.values()
        if i.opcode.removesuffix("-start") in kinds
        for o in module.operands(i)
    ]


@needs_libtpu
@pytest.mark.parametrize("roll", [True, False], ids=["rolled", "unrolled"])
@pytest.mark.parametrize("train", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize(("slice_", "key_heads"), [("v6e:2x2", 8), ("v6e:2x4", 8), ("v6e:2x4", 2)])
def test_devices_add_up_two_activations_a_layer_and_direction(compiler, slice_, key_heads, train, roll):
    layers = 3
    net, ids = small_decoder(heads=8, key_heads=key_heads, layers=layers)
    programs = record(net, ids, train=train, roll=roll, dtype=torch.bfloat16)
    assert bool(programs[-1].loops) == roll
    module, target = compiled(compiler, programs, slice_)
    n = target.devices
    found = collectives(module)
    # No weight is gathered, and nothing else as large as an activation but added up.
    assert {kind for kind, _ in found} == {"all-reduce"}
    large = [dims for _, dims in found if math.prod(dims) >= TOKENS * WIDTH]
    assert {dims[-2:] for dims in large} == {(TOKENS, WIDTH)}
    # In the forward two bytes an element: of the ids' rows, and after the attention and the MLP of a layer. In the
    # backward four: before them, and of the head. Keys that several devices share are added up by themselves.
    shared = key_heads < n
    sums = 2 * (1 + 2 * layers) + (4 * (1 + (3 if shared else 2) * layers) if train else 0)
    expected = sums * TOKENS * WIDTH * 2 * (n - 1) / n
    assert estimate(module, target).link_bytes == pytest.approx(expected, rel=0.1)


@needs_libtpu
def test_eight_key_heads_over_sixteen_devices(compiler):
    net, ids = small_decoder(heads=16, key_heads=8)
    module, _ = compiled(compiler, record(net, ids, roll=True, dtype=torch.bfloat16), "v6e:4x4")
    assert {kind for kind, _ in collectives(module)} == {"all-reduce"}


@needs_libtpu
@pytest.mark.parametrize("train", [False, True], ids=["forward", "training"])
def test_a_fused_weight_moves_parts_of_activations_and_no_weights(compiler, train):
    net, ids = fused()
    module, _ = compiled(compiler, record(net, ids, train=train, dtype=torch.bfloat16), "v6e:2x2")
    weights = {(1021, 512), (256, 512), (512, 1536), (512, 384), (128, 512)}
    assert not weights & {dims for _, dims in collectives(module)}


@needs_libtpu
def test_a_device_holds_its_share_and_reports_what_it_does_not():
    net, ids = small_decoder(heads=8, key_heads=2)
    alone = aot.check(net, ids, topology="v6e:1x1").targets[0].steps[0]
    (target,) = aot.check(net, ids, topology="v6e:2x4", shard="tp").targets
    shared = target.steps[0]
    assert shared.verdict == "ok", shared.message
    assert target.notes == ["2 heads make 2 parts, each on 4 devices: layers.*.key.weight, layers.*.value.weight"]
    weights = sum(p.numel() for p in net.parameters()) * 4
    keys = sum(p.numel() for name, p in net.named_parameters() if "key" in name or "value" in name) * 4
    assert shared.memory.arguments == pytest.approx((weights - keys) / 8 + keys / 2, rel=0.01)
    assert shared.time.flops < 0.2 * alone.time.flops


# --- the numbers

RUN = """
    import torch
    from tests.decoder import Decoder
    from tests.spread_on_cpu import largest_difference, run, values_for
    from tests.test_aot_tensor_parallel import record
    from torch_tpu.aot.sharding import spread
    with torch.device("meta"):
        net = Decoder(vocabulary=512, width=512, inner=512, heads=8, key_heads=4)
        ids = torch.empty(2, 64, dtype=torch.int64)
    programs = record(net, ids, train={train}, roll={roll})
    for program, module in zip(programs, spread(programs, "tp", {devices}).modules, strict=True):
        assert "last_tile_dim_replicate" in module or {devices} == 4
        values = values_for(program)
        print(largest_difference(run(program.module, values), run(module, values, {devices})))
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="jax, which runs several devices, is not installed")
@pytest.mark.parametrize(("devices", "train", "roll"), [(4, False, False), (8, True, False), (8, True, True)])
def test_the_numbers_are_those_of_one_device(devices, train, roll):
    code = RUN.format(devices=devices, train=train, roll=roll)
    said = run_python(code, 600, XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}", JAX_PLATFORMS="cpu")
    differences = [float(line) for line in said.splitlines()]
    assert differences
    assert all(d < 1e-4 for d in differences)
