"""A training script that does not fit one chip: 4.3 billion parameters in float32, with AdamW's two states each."""

import torch
from torch import nn

WIDTH, LAYERS, TOKENS = 8192, 16, 4096


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


with torch.device("tpu"):
    model = nn.Sequential(*(Block() for _ in range(LAYERS)))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    x = torch.randn(TOKENS, WIDTH, device="tpu")
    with torch.autocast("tpu"):
        loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
