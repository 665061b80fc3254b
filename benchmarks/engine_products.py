"""The matrix products of a training step, in NumPy and in PyTorch: what of a ratio is the BLAS.

minigrad's own products, those of convolutions by im2col, by shape, layout and order, on random numbers.
PyTorch gets the same products in rows (its own linear layers have the same ones; its convolutions work
otherwise).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from engine_workloads import Step

from minigrad.ops.fast.im2col import FEW_CHANNELS, parts_of

Pairs = dict[str, list[tuple[Any, Any]]]  # what is multiplied, by purpose
GEMMS = {  # linear: batch, in, out; convolution 3 x 3: images, pixels, in, out
    "W1": [(128, 784, 128), (128, 128, 128), (128, 128, 10)],
    "W2": [(256, 1024, 2048), (256, 2048, 2048), (256, 2048, 10)],
    "W3": [(64, 28 * 28, 1, 16), (64, 14 * 14, 16, 32), (64, 1568, 128), (64, 128, 10)],
}
IMAGES = 4  # whose windows are multiplied at a time, so that they stay in cache


def product_peers(name: str) -> dict[str, Step]:
    """Functions that do all products of one purpose, as peers to be timed."""
    peers: dict[str, Step] = {}
    for library in ("numpy", "torch") if name in GEMMS else ():
        for kind, pairs in products(GEMMS[name], library).items():
            peers[f"{library} {kind}"] = lambda pairs=pairs: float(sum(len(a @ b) for a, b in pairs))
    return peers


def products(shapes: Sequence[tuple[int, ...]], library: str) -> Pairs:
    """The products of all layers; nobody asks for the gradient of the data."""
    results: Pairs = {"forward": [], "input gradient": [], "weight gradient": []}
    for i, shape in enumerate(shapes):
        layer = (linear if len(shape) == 3 else convolution)(*shape, library=library, data=i == 0)
        for kind, pairs in layer.items():
            if i or kind != "input gradient":
                results[kind] += pairs
    return results


def linear(batch: int, n_in: int, n_out: int, *, library: str, data: bool) -> Pairs:
    x, g, w = normal((batch, n_in), (batch, n_out), (n_out, n_in))
    if library == "torch":
        x, g, w = map(torch.from_numpy, (x, g, w))
        return {"forward": [(x, w.T)], "input gradient": [(g, w)], "weight gradient": [(g.T, x)]}
    x, g = x if data else np.asfortranarray(x), np.asfortranarray(g)  # features first, but for the data
    return {"forward": [(w, x.T)], "input gradient": [(w.T, g.T)], "weight gradient": [(g.T, x)]}


def convolution(images: int, pixels: int, n_in: int, n_out: int, *, library: str, data: bool) -> Pairs:
    """The products of a convolution: the windows of a few images again and again, as if others came."""
    windows, times, size = IMAGES * pixels, images // IMAGES, 9 * n_in
    x, g, w = normal((windows, size), (windows, n_out), (size, n_out))
    around, turned = normal((windows, 9 * n_out), (9 * n_out, n_in))
    if library == "torch":
        x, g, w, around, turned = map(torch.from_numpy, (x, g, w, around, turned))
        pairs = (x, w), (around, turned), (x.T, g)
    else:
        n, _ = parts_of(len(x), size, n_out)
        x = (np.asfortranarray(x) if n_in < FEW_CHANNELS else x).reshape(n, -1, size)
        around = around.reshape(parts_of(len(around), 9 * n_out, n_in)[0], -1, 9 * n_out)
        pairs = (x, w), (around, turned), (x.transpose(0, 2, 1), g.reshape(n, -1, n_out))
    kinds = "forward", "input gradient", "weight gradient"
    return {kind: [pair] * times for kind, pair in zip(kinds, pairs, strict=True)}


def normal(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def compare_products(times: dict[str, list[float]]) -> dict[str, float]:
    """NumPy's time over PyTorch's per kind of product and in all, and minigrad's ratio if they were level."""
    kinds = [peer.removeprefix("numpy ") for peer in times if peer.startswith("numpy ")]
    ratios = {kind: median_ratio(times[f"numpy {kind}"], times[f"torch {kind}"]) for kind in kinds}
    numpy, pytorch = ([sum(ts) for ts in zip(*(times[f"{lib} {kind}"] for kind in kinds), strict=True)]
                      for lib in ("numpy", "torch"))  # fmt: skip
    level = [m - n + t for m, n, t in zip(times["minigrad"], numpy, pytorch, strict=True)]
    return ratios | {
        "all": median_ratio(numpy, pytorch),
        "numpy ms": statistics.median(numpy) * 1000,
        "torch ms": statistics.median(pytorch) * 1000,
        "ratio on one BLAS": median_ratio(level, times["torch"]),
    }


def described_products(name: str, sgemm: dict[str, float]) -> str:
    return f"{name}, sgemm, NumPy / PyTorch: " + ", ".join(f"{what} {x:.2f}" for what, x in sgemm.items())


def median_ratio(times: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(t / other for t, other in zip(times, others, strict=True))
