"""Training step of a small residual network: convolutions, batch norm, SGD with momentum, float32.

Images 3 x 32 x 32, batch 16; a stem, then three stages of two blocks, 16, 32 and 64 channels wide.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.steps import training_step

BATCH, CLASSES = 16, 10


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(inputs, width, 1, stride, bias=False) if inputs != width else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.skip(x))


def make_model() -> nn.Module:
    blocks, width = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for stage in (16, 32, 64):
        for i in range(2):
            blocks.append(Block(width, stage, 2 if i == 0 and stage > 16 else 1))
            width = stage
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def make_step(device: str, backend: str | None = None):
    """A function that makes one training step and returns its loss; ``backend`` of torch.compile, None: eager."""
    torch.manual_seed(0)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(BATCH, 3, 32, 32).to(device)
    y = torch.randint(0, CLASSES, (BATCH,)).to(device)
    forward = torch.compile(model, backend=backend) if backend else model
    return training_step(lambda: F.cross_entropy(forward(x), y), optimizer)
