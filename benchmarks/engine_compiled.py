"""Compiled peers of ``engine_workloads.py``: a step by torch.compile, and by jax.jit, where they work.

Both compile loss and gradients, and the optimizer's update, for one thread. jax.jit has linear layers alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

LR, MOMENTUM = 0.05, 0.9
Step = Callable[[], float]


def compiled_steps(
    torch_parts: Callable[[], tuple[Any, Any, Any, Any]], layers: list[tuple], weights: dict, x: Any, y: Any
) -> dict[str, Step]:
    """Steps by name; what is not installed, or cannot compile the network, is left out with a word."""
    makers: dict[str, Callable[[], Step]] = {
        "torch.compile": lambda: by_torch(*torch_parts()),
        "jax.jit": lambda: by_jax(layers, weights, x, y),
    }
    steps: dict[str, Step] = {}
    for name, make in makers.items():
        try:
            steps[name] = make()
        except Exception as error:
            print(f"{name} is left out: {' '.join(str(error).split())[:100]}")
    return steps


def by_torch(model: Any, optimizer: Any, x: Any, y: Any) -> Step:
    import torch  # pyright: ignore[reportMissingImports]

    loss_of = torch.compile(lambda: torch.nn.functional.cross_entropy(model(x), y))
    update = torch.compile(optimizer.step)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        update()
        return loss.item()

    step()  # compiles
    model.load_state_dict(state)
    for moments in optimizer.state.values():
        moments["momentum_buffer"].zero_()
    return step


def by_jax(layers: list[tuple], weights: dict, x: np.ndarray, y: np.ndarray) -> Step:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax  # pyright: ignore[reportMissingImports]
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]

    if other := [name for name, *_ in layers if name not in ("linear", "relu")]:
        raise ValueError(f"no {other[0]} is written for it")

    def loss_of(parameters: dict, x: Any, y: Any) -> Any:
        for i, (name, *_) in enumerate(layers):
            if name == "relu":
                x = jax.nn.relu(x)
            else:
                x = x @ parameters[f"{i}.weight"].T + parameters[f"{i}.bias"]
        return -jnp.mean(jax.nn.log_softmax(x)[jnp.arange(len(y)), y])

    def update(parameters: dict, moments: dict, x: Any, y: Any) -> tuple[Any, dict, dict]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        moments = {name: MOMENTUM * v + gradients[name] for name, v in moments.items()}
        return loss, {name: w - LR * moments[name] for name, w in parameters.items()}, moments

    compiled = jax.jit(update, donate_argnums=(0, 1))
    parameters = {name: jnp.array(w) for name, w in weights.items()}
    moments = {name: jnp.zeros_like(w) for name, w in parameters.items()}
    x, y = jnp.asarray(x), jnp.asarray(y)

    def step() -> float:
        nonlocal parameters, moments
        loss, parameters, moments = compiled(parameters, moments, x, y)
        return float(loss)

    return step
