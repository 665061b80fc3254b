"""The checks of tasks 4 and 5 of assignment a6: images that are cut by rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import RestrictedComm

from backends.comm import Communicator
from backends.comm.trace import Traced

checking = load_file(Path(__file__).parent / "checking.py", "checking_of_a6_space")
Call, check_array, check_messages = checking.Call, checking.check_array, checking.check_messages
counted, let_sends_wait, numbers = checking.counted, checking.let_sends_wait, checking.numbers
once, unchanged = checking.once, checking.unchanged


NUMBER = 8  # bytes


@dataclass(frozen=True)
class Image:
    """Images, of which each rank has some rows; and a window that looks ``radius`` to each side."""

    heights: tuple[int, ...]
    radius: int
    samples: int
    channels: int
    filters: int
    width: int
    seed: int

    @property
    def ranks(self) -> int:
        return len(self.heights)

    def rows(self, rank: int) -> tuple[int, int]:
        """Where a rank's rows begin and end."""
        return sum(self.heights[:rank]), sum(self.heights[: rank + 1])

    def part(self, whole: np.ndarray, rank: int) -> np.ndarray:
        start, stop = self.rows(rank)
        return whole[:, :, start:stop].copy()

    def rows_for(self, owner: int, asker: int) -> int:
        """How many rows ``asker`` wants of those that ``owner`` has."""
        (start, stop), (first, last) = self.rows(owner), self.rows(asker)
        if first == last or owner == asker:
            return 0
        return max(0, min(stop, last + self.radius) - max(start, first - self.radius))

    def halo_bytes(self, owner: int, asker: int) -> int:
        return self.rows_for(owner, asker) * self.samples * self.channels * self.width * NUMBER

    def __str__(self) -> str:
        rows = " and ".join(str(n) for n in self.heights)
        return (
            f"{counted(self.ranks, 'rank')} with {rows} rows, radius {self.radius}, "
            f"{counted(self.samples, 'image')} of {counted(self.channels, 'channel')} and "
            f"{counted(self.width, 'column')}"
        )


class Convolution(Image):
    def __str__(self) -> str:
        return f"{super().__str__()}, {counted(self.filters, 'filter')} of {2 * self.radius + 1}"


def check_halo(submission: Any, case: Image, comm: Communicator) -> None:
    let_sends_wait(comm)
    me, heights = comm.rank, list(case.heights)
    whole = numbers(case, 0, case.samples, case.channels, sum(heights), case.width)
    x, (start, stop), traced = case.part(whole, me), case.rows(me), Traced(comm)
    actual = submission.halo(RestrictedComm(traced), x, heights, case.radius)
    padded = with_border(whole, case.radius, 0)
    expected = padded[:, :, start : stop + 2 * case.radius if heights[me] else start]
    check_array(comm, actual, expected, "halo")
    unchanged(comm, "halo", [x], [case.part(whole, me)], [actual])
    check_messages(comm, traced, {r: case.halo_bytes(me, r) for r in range(comm.size)})

    gradients = [numbers(case, 1 + rank, *shape) for rank, shape in enumerate(halo_shapes(case))]
    g, traced = gradients[me].copy(), Traced(comm)
    actual = submission.halo_backward(RestrictedComm(traced), g, heights, case.radius)
    total = np.zeros_like(padded)
    for rank, gradient in enumerate(gradients):
        first = case.rows(rank)[0]
        total[:, :, first : first + gradient.shape[2]] += gradient
    hints = {"only what came of its own rows": g[:, :, case.radius : case.radius + heights[me]]}
    middle = total[:, :, case.radius : case.radius + sum(heights)]
    check_array(comm, actual, case.part(middle, me), "gradient of x", hints)
    unchanged(comm, "halo_backward", [g], [gradients[me]], [actual])
    check_messages(comm, traced, {r: case.halo_bytes(r, me) for r in range(comm.size)})


def halo_shapes(case: Image) -> list[tuple[int, ...]]:
    rows = (n + 2 * case.radius if n else 0 for n in case.heights)
    return [(case.samples, case.channels, n, case.width) for n in rows]


def check_convolution(submission: Any, case: Convolution, comm: Communicator) -> None:
    k, height = 2 * case.radius + 1, sum(case.heights)
    whole = numbers(case, 0, case.samples, case.channels, height, case.width)
    w = numbers(case, 1, case.filters, case.channels, k, k)
    whole_g = numbers(case, 2, case.samples, case.filters, height, case.width)
    x, g = case.part(whole, comm.rank), case.part(whole_g, comm.rank)
    pairs = [(owner, asker) for owner in range(comm.size) for asker in range(comm.size)]
    halo = sum(case.halo_bytes(*pair) for pair in pairs)
    alone = {"that of its own rows alone": convolved(x, w, case.radius)}
    call = Call(comm, submission, "conv", x, w)
    whole_y = convolved(whole, w, case.radius)
    saved = call.forward(case.part(whole_y, comm.rank), halo, alone, [list(case.heights)])
    turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)  # what slides over the gradient
    expected = {
        "x": case.part(convolved(whole_g, turned, case.radius), comm.rank),
        "w": correlated(whole, whole_g, case.radius),
    }
    alone = {"what came of its own outputs alone": convolved(g, turned, case.radius)}
    call.backward(saved, g, expected, halo + once(w, comm), alone)


def with_border(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))


def convolved(x: np.ndarray, w: np.ndarray, radius: int) -> np.ndarray:
    """One tap of the window at a time."""
    padded, (height, width) = with_border(x, radius, radius), x.shape[2:]
    y = np.zeros((len(x), len(w), height, width))
    for i, j in np.ndindex(w.shape[2:]):
        y += np.einsum("nchw,fc->nfhw", padded[:, :, i : i + height, j : j + width], w[:, :, i, j])
    return y


def correlated(x: np.ndarray, g: np.ndarray, radius: int) -> np.ndarray:
    """The gradient of the weights, one tap at a time."""
    padded, (height, width), k = with_border(x, radius, radius), x.shape[2:], 2 * radius + 1
    dw = np.zeros((g.shape[1], x.shape[1], k, k))
    for i, j in np.ndindex(k, k):
        dw[:, :, i, j] = np.einsum("nchw,nfhw->fc", padded[:, :, i : i + height, j : j + width], g)
    return dw
