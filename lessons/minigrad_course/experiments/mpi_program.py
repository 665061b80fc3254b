"""The article's training as one writes it with mpi4py alone: Bcast, Scatterv and Gather in every iteration.

``mpiexec -n 2 python mpi_program.py`` trains it; nothing here is minigrad's but the digits.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

RATE, ITERATIONS = 2.0, 1000


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def cost_and_gradient(
    w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The logistic cost, and its gradient by w1, b1, w2 and b2, summed over the samples, in one vector."""
    hidden = sigmoid(x @ w1.T + b1)
    z = hidden @ w2.T + b2
    cost = (np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))).sum()
    d2 = sigmoid(z) - y
    d1 = d2 @ w2 * hidden * (1 - hidden)
    grads = (d1.T @ x, d1.sum(axis=0), d2.T @ hidden, d2.sum(axis=0))
    return np.concatenate([[cost], *(g.ravel() for g in grads)])


def train(
    comm: MPI.Comm,
    x: np.ndarray | None,
    y: np.ndarray | None,
    weights: list[np.ndarray],
    rate: float,
    iterations: int,
) -> list[float]:
    """The cost of every iteration, on rank 0, which has the samples x (n, pixels) and y (n, 10), float64."""
    n, pixels = comm.bcast((0, 0) if x is None else (len(x), x.shape[1]))
    counts = [n // comm.size + (rank < n % comm.size) for rank in range(comm.size)]
    mine, labels = np.empty((counts[comm.rank], pixels)), np.empty((counts[comm.rank], 10))
    parts = np.empty((comm.size, 1 + sum(w.size for w in weights))) if comm.rank == 0 else None
    costs = []
    for _ in range(iterations):
        for w in weights:
            comm.Bcast(w)
        comm.Scatterv(None if x is None else [x, [c * pixels for c in counts], None, MPI.DOUBLE], mine)
        comm.Scatterv(None if y is None else [y, [c * 10 for c in counts], None, MPI.DOUBLE], labels)
        w1, b1, w2, b2 = weights
        comm.Gather(cost_and_gradient(w1, b1, w2, b2, mine, labels), parts)
        if parts is not None:
            total = parts.sum(axis=0) / n
            costs.append(float(total[0]))
            ends = np.cumsum([1, *(w.size for w in weights)])
            for w, start in zip(weights, ends, strict=False):
                w -= rate * total[start : start + w.size].reshape(w.shape)
    return costs


def main() -> None:
    from minigrad.mnist import load

    rng = np.random.default_rng(0)
    weights = [rng.uniform(-0.12, 0.12, shape) for shape in ((25, 784), (25,), (10, 25), (10,))]
    digits = load("mnist5k").train
    x, y = digits.x.reshape(len(digits), -1).astype(np.float64), np.eye(10)[digits.y]
    on_0 = MPI.COMM_WORLD.rank == 0
    costs = train(MPI.COMM_WORLD, x if on_0 else None, y if on_0 else None, weights, RATE, ITERATIONS)
    if on_0:
        print(f"cost {costs[0]:.4f} at first, {costs[-1]:.4f} after {ITERATIONS} iterations")


if __name__ == "__main__":
    main()
