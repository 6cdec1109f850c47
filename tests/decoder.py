"""A decoder such as Llama, without positions: what several test files spread over devices."""

import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    def __init__(self, width: int, inner: int, heads: int, key_heads: int):
        super().__init__()
        self.size = width // heads
        self.before, self.between = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.query, self.out = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (torch.nn.Linear(width, key_heads * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (torch.nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x):
        h = self.before(x)
        q, k, v = (f(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(torch.nn.Module):
    """Returns the loss of predicting the next id. ``key_heads``: as many as ``heads`` by default."""

    def __init__(self, vocabulary=4096, width=4096, inner=8192, heads=32, layers=3, key_heads=None):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.Sequential(*(Layer(width, inner, heads, key_heads or heads) for _ in range(layers)))
        self.norm = torch.nn.RMSNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        logits = self.head(self.norm(self.layers(self.tokens(ids)))).float()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
