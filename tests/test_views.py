"""Views alias as on CPU: random chains of them, read and written through, and the ways to change what a storage holds."""

import random

import pytest
import torch

import torch_tpu
from torch_tpu import aot

DTYPES = (torch.float32, torch.int64, torch.int16, torch.complex64, torch.bool, torch.bfloat16)


def make_base(rng: random.Random) -> torch.Tensor:
    shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
    base = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    dtype = rng.choice(DTYPES)
    base = (base % 3 == 0) if dtype == torch.bool else base.to(dtype)
    return base * (1 - 2j) if dtype == torch.complex64 else base


def draw_view(rng: random.Random, t: torch.Tensor):
    """A function that makes some view of tensors like ``t``; it may raise, then on every device."""
    d, other = (rng.randrange(max(t.dim(), 1)) for _ in range(2))
    size = t.shape[d] if t.dim() else 1
    kinds = ["unsqueeze", "as_strided", "dtype", "flatten"]
    if t.dim():
        kinds += [
            "transpose",
            "permute",
            "slice",
            "slice",
            "select",
            "narrow",
            "expand",
            "unfold",
            "unflatten",
            "squeeze",
            "chunk",
            "view",
        ]
    if t.dim() > 1:
        kinds += ["diagonal"]
    if t.is_complex():
        kinds += ["real", "imag", "view_as_real", "conj"]
    kind = rng.choice(kinds)
    start = rng.randint(0, size)
    stop = rng.randint(start, size + 1)
    step = rng.randint(1, 3)
    if kind == "as_strided":
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
        strides = [rng.randint(0, 4) for _ in sizes]
        reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        room = t.untyped_storage().nbytes() // t.element_size() - reach
        if room < 0:
            return lambda x: x
        offset = rng.randint(0, room)
        return lambda x: x.as_strided(sizes, strides, offset)
    if kind == "dtype":
        to = rng.choice((torch.int8, torch.int16, torch.int32, torch.int64))
        return lambda x: x if x.dtype == torch.bool or x.is_conj() else x.view(to)
    if kind == "permute":
        order = rng.sample(range(t.dim()), t.dim())
        return lambda x: x.permute(order)
    if kind == "expand":
        sizes = [rng.randint(1, 3), *(n if n > 1 else rng.randint(1, 2) for n in t.shape)]
        return lambda x: x.expand(sizes)
    if kind == "unflatten":
        factor = rng.choice([f for f in range(1, size + 1) if size % f == 0] or [1])
        return lambda x: x.unflatten(d, (factor, -1)) if size else x
    if kind == "view":
        return lambda x: x.view(-1, size) if size else x
    if kind == "chunk":
        count = rng.randint(1, 3)
        return lambda x: x.chunk(count, d)[-1]
    return {
        "unsqueeze": lambda x: x.unsqueeze(d),
        "flatten": lambda x: x.view(-1),
        "transpose": lambda x: x.transpose(d, other),
        "slice": lambda x: x[(slice(None),) * d + (slice(start, stop, step),)],
        "select": lambda x: x.select(d, min(start, size - 1)),
        "narrow": lambda x: x.narrow(d, start, min(stop, size) - start),
        "unfold": lambda x: x.unfold(d, min(step, size), 2),
        "squeeze": lambda x: x.squeeze(d),
        "diagonal": lambda x: x.diagonal(step - 2, d, other),
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "view_as_real": lambda x: torch.view_as_real(x.resolve_conj()),
        "conj": lambda x: x.conj(),
    }[kind]


def draw_write(rng: random.Random, t: torch.Tensor):
    """A function that writes to tensors like ``t`` in place."""
    values = (torch.arange(t.numel()).reshape(t.shape) % 5 - 2).to(t.dtype)
    mask = torch.arange(t.numel()).reshape(t.shape) % 2 == 0
    return rng.choice(
        [
            lambda x: x.copy_(values),
            lambda x: x.copy_(values.to(x.device)),
            lambda x: x.fill_(1),
            lambda x: x.zero_(),
            lambda x: x.logical_not_() if x.dtype == torch.bool else x.mul_(2),
            lambda x: x.logical_or_(values.to(x.device)) if x.dtype == torch.bool else x.add_(values.to(x.device)),
            lambda x: x.masked_fill_(mask.to(x.device), 3),
            lambda x: x.__setitem__(..., 2),
        ]
    )


def both(f, here: torch.Tensor, there: torch.Tensor, seed: int):
    """f on both tensors; None if the CPU refuses, and then tpu must refuse as well."""
    try:
        expected = f(here)
    except (RuntimeError, IndexError) as error:
        refusal = error
    else:
        return expected, f(there)
    try:
        f(there)
    except type(refusal):
        return None
    raise AssertionError(f"seed {seed}: the CPU refuses this: {refusal}")


def shows_each_once(t: torch.Tensor) -> bool:
    """Also true if each address is shown through expanded dims only, which PyTorch tells apart."""
    once = t.detach()[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in t.stride())]
    addresses = torch.arange(t.untyped_storage().nbytes() // t.element_size()).as_strided(
        once.shape, once.stride(), t.storage_offset()
    )
    return addresses.unique().numel() == once.numel()


def layout(t: torch.Tensor):
    return t.dtype, t.shape, t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@pytest.mark.parametrize(("mode", "seeds"), [("defer", range(300)), ("strict", range(300, 330))])
def test_random_chains_of_views_read_and_write_as_on_cpu(mode, seeds):
    pairs = []  # compared at the end, so that many chains are one program
    with torch_tpu.mode(mode):
        for seed in seeds:
            rng = random.Random(seed)
            base = make_base(rng)
            here, there = base, (device_base := base.to("tpu"))
            for _ in range(rng.randint(1, 5)):
                made = both(draw_view(rng, here), here, there, seed)
                if made is None:
                    continue
                here, there = made
                assert layout(there) == layout(here), f"seed {seed}"
            pairs.append((seed, "read", here.clone(), there.clone()))
            if not shows_each_once(here):
                continue  # what writes to overlapping windows do is undefined
            written = both(draw_write(rng, here), here, there, seed)
            pairs.append((seed, "read" if written is None else "written", base, device_base))
        for seed, what, expected, actual in pairs:
            assert layout(actual) == layout(expected), f"seed {seed}"
            same = torch.equal(actual.cpu().nan_to_num(7), expected.nan_to_num(7))
            assert same, f"seed {seed}, {what}: {actual.cpu()} for {expected}"


def test_writes_to_expanded_tensors_are_refused():
    x = torch.zeros(3, 1, device="tpu").expand(3, 4)
    for write in (lambda: x.add_(1), lambda: x.copy_(torch.ones(3, 4, device="tpu")), lambda: torch.add(x, 1, out=x)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write()
    x.fill_(2)  # PyTorch allows this one
    assert x.tolist() == [[2.0] * 4] * 3


def test_partly_overlapping_operands_are_refused():
    x = torch.arange(6.0, device="tpu")
    for write in (lambda: x[1:].add_(x[:-1]), lambda: x[1:].copy_(x[:-1]), lambda: torch.neg(x[:-1], out=x[1:])):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    assert x.add_(x).tolist() == [0, 2, 4, 6, 8, 10]
    x[:3].copy_(x[3:])
    assert x.tolist() == [6, 8, 10, 6, 8, 10]


def test_views_see_later_writes_and_share_a_storage():
    x = torch.zeros(2, 3, device="tpu")
    column, flat = x[:, 1], x.view(-1)
    x.add_(1)
    flat[4] = 7
    assert column.tolist() == [1, 7]
    column.mul_(2)
    assert x.tolist() == [[1, 2, 1], [1, 14, 1]]
    assert column.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert flat._is_view() and flat.is_set_to(flat.view(-1)) and not flat.is_set_to(x.clone().view(-1))


def test_bits_are_seen_through_a_view_of_another_dtype():
    x = torch.tensor([1.0, -2.0], device="tpu")
    assert x.view(torch.int32).tolist() == [0x3F800000, -0x40000000]
    x.view(torch.uint8)[3] = 0xBF
    assert x.tolist() == [-1.0, -2.0]
    assert torch.tensor([0x3F800000, 0x40000000], dtype=torch.int32, device="tpu").view(torch.float32).tolist() == [
        1,
        2,
    ]
    z = torch.zeros(3, dtype=torch.complex64, device="tpu")
    z.imag[1] = 5
    torch.view_as_real(z)[2, 0] = 1
    assert z.tolist() == [0, 5j, 1]
    z.conj().add_(1j)
    assert z.tolist() == [-1j, 4j, 1 - 1j]


@pytest.mark.parametrize("mode", ["strict", "defer"])
def test_resize_keeps_the_elements_in_storage(mode):
    with torch_tpu.mode(mode):
        x = torch.arange(6.0, device="tpu").view(2, 3)
        x.resize_(2)
        assert x.tolist() == [0, 1]
        x.resize_(3, 2)
        assert x.tolist() == [[0, 1], [2, 3], [4, 5]]
        x.resize_(4, 3)
        assert x.shape == (4, 3) and x.untyped_storage().nbytes() == 48
        assert x.view(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
        x.resize_(1, 2, 1, 1, memory_format=torch.channels_last)
        assert x.stride() == torch.empty(1, 2, 1, 1, memory_format=torch.channels_last).stride()


@pytest.mark.parametrize("mode", ["strict", "defer"])
def test_a_storage_can_be_freed_and_filled_again(mode):
    with torch_tpu.mode(mode):
        x = torch.arange(4.0, device="tpu")
        view = x[1:]
        storage = x.untyped_storage()
        storage.resize_(0)
        assert storage.size() == 0 and x.shape == (4,)
        storage.resize_(16)
        x.copy_(torch.arange(4.0) + 1)
        assert view.tolist() == [2, 3, 4]
        storage.resize_(8)
        storage.resize_(16)
        assert x[:2].tolist() == [1, 2]


def test_set_points_a_tensor_at_another_storage():
    x = torch.arange(6.0, device="tpu")
    y = torch.empty(0, device="tpu")
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    y.add_(10)
    assert x.tolist() == [0, 11, 12, 13, 14, 5]
    z = torch.empty(0, device="tpu").set_(x)
    z.zero_()
    assert x.sum().item() == 0 and z.is_set_to(x)
    assert z.set_().shape == (0,)


def test_data_can_be_exchanged():
    x = torch.zeros(3, device="tpu", requires_grad=True)
    y = torch.ones(2, 2, device="tpu")
    x.data = y
    y.mul_(3)
    assert x.tolist() == [[3, 3], [3, 3]] and x.requires_grad
    x.data.add_(1)
    assert y.tolist() == [[4, 4], [4, 4]]


def test_gradients_flow_through_views():
    def run(device):
        x = torch.arange(12.0, device=device).view(3, 4).requires_grad_()
        y = x * 2
        y[:, ::2].mul_(3)
        y.diagonal().add_(1)
        z = y.t().reshape(2, 6).unfold(1, 3, 2)
        (z.expand(2, *z.shape) * torch.arange(4.0, device=device).view(2, 2, 1, 1)[:, :, :, :1]).sum().backward()
        return x.grad.cpu()

    assert torch.equal(run("tpu"), run("cpu"))


def test_results_have_the_strides_they_have_on_cpu():
    def results(device):
        image = torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
        matrix = torch.randn(4, 3, device=device).t()
        return [
            image + 1,
            torch.relu(image),
            image.contiguous(),
            image[:, 1:].clone(),
            image[:, 1:].clone(memory_format=torch.contiguous_format),
            torch.empty_like(image),
            torch.empty_like(matrix),
            matrix.exp(),
            matrix + torch.randn(3, 4, device=device),
            matrix.reshape(-1),
            matrix.to(torch.float64),
            matrix.sum(0),
            torch.cat([image, image], 1),
            image.expand(2, 2, 3, 4, 5) * 2,
            torch.nn.functional.max_pool2d(image, 2),
            torch.nn.functional.conv2d(image, torch.randn(6, 3, 3, 3, device=device)),
            image.new_empty_strided((2, 3), (1, 2)),
        ]

    for actual, expected in zip(results("tpu"), results("cpu"), strict=True):
        assert (actual.shape, actual.stride(), actual.dtype) == (expected.shape, expected.stride(), expected.dtype)


def test_numbers_choose_how_long_a_range_is():
    assert torch.arange(1, 1, 2, device="tpu").tolist() == []
    assert torch.arange(1, 5, 2, device="tpu").tolist() == [1, 3]
    assert torch.arange(0.5, 3.1, 1.0, device="tpu").tolist() == [0.5, 1.5, 2.5]
    out = torch.arange(1, 7, 2, device="tpu")
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.arange(1, 9, 2, out=out)
    assert out.tolist() == [1, 3, 5, 7]


WINDOWS = {
    "frames of sound": lambda x: x.flatten().unfold(0, 400, 160),
    "frames whose step is odd": lambda x: x.flatten().unfold(0, 10, 3),
    "every position": lambda x: x.unfold(1, 5, 1),
    "patches": lambda x: x.view(4, 64, 16).unfold(1, 3, 2).unfold(2, 3, 2),
    "chunks with what surrounds them": lambda x: x.as_strided((3, 2 * 256, 3), (256 * 4, 4, 1), 1),
    "of a transposed matrix": lambda x: x.t().unfold(0, 6, 4),
    "every second element": lambda x: x[:, ::2].unfold(1, 8, 2),
    "expanded": lambda x: x.flatten().unfold(0, 8, 4)[:, None].expand(-1, 2, -1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_overlapping_windows_are_slices(name):
    """A gather of 6,500 windows is a loop of as many steps on a TPU."""
    x = torch.arange(4096.0).view(64, 64)
    assert torch.equal(WINDOWS[name](x.to("tpu")).clone().cpu(), WINDOWS[name](x).clone())
    with aot.topology("v6e") as recording:
        shown = WINDOWS[name](x.to("tpu")).clone()
    assert shown.shape == WINDOWS[name](x).shape
    assert "stablehlo.gather" not in recording.programs[-1].module
