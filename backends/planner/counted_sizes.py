"""A net for images by what its layers hold and send, counted on a built net.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``sizes_of_net.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from minigrad import nn
from minigrad.module import Module, Sequential
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.work import Loss

from ..model_parallel.plan import SECOND, Choice, choose, layers_of, widths
from .layout import Layout, Place
from .net_sizes import NetSizes, StageCosts, passes
from .transfers import AllReduce

ROWS = 2  # samples of which a tape is counted


@dataclass(frozen=True, eq=False)
class CountedSizes(NetSizes):
    """The layers of ``model``, a Sequential, for inputs of shape ``sample``.

    The model axis splits layers by the default plan (``model_parallel/plan.py``): half of its numbers are
    sent forward, and a part of a layer has a p-th of its weights and operations. Activations are those of
    whole layers, which is more than ranks of the model axis hold.
    """

    model: Sequential
    sample: tuple[int, ...]
    loss: Loss
    states: int = 1  # momentum
    itemsize: int = 4
    targets: Callable[[np.ndarray], np.ndarray] = np.asarray

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """Numbers of a sample before and after each layer."""
        return widths(list(self.model.children().items()), self.sample)

    def output(self, layer: int, layout: Layout, place: Place) -> int:
        return self.sizes[layer][1]

    def work(self) -> Sequence[float]:
        return self.operations

    @cached_property
    def operations(self) -> list[float]:
        """Twice the weights of linear layers, and those of convolutions for each place of their output."""
        pairs = zip(self.model.layers, self.sizes, strict=True)
        return [sum(operations(layer, after) for layer in layer.modules()) for layer, (_, after) in pairs]

    @cached_property
    def activations(self) -> list[float]:
        """Bytes that a tape holds of a sample in each layer; in the last one also in the loss."""
        x, counts = Tensor(np.zeros((ROWS, *self.sample), np.float32)), [0]
        with Tape() as tape:
            for layer in self.model.layers:
                x = layer(x)
                counts.append(tape.nbytes)
            self.loss(x, self.targets(np.zeros(ROWS, int)))
        counts[-1] = tape.nbytes
        return (np.diff(counts) / ROWS).tolist()

    def reason_against(self, layout: Layout, batch: int) -> str | None:
        if layout.sequence > 1 or layout.split_tokens or layout.expert_parallel:
            return "an image has no tokens"
        if reason := super().reason_against(layout, batch):
            return reason
        ranks, layers = layout.model, dict(layers_of(self.model))
        split = [choice for choice in self.choices(ranks, batch // layout.data) if choice.kind]
        # Neurons or channels of the layers that the default plan splits.
        neurons = (layers[c.name].parameters()[0].shape[c.kind in SECOND.values()] for c in split)
        narrow = min(neurons, default=0)
        return f"{ranks} ranks share {narrow} neurons" if ranks > 1 and narrow < ranks else None

    @lru_cache(maxsize=256)  # noqa: B019
    def choices(self, ranks: int, rows: int) -> list[Choice]:
        """The default plan for ``rows`` samples on each rank of the data axis, and what it sends."""
        return choose(self.model, ranks, rows, self.sample)

    def whole_bias(self, choice: Choice) -> int:
        """The numbers that every rank has of a layer that is split by its inputs."""
        weights = dict(layers_of(self.model))[choice.name].parameters()
        return weights[1].size if choice.kind in SECOND.values() and len(weights) > 1 else 0

    def stage(self, layers: range, layout: Layout, place: Place, rows: int, batch: int) -> StageCosts:
        whole = max(batch // layout.data, 1)
        by_name: Mapping[str, Choice] = {c.name: c for c in self.choices(layout.model, whole)}
        costs = StageCosts()
        for i in layers:
            layer = self.model.layers[i]
            mine = [c for name, c in by_name.items() if name.partition(".")[0] == str(i)]
            sent = sum(c.activations for c in mine) * rows / whole
            numbers = round(sent * layout.model / max(layout.model - 1, 1) / 4)  # of each of two sums
            sums = [AllReduce(numbers, layout.model)] if numbers else []
            ranks = layout.model if any(c.kind for c in mine) else 1
            biases = sum(self.whole_bias(c) for c in mine) * (1 - 1 / layout.model)
            forward = rows * self.operations[i] / ranks
            costs = costs.plus(
                StageCosts(
                    parameters=round(sum(c.weights for c in mine) / 2 + biases),
                    tensors=len(layer.parameters()),
                    forward=forward,
                    backward=2 * forward,
                    activations=rows * self.activations[i],
                    model=passes(sums, sums),
                )
            )
        return costs


def operations(layer: Module, after: int) -> float:
    """Operations of a layer forward for one sample, of which it makes ``after`` numbers."""
    if isinstance(layer, nn.Linear):
        return 2.0 * math.prod(layer.weight.shape)
    if isinstance(layer, nn.Conv2d):
        return 2.0 * after * math.prod(layer.weight.shape[1:])
    return 0.0
