"""The gradient of a matrix is sent as the product of two narrow ones.

Lecture section: gradient compression. Lesson: 10_gradient_compression. Source: PowerSGD, Vogels, Karimireddy
and Jaggi 2019, arXiv 1905.13727.
"""

from __future__ import annotations

import numpy as np

from minigrad.device import Array, array_module, unflatten
from minigrad.lookup import at_least_one
from minigrad.tensor import Parameter

from ...comm.collectives import Allreduce
from ...comm.communicator import Communicator
from ..flat import FlatLayout
from .compressor import Compressor, ExchangeResult


class PowerSGD(Compressor):
    """P Q^T of ``matrix_rank`` columns each: one step of power iteration, which starts from the previous Q.

    P = the sum of all ranks' M Q, made orthonormal; then Q = the sum of M^T P, and the gradient is P Q^T: two
    all-reduces, as both sums are linear in M. r (n + m) numbers for a matrix (n, m) instead of n m.
    Convolutions count as (filters, the rest); vectors, scalars and matrices with one row or column are sent
    as they are, with the P's. C(v) of one rank is P P^T M, so its residual is orthogonal to P (the authors'
    code subtracts the ranks' mean instead; both add up to the same). Q is the same on all ranks; the first Q
    is random, from ``seed``. Momentum is left to the optimizer, after decompression.
    """

    def __init__(self, *, matrix_rank: int = 2, seed: int = 0):
        self.matrix_rank, self.seed = at_least_one("matrix_rank", matrix_rank), seed

    own_state = ("q",)

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        super().start(layout, rank, size)
        draw = np.random.default_rng(self.seed)
        self.narrow = [is_matrix(p.data) for p in layout.parameters]
        self.q: list[Array] = []  # (columns, r) of each matrix
        self.p: list[Array] = []  # (rows, r), of the last step
        for x in self.matrices(layout.zeros()):
            n, m = x.shape
            q = draw.normal(size=(m, min(self.matrix_rank, n))).astype(x.dtype)
            self.q.append(array_module(x).asarray(q))

    def uncompressed_parameters(self) -> list[Parameter]:
        return [p for p, narrow in zip(self.layout.parameters, self.narrow, strict=True) if not narrow]

    def matrices(self, v: Array) -> list[Array]:
        """The compressed matrices of ``v``, as views with no more rows than columns."""
        views = zip(self.layout.views(v), self.narrow, strict=True)
        matrices = [x.reshape(len(x), -1) for x, narrow in views if narrow]
        return [x if x.shape[0] <= x.shape[1] else x.T for x in matrices]

    def dense(self, v: Array) -> list[Array]:
        """The arrays of ``v`` that are sent uncompressed, as views."""
        return [x for x, narrow in zip(self.layout.views(v), self.narrow, strict=True) if not narrow]

    def exchange(self, comm: Communicator, v: Array, figures: Array, allreduce: Allreduce) -> ExchangeResult:
        xp, matrices = array_module(v), self.matrices(v)
        products = [x @ q for x, q in zip(matrices, self.q, strict=True)]
        figures, *sums = allreduce_arrays(comm, allreduce, [figures, *self.dense(v), *products])
        plain = len(sums) - len(products)
        self.p = [orthonormal(p) for p in sums[plain:]]
        mine = [x.T @ p for x, p in zip(matrices, self.p, strict=True)]
        self.q = allreduce_arrays(comm, allreduce, mine) if mine else []
        total, own = xp.zeros_like(v), xp.zeros_like(v)
        for out, qs in ((total, self.q), (own, mine)):
            for x, p, q in zip(self.matrices(out), self.p, qs, strict=True):
                fill(x, p, q)
        for x, y, one, whole in zip(self.dense(own), self.dense(total), self.dense(v), sums, strict=False):
            x[...], y[...] = one, whole
        return ExchangeResult(total, own, figures)


def is_matrix(x: Array) -> bool:
    """Whether two narrow matrices can be smaller than ``x``: it has several rows and columns."""
    return x.ndim > 1 and 1 < len(x) < x.size


def orthonormal(p: Array) -> Array:
    """Orthonormal columns whose span contains the columns of ``p``."""
    return array_module(p).linalg.qr(p)[0]


def fill(x: Array, p: Array, q: Array) -> None:
    """x = P Q^T in place; where ``x`` is a transposed view its rows in memory are those of Q P^T."""
    xp = array_module(x)
    if x.flags.c_contiguous:
        xp.matmul(p, q.T, out=x)
    else:
        xp.matmul(q, p.T, out=x.T)


def allreduce_arrays(comm: Communicator, allreduce: Allreduce, arrays: list[Array]) -> list[Array]:
    """The sum of each array over the ranks, in one all-reduce."""
    message = array_module(arrays[0]).concatenate([a.reshape(-1) for a in arrays])
    return unflatten(allreduce(comm, message), arrays)
