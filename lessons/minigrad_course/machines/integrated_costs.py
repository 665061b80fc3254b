"""The time that messages take when the batch, the model, the images, or batch and model are split.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. The formulas of Gholami, Azad, Jin,
Keutzer and Buluc 2018, "Integrated model, batch and domain parallelism in training neural networks".
P = Pr Pc ranks, of which Pr share the model and Pc the batch of B samples; layer i has |W_i| weights and d_i
outputs per sample. A collective of n numbers over P ranks takes alpha ceil(log2 P) + beta n (P - 1) / P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class LayerSize(NamedTuple):
    """A layer's weights, outputs per sample, and the numbers in one row of its halos.

    ``inputs`` are its inputs per sample, where a pooling makes them fewer than the outputs of the layer
    before; the published formulas count these outputs, and ``inputs`` only where the layer before is split
    otherwise. ``halo_in`` is the input's width times channels times half the kernel's height, rounded
    down; ``halo_out`` the same of the output and the kernel's width: 0 for layers that have no halo.
    """

    weights: int
    outputs: int
    halo_in: int = 0
    halo_out: int = 0
    inputs: int | None = None


class Network(NamedTuple):
    """``alpha`` seconds for each message, ``beta`` seconds for each number."""

    alpha: float
    beta: float

    def collective(self, ranks: int, numbers: float) -> float:
        """Seconds of an all-gather or reduce-scatter of ``numbers`` in total."""
        if ranks == 1:
            return 0.0
        return self.alpha * math.ceil(math.log2(ranks)) + self.beta * numbers * (ranks - 1) / ranks


def batch_seconds(net: Network, layers: Sequence[LayerSize], ranks: int, batch: int) -> float:
    """Pure batch parallelism: an all-reduce of every weight. ValueError for more ranks than samples."""
    if ranks > batch:
        raise ValueError(
            f"{ranks} ranks cannot share a batch of {batch} samples; take at most {batch} ranks, "
            "or split the model too"
        )
    return 2 * sum(net.collective(ranks, layer.weights) for layer in layers)


def model_seconds(net: Network, layers: Sequence[LayerSize], ranks: int, batch: int) -> float:
    """Pure model parallelism: all-gather every output, all-reduce every input's gradient but the first."""
    forward = sum(net.collective(ranks, batch * layer.outputs) for layer in layers)
    backward = 2 * sum(net.collective(ranks, batch * layer.outputs) for layer in layers[:-1])
    return forward + backward


def domain_seconds(net: Network, layers: Sequence[LayerSize], ranks: int, batch: int) -> float:
    """Images split over ranks: halos to the neighbour both ways, and an all-reduce of every weight."""
    halos = [halo for layer in layers for halo in (layer.halo_in, layer.halo_out) if ranks > 1]
    seconds = sum(net.alpha + net.beta * batch * halo for halo in halos)
    return seconds + 2 * sum(net.collective(ranks, layer.weights) for layer in layers)


def integrated_seconds(
    net: Network, layers: Sequence[LayerSize], rows: int | Sequence[int], ranks: int, batch: int
) -> float:
    """1.5D: Pr ``rows`` share the model and ranks / Pr the batch; a number for each layer, or one for all.

    Pr = 1 is ``batch_seconds``, Pr = ranks is ``model_seconds``. Where the layer before has another Pr, the
    layer's own inputs are sent. Raises ValueError where Pr does not divide the ranks or the batch has
    fewer samples than ranks that share it.
    """
    by_layer = [rows] * len(layers) if isinstance(rows, int) else list(rows)
    total = 0.0
    for i, (layer, pr) in enumerate(zip(layers, by_layer, strict=True)):
        if pr < 1 or ranks % pr:
            raise ValueError(f"{pr} ranks that share the model must divide all {ranks} ranks")
        pc = ranks // pr
        if pc > batch:
            raise ValueError(
                f"{pc} ranks cannot share a batch of {batch} samples; "
                f"let at least {-(-ranks // batch)} share the model"
            )
        total += net.collective(pr, batch / pc * layer.outputs)
        if i:
            before = layers[i - 1].outputs
            inputs = before if by_layer[i - 1] == pr else layer.inputs or before
            total += 2 * net.collective(pr, batch / pc * inputs)
        total += 2 * net.collective(pc, layer.weights / pr)
    return total


def best_rows(
    net: Network, layers: Sequence[LayerSize], ranks: int, batch: int, *, only: Sequence[bool] | None = None
) -> tuple[int, float]:
    """The cheapest Pr and its seconds; layers that ``only`` does not name keep Pr = 1."""
    costs = []
    for pr in (pr for pr in range(1, ranks + 1) if ranks % pr == 0):
        rows = [pr if split else 1 for split in only or [True] * len(layers)]
        if all(ranks // r <= batch for r in rows):
            costs.append((integrated_seconds(net, layers, rows, ranks, batch), pr))
    if not costs:
        raise ValueError(f"no Pr lets {ranks} ranks share a batch of {batch} samples in this way")
    seconds, pr = min(costs)
    return pr, seconds


ALEXNET = (
    LayerSize(34_848, 55 * 55 * 96, 227 * 3 * 5, 55 * 96 * 5),
    LayerSize(614_400, 27 * 27 * 256, 27 * 96 * 2, 27 * 256 * 2),
    LayerSize(884_736, 13 * 13 * 384, 13 * 256, 13 * 384),
    LayerSize(1_327_104, 13 * 13 * 384, 13 * 384, 13 * 384),
    LayerSize(884_736, 13 * 13 * 256, 13 * 384, 13 * 256),
    LayerSize(37_748_736, 4096, inputs=6 * 6 * 256),
    LayerSize(16_777_216, 4096),
    LayerSize(4_096_000, 1000),
)
"""The single-tower AlexNet: convolutions (11x11, 5x5, 3x3, 3x3, 3x3) and three linear layers, no biases."""
