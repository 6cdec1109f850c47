"""A script with an op that no TPU program can hold: the eigenvalues of a matrix that is not symmetric."""

import torch

torch.manual_seed(0)
weight = torch.randn(64, 64, device="tpu", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(10):
    spread = torch.linalg.eigvals(weight.detach()).abs().max()
    loss = (weight @ weight.T - torch.eye(64, device="tpu")).square().sum() / spread
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
