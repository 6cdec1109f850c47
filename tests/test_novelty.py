"""Programs that never come again are run call by call, with the same numbers."""

import torch

import torch_tpu


def counted(name: str) -> int:
    return torch_tpu.counters()[name]


def grow(steps: int, device: str) -> torch.Tensor:
    """A loop like text generation: 60 calls of one shape, among them some of a shape that grows."""
    seen = torch.full((1, 3), 0.5, device=device)
    state = torch.linspace(0, 1, 8, device=device)
    totals = []
    for _ in range(steps):
        x = state + seen.sum()
        for i in range(30):
            x = (x * 1.25).sub_(0.125) if i % 2 else torch.tanh(x).cos()
        state.copy_(x)
        seen = torch.cat([seen, x[:1].unsqueeze(0)], 1)
        totals.append(seen.sum().item())
    return torch.tensor(totals)


def test_growing_shapes_compile_a_few_calls_a_step():
    with torch_tpu.mode("defer"):
        grow(6, "tpu")  # what was compiled before does not matter; after these every call of one shape is
        compiles = counted("compiles")
        totals = grow(12, "tpu")
        # The first six steps' programs come again, and may be compiled. Each of the other six has
        # three calls of a new shape: two sums and the concatenation.
        assert counted("compiles") - compiles <= 6 + 6 * 3 + 3
    torch.testing.assert_close(totals, grow(12, "cpu"))


def test_call_by_call_gives_the_numbers_of_strict():
    with torch_tpu.mode("strict"):
        expected = grow(9, "tpu")
    with torch_tpu.mode("defer"):
        torch.testing.assert_close(grow(9, "tpu"), expected)


def test_a_loop_that_repeats_itself_is_compiled_whole():
    with torch_tpu.mode("defer"):
        for size in range(40, 46):  # many programs that never come again
            x = torch.ones(size, device="tpu")
            for _ in range(60):
                x = x + 1
            x.cpu()
        compiles, calls = counted("compiles"), counted("cache_hits")
        for _ in range(8):
            x = torch.ones(50, device="tpu")
            for _ in range(60):
                x = x * 0.5
            x.cpu()
        assert x.tolist() == [0.5**60] * 50
        # Two runs call by call at most, then the program whole: one execution each.
        assert counted("compiles") - compiles <= 4
        assert counted("cache_hits") - calls <= 2 * 62 + 6
