"""A training loop in ``defer`` mode holds no more memory after many steps than after some."""

import ctypes
import gc

import pytest
import torch

import torch_tpu


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def bytes_in_use() -> int:
    """Of the C library's heap: finer than what the process holds in pages."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("the C library tells nothing of its heap")
    libc.mallinfo2.restype = _Mallinfo2
    gc.collect()
    return libc.mallinfo2().uordblks


@pytest.mark.parametrize("how", ["defer", "strict", "torch.compile"])
def test_steps_leave_nothing_behind(how):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2))
    model.to("tpu")
    run = torch.compile(model) if how == "torch.compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    x, y = torch.randn(4, 8).to("tpu"), torch.randint(0, 2, (4,)).to("tpu")

    def steps(n: int) -> None:
        for i in range(n):
            loss = torch.nn.functional.cross_entropy(run(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if i % 10 == 0:
                loss.item()
        torch.tpu.synchronize()

    with torch_tpu.mode("strict" if how == "strict" else "defer"):
        # The journal keeps the last 512 events of a kind.
        steps(600)
        before = bytes_in_use()
        steps(300)
        grown = bytes_in_use() - before
    # A step of this model makes some fifty buffers of 100 to 500 bytes.
    assert grown / 300 < 200, f"{grown / 300:.0f} bytes a step"
