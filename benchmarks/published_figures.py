"""Five published figures as data: what is trained, what the paper says of it, and which order must come out.

``simulated`` is the train loss (least and greatest of three seeds, or the mean) that a separate simulation of
the same rules in plain NumPy found for a network of this size on the same kind of data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from published_orders import Order, chain
from published_training import Result, data_parallel, stale, two_numbers

Train = Callable[..., Result]  # of the seed


class Line(NamedTuple):
    """One row of a figure: its training, what the paper says of it, and what the simulation found."""

    train: Train
    paper: str = ""
    simulated: tuple[float, ...] = ()


class Figure(NamedTuple):
    """A figure of a paper, with the orders of its rows that must come out."""

    title: str
    claim: str
    lines: dict[str, Line]
    orders: tuple[Order, ...]


sparse = partial(data_parallel, lr=0.2, epochs=12)
DGC = Figure(
    "DGC: one entry in a thousand is sent. Four ranks x 16, momentum 0.9, rate 0.2, 12 epochs",
    "Lin et al. 2018: 99.9 % of the gradient need not be sent, without loss of accuracy; for this momentum "
    "must be corrected (it acts before the selection) and masked (it stops for what was sent), and the "
    "density falls step by step at first (warm-up).",
    {
        "dense": Line(sparse, "the baseline", (0.0006, 0.0008)),
        "DGC": Line(partial(sparse, compress="dgc", density=0.001), "", (0.0014, 0.0021)),
        "DGC, warm-up of an epoch": Line(
            partial(sparse, compress="dgc", density=0.001, warm_up=63), "the baseline's accuracy"
        ),
        "without masking": Line(
            partial(sparse, compress="dgc", density=0.001, masking=False), "stale momentum", (0.009, 0.071)
        ),
        "without correction": Line(
            partial(sparse, compress="top-k", density=0.001), "loses accuracy", (0.011, 0.133)
        ),
        "without residual": Line(
            partial(sparse, compress="top-k", density=0.001, feedback=False), "loses most", (0.24, 0.29)
        ),
    },
    (
        *chain("dense", "DGC, warm-up of an epoch", "DGC"),
        Order("DGC", "without masking", 0.5),
        Order("DGC", "without correction", 0.5),
        Order("without masking", "without residual", 0.5),
        Order("without correction", "without residual", 0.5),
    ),
)

fast, slow = partial(stale, lr=0.2), partial(stale, lr=0.05)
STALENESS = Figure(
    "Staleness tau: parameter server, SGD, batches of 32, 8 epochs",
    "Zhang et al. 2016: how stale gradients are decides whether asynchronous SGD is stable; dividing the "
    "rate by the staleness of each gradient makes it converge again.",
    {
        "rate 0.2, tau 0": Line(partial(fast, staleness=0), "serial SGD", (0.048,)),
        "rate 0.2, tau 4": Line(partial(fast, staleness=4), "", (0.092,)),
        "rate 0.2, tau 8": Line(partial(fast, staleness=8), "harm grows with tau", (1.26,)),
        "rate 0.2, tau 16": Line(partial(fast, staleness=16), "fails", (2.14,)),
        "rate 0.2 / tau, tau 4": Line(partial(fast, staleness=4, stale_rate="divided"), "", (0.19,)),
        "rate 0.2 / tau, tau 8": Line(partial(fast, staleness=8, stale_rate="divided"), "converges", (0.27,)),
        "rate 0.2 / tau, tau 16": Line(
            partial(fast, staleness=16, stale_rate="divided"), "converges", (0.36,)
        ),
        "rate 0.05, tau 0": Line(partial(slow, staleness=0), "serial SGD", (0.188,)),
        "rate 0.05, tau 4": Line(partial(slow, staleness=4), "", (0.191,)),
        "rate 0.05, tau 8": Line(partial(slow, staleness=8), "", (0.206,)),
        "rate 0.05, tau 16": Line(partial(slow, staleness=16), "", (0.378,)),
        "rate 0.05, tau 32": Line(partial(slow, staleness=32), "fails", (2.66,)),
    },
    (
        *chain("rate 0.2, tau 0", "rate 0.2, tau 4", "rate 0.2, tau 8", "rate 0.2, tau 16"),
        *chain("rate 0.05, tau 0", "rate 0.05, tau 16", "rate 0.05, tau 32"),
        Order("rate 0.05, tau 4", "rate 0.05, tau 0", 1.2),
        Order("rate 0.05, tau 8", "rate 0.05, tau 0", 1.2),
        Order("rate 0.2, tau 0", "rate 0.05, tau 0"),
        Order("rate 0.05, tau 8", "rate 0.2, tau 8"),
        Order("rate 0.2 / tau, tau 8", "rate 0.2, tau 8", 0.5),
        Order("rate 0.2 / tau, tau 16", "rate 0.2, tau 16", 0.5),
        Order("rate 0.2, tau 4", "rate 0.2 / tau, tau 4"),
    ),
)

mild = partial(data_parallel, lr=0.05, epochs=10)
DENSE = Line(mild, "the baseline", (0.021,))
SIGN = Figure(
    "Scaled sign: one bit per entry. Four ranks x 16, momentum 0.9, rate 0.05, 10 epochs",
    "Karimireddy et al. 2019: the sign alone need not converge, and may generalise worse; with error "
    "feedback it has the rate of SGD. The last two rows are the value at the end of the paper's example, "
    "f(x) = 0.5 |x1 + x2| + |x1 - x2|.",
    {
        "dense": DENSE,
        "error feedback": Line(partial(mild, compress="scaled-sign"), "the rate of SGD", (0.168,)),
        "no feedback": Line(partial(mild, compress="scaled-sign", feedback=False), "worse", (0.51,)),
        "f, error feedback": Line(partial(two_numbers, feedback=True), "0"),
        "f, no feedback": Line(partial(two_numbers, feedback=False), "stays above 0"),
    },
    (
        *chain("dense", "error feedback"),
        Order("error feedback", "no feedback", 0.5),
        Order("f, error feedback", "f, no feedback", 0.1),
    ),
)


def power(matrix_rank: int, feedback: bool = True) -> Train:
    return partial(mild, compress="power-sgd", matrix_rank=matrix_rank, feedback=feedback)


POWERSGD = Figure(
    "PowerSGD: matrices of rank r. Four ranks x 16, momentum 0.9, rate 0.05, 10 epochs",
    "Vogels et al. 2019: rank 2 reaches the accuracy of SGD (94.4 %, ResNet-18 on CIFAR-10), with error "
    "feedback.",
    {
        "dense": DENSE,
        "rank 1": Line(power(1), "nearly SGD", (0.027,)),
        "rank 2": Line(power(2), "SGD's accuracy", (0.024,)),
        "rank 4": Line(power(4), "SGD's accuracy", (0.022,)),
        "rank 1, no feedback": Line(power(1, False), "worse", (0.31,)),
        "rank 2, no feedback": Line(power(2, False), "worse", (0.20,)),
    },
    (
        *(Order(f"rank {r}", "dense", 1.5) for r in (1, 2, 4)),
        Order("rank 1", "rank 1, no feedback", 0.5),
        Order("rank 2", "rank 2, no feedback", 0.5),
        *chain("rank 2, no feedback", "rank 1, no feedback"),
    ),
)


def levels(count: int) -> Train:
    return partial(mild, compress="qsgd", levels=count)


QSGD = Figure(
    "QSGD: s levels. Four ranks x 16, momentum 0.9, rate 0.05, 10 epochs",
    "Alistarh et al. 2017: the mean is right for any s; the variance is at most min(n / s^2, sqrt(n) / s) "
    "|v|^2, here with n = 100,352 for the first layer.",
    {
        "dense": DENSE,
        "s = 1": Line(levels(1), "variance <= 317 |v|^2", (0.896,)),
        "s = 16": Line(levels(16), "<= 20 |v|^2", (0.021,)),
        "s = 256": Line(levels(256), "<= 1.2 |v|^2", (0.0215,)),
    },
    (Order("s = 256", "dense", 1.2), Order("s = 16", "dense", 1.5), Order("s = 16", "s = 1", 0.2)),
)

FIGURES = {"dgc": DGC, "staleness": STALENESS, "sign": SIGN, "powersgd": POWERSGD, "qsgd": QSGD}
