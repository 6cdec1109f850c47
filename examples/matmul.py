"""The first check: a 2x2 matrix product on ``tpu``, against the CPU's.

usage: python examples/matmul.py
"""

import time

import torch


def main() -> dict[str, float]:
    """Prints both products. Returns the seconds of the first and of a later product on ``tpu``."""
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    b = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    expected = a @ b

    on_tpu_a, on_tpu_b = a.to("tpu"), b.to("tpu")
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        product = on_tpu_a @ on_tpu_b
        torch.tpu.synchronize()
        seconds.append(time.perf_counter() - start)

    print(f"on the CPU:   {expected.tolist()}")
    print(f"on {product.device}:     {product.tolist()}")
    torch.testing.assert_close(product.cpu(), expected)
    return {"first_step": seconds[0], "steady_step": min(seconds[1:])}


if __name__ == "__main__":
    main()
