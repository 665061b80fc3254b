"""What a net of the command line costs, and the operations of its products in a training step.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``cli/plan_command.py``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from minigrad.models import Net
from minigrad.module import Sequential

from .counted_sizes import CountedSizes
from .net_sizes import NetSizes
from .transformer_sizes import TransformerSizes


def sizes_of(net: Net) -> NetSizes:
    """What a net costs; ValueError for heads that do not divide the width."""
    states = 2 if net.optimizer == "adamw" else int(net.momentum > 0)
    if not net.sizes:
        model: Any = net.build(np.random.default_rng(0))
        assert isinstance(model, Sequential)
        return CountedSizes(model, net.sample, net.loss, states, targets=net.targets)
    names = {field.name for field in fields(TransformerSizes)}
    sizes = TransformerSizes(**{n: v for n, v in net.sizes.items() if n in names}, states=states)
    if sizes.width % sizes.heads:
        raise ValueError(f"{sizes.heads} heads do not divide a width of {sizes.width}; pass other --heads")
    return sizes


def operations_of_sample(net: Net) -> float:
    """The operations of matrix products and convolutions for one sample, forward and backward.

    Backward takes twice as many as forward: for the gradients of inputs, but for those of images, which need
    none, and of weights. Fast algorithms of convolutions do with fewer.
    """
    work = [operations for operations in sizes_of(net).work() if operations]
    return 3 * sum(work) - (0 if net.sizes else sum(work[:1]))
