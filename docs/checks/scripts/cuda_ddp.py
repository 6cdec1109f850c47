"""A script as it is written for CUDA and torchrun: nccl, DistributedDataParallel, mixed precision, a sampler a rank."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)

net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
model = DistributedDataParallel(net, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(8192, 784), torch.randint(0, 10, (8192,)))
loader = DataLoader(data, 512, sampler=DistributedSampler(data), pin_memory=False)
for epoch in range(3):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda"):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch}: loss {total.item() / dist.get_world_size():.3f}")
dist.destroy_process_group()
