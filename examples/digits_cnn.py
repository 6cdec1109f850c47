"""Trains a small convolutional network on scikit-learn's 8x8 digits, on ``tpu``.

usage: python examples/digits_cnn.py [--epochs N] [--device tpu]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from rich.progress import Progress
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.hidden = nn.Linear(32 * 4 * 4, 64)
        self.classes = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = F.dropout(F.relu(self.hidden(x.flatten(1))), 0.2, self.training)
        return self.classes(x)


def load() -> tuple[TensorDataset, TensorDataset]:
    """1,347 images to train with and 450 to test with; pixels from 0 to 1."""
    digits = load_digits()
    split = train_test_split(digits.images, digits.target, test_size=450, random_state=0, stratify=digits.target)
    train_x, test_x, train_y, test_y = (torch.as_tensor(array) for array in split)
    return (
        TensorDataset(train_x.float().unsqueeze(1) / 16, train_y),
        TensorDataset(test_x.float().unsqueeze(1) / 16, test_y),
    )


def main(epochs: int = 12, device: str = "tpu", max_steps: int | None = None) -> dict[str, float]:
    """Returns the test accuracy, and the seconds of the first step and of a steady one."""
    torch.manual_seed(0)
    train, test = load()
    # The last, smaller batch of an epoch would be a second shape, and so a second compile.
    batches = DataLoader(train, BATCH, shuffle=True, drop_last=True)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(x, y):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            x, y = test.tensors
            right = model(x.to(device)).argmax(1) == y.to(device)
        model.train()
        return right.float().mean().item()

    first_step, steady_steps = None, []
    with Progress() as progress:
        task = progress.add_task("digits", total=epochs)
        for epoch in range(epochs):
            epoch_start = time.perf_counter()
            for i, (x, y) in enumerate(batches):
                if max_steps is not None and i >= max_steps:
                    break
                start = time.perf_counter()
                loss = step(x, y)
                if first_step is None:
                    torch.accelerator.synchronize()
                    first_step = time.perf_counter() - start
            # Reading a value waits for it, so it is done once an epoch rather than once a step.
            loss_value = loss.item()
            if epoch > 0:
                steady_steps.append((time.perf_counter() - epoch_start) / len(batches))
            progress.update(task, advance=1, description=f"digits  epoch {epoch + 1:2}  loss {loss_value:.4f}")
    result = {"accuracy": accuracy(), "first_step": first_step, "steady_step": min(steady_steps, default=float("nan"))}
    print(f"test accuracy: {result['accuracy']:.2%} of {len(test)} images")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="tpu")
    main(**vars(parser.parse_args()))
