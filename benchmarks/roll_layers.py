"""What options={"roll_layers": True} of torch.compile changes: time to compile, text, speed, memory of a training step.

python benchmarks/roll_layers.py [LAYERS...]: each in a fresh process, with and without. Nothing is kept on disk.
"""

import json
import os
import resource
import subprocess
import sys
import time

import torch

WIDTH, TOKENS = 256, 128


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def measure(layers: int, roll: bool) -> dict[str, float]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[Block() for _ in range(layers)]).to("tpu")
    compiled = torch.compile(net, backend="tpu", options={"roll_layers": roll})
    x = torch.randn(2, TOKENS, WIDTH).to("tpu")

    def step(clock=time.perf_counter) -> float:
        start = clock()
        loss = compiled(x).square().mean()
        loss.backward()
        loss.item()
        net.zero_grad()
        torch.accelerator.synchronize()
        return clock() - start

    first = step(time.process_time)
    steady = sorted(step() for _ in range(7))[3]
    return {"first": first, "step": steady, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3] == "True")))
        return
    print("layers  rolled  first step, s of CPU  a later one, ms  peak of the process, MiB")
    for layers in map(int, sys.argv[1:] or ("12", "36")):
        for roll in (False, True):
            command = [sys.executable, __file__, "--one", str(layers), str(roll)]
            env = os.environ | {"TORCH_TPU_CACHE": "0"}
            found = json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(f"{layers:6}  {roll!s:6}  {found['first']:20.1f}  {found['step'] * 1e3:15.0f}  {found['peak']:24.0f}")


if __name__ == "__main__":
    main()
