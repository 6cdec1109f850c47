"""Proves that anything works at all, in seconds. The pre-commit hook runs it."""

import torch


def test_a_matrix_product_equals_the_cpus():
    a, b = torch.randn(2, 2), torch.randn(2, 2)
    torch.testing.assert_close((a.to("tpu") @ b.to("tpu")).cpu(), a @ b)


def test_a_gradient_equals_the_cpus():
    x = torch.randn(3, requires_grad=True)
    y = x.detach().to("tpu").requires_grad_()
    (x.tanh() * x).sum().backward()
    (y.tanh() * y).sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_a_write_through_a_view_is_seen():
    x = torch.zeros(2, 3, device="tpu")
    x[:, 1] = 5
    x.t()[2].add_(1)
    assert x.tolist() == [[0, 5, 1], [0, 5, 1]]


def test_an_optimizer_step_equals_the_cpus():
    layers = [torch.nn.Linear(2, 1) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].to("tpu")
    for layer, device in zip(layers, ("cpu", "tpu"), strict=True):
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        layer(torch.ones(3, 2, device=device)).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(layers[1].weight.cpu(), layers[0].weight)
