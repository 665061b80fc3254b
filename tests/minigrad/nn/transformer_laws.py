"""Laws of minigrad/nn/attention.py, transformer_block.py and token_embedding.py: a block is its definition,
with the gradients of differences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad import Tape, Tensor
from minigrad.device import to_host
from minigrad.module import Module
from minigrad.testing import is_float, on_device
from tests.minigrad.ops.attention_laws import attention_by_loops


def is_a_block(block: Module, heads: int, x: np.ndarray, documents: np.ndarray | None = None) -> None:
    """``block`` is the causal pre-norm block, written for one head at a time, of the arrays of its state."""
    w = {name: to_host(array) for name, array in block.state_dict().items()}
    masks = {} if documents is None else {"documents": on_device(documents)}
    value = to_host(block(on_device(x), **masks).data)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    neurons, size, results = norm(x, "norm1") @ w["attention.qkv.weight"].T, x.shape[-1] // heads, []
    for start in range(0, 3 * size * heads, 3 * size):  # neurons of a head: queries, keys, values
        q, k, v = (neurons[..., None, start + i * size : start + (i + 1) * size] for i in range(3))
        (o, *_), _ = attention_by_loops(0 * v, q, k, v, causal=True, documents=documents)
        results.append(o[:, :, 0])
    x = x + linear(np.concatenate(results, -1), "attention.out")
    h = linear(norm(x, "norm2"), "feed_forward.0")
    h = h * (1 + np.vectorize(math.erf, otypes=[float])(h / math.sqrt(2))) / 2
    np.testing.assert_allclose(value, x + linear(h, "feed_forward.2"), rtol=1e-11, atol=1e-11)


def gradients_are_differences(model: Module, x: np.ndarray, **masks: Any) -> None:
    """Those of each parameter of a float64 model, and of x where it has floats, each along a direction."""
    rng, leaf = np.random.default_rng(0), Tensor(on_device(x), requires_grad=is_float(x))
    with Tape() as tape:
        y = model(leaf, **masks)
    seed = rng.normal(size=y.shape)
    tape.backward(y, on_device(seed))
    for p in {id(p): p for p in [*model.parameters(), *[leaf] * is_float(x)]}.values():
        assert p.grad is not None, f"a parameter of shape {p.shape} has no gradient"
        before, direction, ends = p.data.copy(), on_device(rng.normal(size=p.shape)), []
        for step in (1e-5, -1e-5, 2e-5, -2e-5):
            p.data[...] = before + step * direction
            ends.append(float((to_host(model(leaf, **masks).data) * seed).sum()))
        p.data[...] = before
        # Of fourth order: a norm of two features that are nearly equal bends within 1e-2.
        slope = float((p.grad * direction).sum())
        difference = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / 12e-5
        assert abs(slope - difference) <= 1e-7 * (1 + abs(slope) + np.abs(to_host(y.data) * seed).sum()), (
            f"the slope along a parameter of shape {p.shape} is {slope}, the difference {difference}"
        )


def documents_are_alone(block: Module, x: np.ndarray, documents: np.ndarray) -> None:
    """Tokens of a document in a packed row are as in a row of their own, whatever padding says."""
    together = to_host(block(on_device(x), documents=on_device(documents)).data)
    padding = documents < 0
    other = np.where(padding[..., None], 7.0, x)
    again = to_host(block(on_device(other), documents=on_device(documents)).data)
    np.testing.assert_array_equal(again[~padding], together[~padding])
    for i, row in enumerate(documents):
        for document in set(row[row >= 0].tolist()):
            places = row == document
            alone = to_host(block(on_device(x[i : i + 1, places])).data)[0]
            np.testing.assert_allclose(together[i, places], alone, rtol=1e-11, atol=1e-11)
