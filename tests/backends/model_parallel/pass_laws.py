"""Laws of backends/model_parallel/model_parallel.py: one pass through a split model is one pass through
the serial one, also in the gradient of the input.

Lecture section: model parallelism. Lesson: 11_model_parallel. ``trains_like_serial`` does not check the
gradient of the images, which only a layer in front of the model would need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm.communicator import Communicator
from backends.laws import MakeStrategy, bound_for, distances
from minigrad.device import Array
from minigrad.module import Module
from minigrad.serial import Serial
from minigrad.tape import Tape
from minigrad.tensor import Tensor


def passes_like_serial(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Callable[[], Module],
    x: Array,
    *,
    bound: float | None = None,
    seed: int = 0,
) -> None:
    """Assert that output, gradients (the input's too) and running statistics are serial on this rank.

    One forward and one backward from a random gradient of the output.
    ``build`` returns the same model at each call, in ``x``'s dtype. Differences are relative to
    the scale that ``distances`` gives, and at most ``bound_for(x.dtype)`` unless another bound is given.
    """
    bound = bound_for(x.dtype) if bound is None else bound
    results = []
    for backend in (Serial(), strategy(comm)):
        model, leaf = backend.place(build()), Tensor(x, requires_grad=True)
        with Tape() as tape:
            y = model(leaf)
        tape.backward(y, np.random.default_rng(seed).normal(size=y.shape))
        backend.finish(model, 0.0)
        values: dict[str, Any] = {"output": y.numpy(), **backend.state.full_state(model)}
        gradients: dict[str, Any] = {"input gradient": leaf.grad, **backend.state.full_gradients(model)}
        results.append((values, gradients))
    wrong = [pair for pairs in zip(*results, strict=True) for pair in distances(*pairs).items()]
    text = ", ".join(f"{name} by {relative:.2e}" for name, (_, relative) in wrong if not relative <= bound)
    assert not text, f"rank {comm.rank} of {comm.size} differs from serial, of the scale: {text}"
