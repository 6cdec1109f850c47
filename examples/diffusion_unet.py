"""Trains a diffusion model's UNet (of the package diffusers) on ``tpu`` to predict noise, then draws images with it.

The images are squares of one colour, made here.
usage: python examples/diffusion_unet.py [--batch N] [--size PIXELS] [--steps N] [--draw-steps N]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, UNet2DModel


def unet(size: int, channels: tuple[int, ...] = (128, 256, 512, 512), depth: int = 2) -> UNet2DModel:
    """Attention in the two lowest resolutions but one, as diffusers' own examples have it."""
    plain = len(channels) - 2
    return UNet2DModel(
        sample_size=size,
        in_channels=3,
        out_channels=3,
        layers_per_block=depth,
        block_out_channels=channels,
        norm_num_groups=min(32, channels[0] // 2),
        down_block_types=("DownBlock2D",) * plain + ("AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * plain,
    )


def main(
    steps: int = 20,
    batch: int = 16,
    size: int = 64,
    draw_steps: int = 10,
    channels: tuple[int, ...] = (128, 256, 512, 512),
    depth: int = 2,
    device: str = "tpu",
) -> dict[str, float]:
    """Returns the first and the last loss, and the seconds of the first step and of a steady one."""
    torch.manual_seed(0)
    model = unet(size, channels, depth).to(device)
    schedule = DDIMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        images = (torch.rand(batch, 3, 1, 1) * 2 - 1).expand(batch, 3, size, size)
        noise, times = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
        noisy = schedule.add_noise(images, noise, times)
        with torch.autocast(device):
            predicted = model(noisy.to(device), times.to(device)).sample
        loss = F.mse_loss(predicted.float(), noise.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)

    model.eval()
    schedule.set_timesteps(draw_steps)
    drawn = torch.randn(4, 3, size, size, device=device)
    with torch.inference_mode():
        for t in schedule.timesteps.tolist():
            drawn = schedule.step(model(drawn, t).sample, t, drawn).prev_sample
    result = {"first_loss": losses[0].item(), "last_loss": losses[-1].item(), "drawn_mean": drawn.mean().item()}
    print(f"loss {result['first_loss']:.3f} -> {result['last_loss']:.3f} in {steps} steps")
    return result | {"first_step": seconds[0], "steady_step": min(seconds[1:], default=float("nan"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 20), ("batch", 16), ("size", 64), ("draw-steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    main(**vars(parser.parse_args()))
