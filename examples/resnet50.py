"""Trains a ResNet-50 on ``tpu``: SGD with momentum, bfloat16 autocast, channels-last images.

The images are random ones, made here: put your own dataset in their place.
usage: python examples/resnet50.py [--batch N] [--size PIXELS] [--steps N]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 1000


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm3.weight)  # a block starts as its shortcut
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """With the default arguments a ResNet-50: 25.6 million parameters."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = CLASSES):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages, inputs = [], width
        for i, count in enumerate(blocks):
            stage_width = width << i
            for j in range(count):
                stages.append(Bottleneck(inputs, stage_width, stride=2 if i > 0 and j == 0 else 1))
                inputs = 4 * stage_width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class RandomImages(Dataset):
    """Images [3, size, size] of noise around a colour of their class."""

    def __init__(self, count: int, size: int, classes: int):
        self.count, self.size, self.classes = count, size, classes

    def __len__(self):
        return self.count

    def __getitem__(self, i: int):
        generator = torch.Generator().manual_seed(i)
        label = i % self.classes
        colour = torch.tensor([label % 3, label // 3 % 3, label // 9]).float().view(3, 1, 1)
        return colour + torch.randn(3, self.size, self.size, generator=generator), label


def main(
    steps: int = 20,
    batch: int = 128,
    size: int = 224,
    device: str = "tpu",
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    width: int = 64,
    classes: int = CLASSES,
    lr: float = 0.1,
) -> dict[str, float]:
    """Returns the first and the last loss, and the seconds of the first step and of a steady one."""
    torch.manual_seed(0)
    model = ResNet(blocks, width, classes).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    images = DataLoader(RandomImages(steps * batch, size, classes), batch, shuffle=True, drop_last=True)
    losses, seconds = [], []
    for x, y in images:
        start = time.perf_counter()
        x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
        with torch.autocast(device):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)
    result = {"first_loss": losses[0].item(), "last_loss": losses[-1].item()}
    print(f"loss {result['first_loss']:.3f} -> {result['last_loss']:.3f} in {len(losses)} steps")
    return result | {"first_step": seconds[0], "steady_step": min(seconds[1:], default=float("nan"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    main(**vars(parser.parse_args()))
