"""The transformer that ``engine.py`` times as W7, in minigrad and in PyTorch from the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad import Tape, models, nn, optim
from minigrad.device import to_device

try:
    import torch  # pyright: ignore[reportMissingImports]
    import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
except ImportError:  # minigrad's own steps need none
    torch: Any = None
    F: Any = None

Step = Callable[[], float]
LR, DECAY = 2e-3, 0.01
WRITTEN_OUT = "torch, attention written out"


@dataclass
class Transformer:
    """A training step of a causal transformer: forward, backward and AdamW; there is no dropout.

    PyTorch's peers are two: its fused attention, and its products, mask and softmax one by one.
    """

    title: str = "transformer of 4 blocks, width 256, 4 heads, 16 rows of 128 symbols"
    target: float = 0.95
    tolerance: float = 1e-4
    symbols: int = 93
    length: int = 128
    samples: int = 16
    width: int = 256
    heads: int = 4
    blocks: int = 4

    def peers(self, device: str) -> dict[str, Step]:
        rng = np.random.default_rng(0)
        sizes = {"symbols": self.symbols, "length": self.length, "width": self.width}
        model = models.transformer(rng, **sizes, heads=self.heads, blocks=self.blocks)
        symbols = rng.integers(0, self.symbols, (self.samples, self.length + 1))
        x, y = symbols[:, :-1].copy(), symbols[:, 1:].copy()
        weights = {name: w.copy() for name, w in model.state_dict().items()}
        peers = {"minigrad": minigrad_step(model, x, y, device)}
        for name, attention in (("torch", fused), (WRITTEN_OUT, written_out)):
            peers[name] = self.torch(weights, x, y, attention, "cpu" if device == "numpy" else "cuda")
        return peers

    def torch(
        self, weights: dict[str, Any], x: Any, y: Any, attention: Callable[..., Any], where: str
    ) -> Step:
        w = {name: torch.tensor(array, device=where, requires_grad=True) for name, array in weights.items()}
        last = f"{self.blocks + 2}.weight"
        w[last] = w["0.weight"]  # one table
        x, y = torch.from_numpy(x).to(where), torch.from_numpy(y).to(where)
        optimizer = torch.optim.AdamW({id(p): p for p in w.values()}.values(), LR, weight_decay=DECAY)

        def norm(x: Any, name: str) -> Any:
            return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

        def linear(x: Any, name: str) -> Any:
            return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

        def attend(x: Any, name: str) -> Any:
            qkv = F.linear(x, w[f"{name}.qkv.weight"]).unflatten(-1, (self.heads, -1))
            q, k, v = (part.transpose(1, 2) for part in qkv.chunk(3, -1))
            return linear(attention(q, k, v).transpose(1, 2).flatten(2), f"{name}.out")

        def step() -> float:
            optimizer.zero_grad()
            h = F.embedding(x, w["0.weight"]) + w["0.position"]
            for i in range(1, self.blocks + 1):
                h = h + attend(norm(h, f"{i}.norm1"), f"{i}.attention")
                hidden = F.gelu(linear(norm(h, f"{i}.norm2"), f"{i}.feed_forward.0"))
                h = h + linear(hidden, f"{i}.feed_forward.2")
            scores = F.linear(norm(h, f"{self.blocks + 1}"), w[last])
            loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            return loss.item()

        return step


def minigrad_step(model: nn.Module, x: np.ndarray, y: np.ndarray, device: str) -> Step:
    model.to(device=device)
    x, y = to_device(x, device), to_device(y, device)
    optimizer = optim.AdamW(model.parameters(), LR, weight_decay=DECAY)
    loss_of = nn.CrossEntropyLoss(class_axis=-1)

    def step() -> float:
        optimizer.zero_grad()
        with Tape() as tape:
            loss = loss_of(model(x), y)
        tape.backward(loss)
        optimizer.step()
        return loss.item()

    return step


def fused(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def written_out(q: Any, k: Any, v: Any) -> Any:
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(later, -torch.inf)
    return F.softmax(scores, -1) @ v
