"""Modules of ``torch.nn`` give CPU PyTorch's values, gradients, buffers and strides, without a fallback."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import torch_tpu


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Residual(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)), inplace=True)
        return F.relu(self.second_norm(self.second(y)) + x)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(10, shape)


def encoder_layer(**options) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **options)


PADDED = torch.zeros(2, 5, dtype=torch.bool)
PADDED[1, 3:] = True

r = torch.randn
# name -> (module, inputs[, keyword arguments])
CASES = {
    "linear": lambda: (nn.Linear(3, 4), r(2, 5, 3)),
    "bilinear": lambda: (nn.Bilinear(3, 4, 5), r(6, 3), r(6, 4)),
    "conv1d-groups": lambda: (nn.Conv1d(4, 8, 3, groups=4, padding="same"), r(2, 4, 7)),
    "conv2d-dilation": lambda: (nn.Conv2d(4, 6, 3, dilation=2, stride=2, padding=1, groups=2), r(2, 4, 9, 8)),
    "conv3d-circular": lambda: (nn.Conv3d(2, 3, 2, padding=1, padding_mode="circular"), r(2, 2, 3, 4, 5)),
    "conv_transpose2d": lambda: (nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2, output_padding=1), r(2, 4, 4, 5)),
    "batch_norm": lambda: (nn.BatchNorm1d(3), r(4, 3, 5)),
    "batch_norm-cumulative": lambda: (nn.BatchNorm2d(3, momentum=None, affine=False), r(4, 3, 5, 5)),
    "instance_norm": lambda: (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), r(2, 3, 4, 5)),
    "group_norm": lambda: (nn.GroupNorm(2, 4), r(2, 4, 5)),
    "layer_norm": lambda: (nn.LayerNorm([5, 6], bias=False), r(2, 5, 6)),
    "rms_norm": lambda: (nn.RMSNorm(6), r(2, 5, 6)),
    "residual-channels_last": lambda: (
        Residual().to(memory_format=torch.channels_last),
        r(2, 8, 6, 6).to(memory_format=torch.channels_last),
    ),
    "pools": lambda: (
        nn.Sequential(nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1), nn.AdaptiveMaxPool2d(4), nn.AdaptiveAvgPool2d(3)),
        r(2, 4, 6, 7),
    ),
    "resize": lambda: (
        nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelUnshuffle(2), nn.ReflectionPad2d(1)),
        r(2, 4, 4, 4),
    ),
    "fold": lambda: (nn.Sequential(nn.Unfold(3, padding=1), nn.Fold((6, 6), 3, padding=1)), r(2, 3, 6, 6)),
    "embedding": lambda: (nn.Embedding(10, 4, padding_idx=2, scale_grad_by_freq=True), tokens(2, 6)),
    "embedding_bag": lambda: (nn.EmbeddingBag(10, 4, mode="mean"), tokens(6), torch.tensor([0, 2, 2, 4])),
    "embedding_bag-max": lambda: (nn.EmbeddingBag(10, 4, mode="max"), tokens(6), torch.tensor([0, 2, 2, 4])),
    "lstm": lambda: (nn.LSTM(4, 6, proj_size=3, bidirectional=True), r(2, 3, 4)),
    "lstm_cell": lambda: (nn.LSTMCell(4, 6, bias=False), r(2, 4)),
    "gru_cell": lambda: (nn.GRUCell(4, 6, bias=False), r(2, 4)),
    "gru": lambda: (nn.GRU(4, 6, batch_first=True), r(3, 2, 4)),
    "rnn": lambda: (nn.RNN(4, 6, nonlinearity="relu", bias=False), r(3, 2, 4)),
    "attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), r(2, 5, 8), r(2, 6, 8), r(2, 6, 8)),
    "attention-own-sizes": lambda: (
        nn.MultiheadAttention(8, 2, kdim=6, vdim=4, add_bias_kv=True, add_zero_attn=True),
        r(5, 2, 8),
        r(7, 2, 6),
        r(7, 2, 4),
    ),
    "encoder_layer": lambda: (encoder_layer(activation="gelu", norm_first=True), r(2, 5, 8)),
    "encoder_layer-padded": lambda: (encoder_layer(), r(2, 5, 8), {"src_key_padding_mask": PADDED}),
    "encoder-causal": lambda: (
        nn.TransformerEncoder(encoder_layer(), 2),
        r(2, 5, 8),
        {"mask": nn.Transformer.generate_square_subsequent_mask(5), "is_causal": True},
    ),
    "decoder_layer": lambda: (nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), r(5, 2, 8), r(6, 2, 8)),
}


def flat(result) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [t for part in result for t in flat(part)]


def two_steps(module: nn.Module, inputs, keywords, device: str) -> list[torch.Tensor]:
    """Results of two steps, gradients added up over them, and buffers."""
    module = copy.deepcopy(module).to(device)
    inputs = [x.to(device).requires_grad_(x.is_floating_point()) for x in inputs]
    keywords = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in keywords.items()}
    seen = []
    for _ in range(2):
        results = flat(module(*inputs, **keywords))
        cotangents = [torch.linspace(0.5, 1.5, t.numel()).view(t.shape).to(device) for t in results]
        torch.autograd.backward(results, cotangents)
        seen += [t.detach() for t in results]
    seen += [x.grad for x in inputs if x.grad is not None]
    return seen + [p.grad for p in module.parameters()] + list(module.buffers())


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-4) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (e.dtype, e.shape, e.stride())
        scale = max([1.0, *e.abs().flatten().tolist()]) if e.is_floating_point() else 1
        torch.testing.assert_close(a.cpu() / scale, e / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_two_training_steps_deferred(name):
    module, *inputs = CASES[name]()
    keywords = inputs.pop() if isinstance(inputs[-1], dict) else {}
    fallbacks = torch_tpu.counters()["fallbacks"]
    with torch_tpu.mode("defer"):
        assert_same(two_steps(module, inputs, keywords, "tpu"), two_steps(module, inputs, keywords, "cpu"))
    assert torch_tpu.counters()["fallbacks"] == fallbacks


@pytest.mark.parametrize("name", CASES)
def test_evaluation_op_by_op(name):
    module, *inputs = CASES[name]()
    keywords = inputs.pop() if isinstance(inputs[-1], dict) else {}
    fallbacks = torch_tpu.counters()["fallbacks"]
    module.eval()
    on_tpu = copy.deepcopy(module).to("tpu")
    with torch.no_grad(), torch_tpu.mode("strict"):
        expected = flat(module(*inputs, **keywords))
        keywords = {k: v.to("tpu") if isinstance(v, torch.Tensor) else v for k, v in keywords.items()}
        actual = flat(on_tpu(*[x.to("tpu") for x in inputs], **keywords))
    assert_same(actual, expected)
    assert torch_tpu.counters()["fallbacks"] == fallbacks


def test_a_padded_encoder_in_evaluation():
    """PyTorch leaves the results at padded positions open: CPU PyTorch has zeros there, through nested tensors."""
    encoder = nn.TransformerEncoder(encoder_layer(), 2).eval()
    x = r(2, 5, 8)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=PADDED)
        actual = encoder.to("tpu")(x.to("tpu"), src_key_padding_mask=PADDED.to("tpu")).cpu()
    torch.testing.assert_close(actual[~PADDED], expected[~PADDED], rtol=1e-4, atol=1e-4)


# PyTorch's mask types: of queries and keys, of keys, of all
MASKS = {
    "none": (None, None),
    "causal": (torch.ones(5, 5, dtype=torch.bool).triu(1), 0),
    "padded": (PADDED, 1),
    "all": (torch.rand(2, 2, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.7, 2),
}


@pytest.mark.parametrize("mask", MASKS)
def test_whole_attention_blocks(mask):
    """What nn.MultiheadAttention calls in evaluation."""
    hidden, kind = MASKS[mask]
    x = r(2, 5, 8)
    weights = r(24, 8), r(24), r(8, 8), r(8)
    for options in ({"need_weights": False}, {}, {"average_attn_weights": False}):

        def attend(device, options=options):
            given = [None if t is None else t.to(device) for t in (x, *weights, hidden)]
            return torch._native_multi_head_attention(
                *given[:1] * 3, 8, 2, *given[1:5], given[5], **options, mask_type=kind
            )

        actual, expected = attend("tpu"), attend("cpu")
        assert (actual[1] is None) == (expected[1] is None)
        assert_same([t for t in actual if t is not None], [t for t in expected if t is not None])


class Called(TorchDispatchMode):
    """Names of the ops that reached the device."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.names.add(op.overloadpacket.__name__)
        return op(*args, **(kwargs or {}))


FLASH = "_scaled_dot_product_flash_attention_for_cpu"
NO_ROW = torch.ones(5, 6, dtype=torch.bool)
NO_ROW[2] = False
# name -> (shapes of query, key, value; keyword arguments; whether the fused op serves it)
ATTENTION = {
    "plain": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {}, True),
    "causal": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {"is_causal": True, "scale": 0.3}, True),
    "bool": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {"attn_mask": torch.rand(2, 1, 5, 6) > 0.3}, True),
    "row-masked": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {"attn_mask": NO_ROW}, True),
    "float": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {"attn_mask": r(5, 6)}, True),
    "grouped": (((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8)), {"enable_gqa": True}, True),
    "value-size": (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)), {}, False),
    "broadcast": (((4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {}, False),
    "3d": (((4, 5, 8), (4, 6, 8), (4, 6, 8)), {}, False),
    "empty": (((2, 4, 0, 8), (2, 4, 6, 8), (2, 4, 6, 8)), {}, None),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    shapes, keywords, fused = ATTENTION[name]
    tensors = [r(shape) for shape in shapes]

    def attend(device: str) -> list[torch.Tensor]:
        inputs = [x.to(device).requires_grad_() for x in tensors]
        there = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in keywords.items()}
        out = F.scaled_dot_product_attention(*inputs, **there)
        cotangent = torch.linspace(0.5, 1.5, out.numel()).view(out.shape).to(device)
        return [out.detach(), *torch.autograd.grad(out, inputs, cotangent)]

    fallbacks = torch_tpu.counters()["fallbacks"]
    with Called() as called:
        actual = attend("tpu")
    assert fused is None or (FLASH in called.names) == fused
    expected = attend("cpu")
    if name == "value-size":  # served by another op than on the CPU, with other strides
        torch.testing.assert_close([x.cpu() for x in actual], expected, rtol=1e-4, atol=2e-5)
    else:
        assert_same(actual, expected, 2e-5)
    assert torch_tpu.counters()["fallbacks"] == fallbacks


def test_a_mask_has_a_gradient():
    def gradient(device: str) -> torch.Tensor:
        torch.manual_seed(1)
        query, key, value, mask = (r(s).to(device) for s in ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8), (2, 1, 5, 6)))
        mask.requires_grad_()
        F.scaled_dot_product_attention(query, key, value, mask).square().sum().backward()
        return mask.grad

    assert_same([gradient("tpu")], [gradient("cpu")], 2e-5)


def test_dropout_in_attention():
    query, key = r(2, 2, 32, 4).to("tpu"), r(2, 2, 32, 4).to("tpu")
    value = torch.ones(2, 2, 32, 4, device="tpu", requires_grad=True)
    attend = F.scaled_dot_product_attention
    torch.manual_seed(3)
    out = attend(query, key, value, dropout_p=0.25)
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert out.std().item() > 0.01
    # Linear in the value: the gradient sees the same dropped weights.
    (grad,) = torch.autograd.grad(out.sum(), value)
    assert (grad * value).sum().item() == pytest.approx(out.sum().item(), rel=1e-4)
    torch.manual_seed(3)
    assert torch.equal(attend(query, key, value, dropout_p=0.25), out)
    assert attend(query, key, value, dropout_p=1.0).abs().sum().item() == 0


def test_the_user_can_refuse_fused_attention():
    query = r(2, 4, 5, 8).to("tpu")
    with sdpa_kernel(SDPBackend.MATH), Called() as called:
        F.scaled_dot_product_attention(query, query, query)
    assert FLASH not in called.names


LAST = torch.channels_last
# Functions whose results' and gradients' strides follow their input's.
FORMATS = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(6, 4, 3, 3, device=x.device), padding=1),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, torch.ones(4, 6, 2, 2, device=x.device), stride=2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "reflect": lambda x: F.pad(x, [1, 1, 1, 1], mode="reflect"),
    "pad": lambda x: F.pad(x, [1, 1, 1, 1]),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "x", [r(2, 4, 8, 8).to(memory_format=LAST), r(2, 8, 4, 8).transpose(1, 2)], ids=["channels_last", "permuted"]
)
def test_results_have_the_strides_of_the_cpu(name, x):
    def there(device: str) -> list[torch.Tensor]:
        leaf = x.to(device).requires_grad_()
        out = FORMATS[name](leaf)
        return [out.detach(), torch.autograd.grad(out, leaf, torch.ones_like(out))[0]]

    assert_same(there("tpu"), there("cpu"))


def test_conjugated_matrices_are_multiplied_as_such():
    a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(3, 3, dtype=torch.complex64)
    there = a.to("tpu").conj() @ b.to("tpu").mH
    assert_same([there.resolve_conj()], [(a.conj() @ b.mH).resolve_conj()])
