"""The picture of a training: its loss at every step, and its test results after every epoch."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from minigrad.figures import BLUE, GREEN, ORANGE, RED, STYLE, curve, line, save
from minigrad.metric import ACCURACY, NATS
from minigrad.models import find_net

from ..words import counted

SHARE = 0.05  # of the time since the start, which drawing may take until the training ends
FIRST = 1.0  # seconds that the first drawing is expected to take; it loads matplotlib


class Curves:
    """Draws the curves while a training runs, for at most SHARE of its time."""

    def __init__(self):
        self.start, self.spent, self.last = perf_counter(), 0.0, FIRST

    def redraw(self, metrics: dict[str, Any], file: Path) -> bool:
        """Draw, if another drawing as long as the last one fits into the share; whether it did."""
        begin = perf_counter()
        if self.spent + self.last > SHARE * (begin - self.start):
            return False
        with suppress(OSError):  # the training goes on, and draws the picture again at its end
            draw_curves(metrics, file)
        self.last = perf_counter() - begin
        self.spent += self.last
        return True


def title_of(metrics: dict[str, Any]) -> str:
    """Net, data set and ranks of a run, for its picture and its table."""
    config = metrics["config"]
    return f"{config['net']} on {config['dataset']}, {counted(metrics['ranks'], 'rank')}"


def drawing_problem() -> str | None:
    """Why matplotlib cannot be loaded, with the way out; None where it can."""
    try:
        import matplotlib.figure  # noqa: F401
    except (ImportError, ValueError) as error:
        return (
            f"matplotlib, which draws the curves, cannot be loaded: {error}; mend that, or unset MPLBACKEND"
        )
    return None


def check_drawing() -> None:
    """Raise RuntimeError where matplotlib cannot be loaded."""
    if (problem := drawing_problem()) is not None:
        raise RuntimeError(problem)


def draw_curves(metrics: dict[str, Any], file: Path) -> None:
    """The loss of every step and the test accuracy of every epoch, as a PNG.

    The test loss of a text is drawn beside the losses of the steps, with the losses of simple rules.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    losses, metric = metrics["losses"], find_net(metrics["config"]["net"]).metric
    results = metrics[f"test_{metric.plural}"]
    steps = np.arange(1, len(losses) + 1)
    with rc_context(STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        figure.suptitle(title_of(metrics))
        left, right = figure.subplots(1, 2)
        if len(losses) >= 50:
            width = max(len(losses) // 50, 5)
            smooth = np.convolve(losses, np.ones(width) / width, "valid")
            left.plot(steps, losses, color=BLUE, lw=0.7, alpha=0.4, label="each step")
            left.plot(steps[width - 1 :], smooth, **line(BLUE), label=f"mean of {width} steps")
            left.legend()
        else:
            left.plot(steps, losses, **line(BLUE))
        left.set(xlabel="step", ylabel="training loss", ylim=0)
        right.plot(np.arange(1, len(results) + 1), results, **curve(ORANGE))
        right.set(xlabel="epoch", ylabel=f"test {metric.name}")
        right.set_xlim(0.5, max(len(results), 1) + 0.5)
        right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if metric is ACCURACY:
            right.set_ylim(min([0.8, *results]) - 0.02, 1.0)
            right.yaxis.set_major_formatter(PercentFormatter(1))
        if metric is NATS:
            right.set_ylabel(f"test loss, nats (of {1 / math.log(2):.3f} bits) a symbol")
        references = metrics.get("references", {})
        for (name, value), color in zip(references.items(), (GREEN, RED), strict=False):
            for axes in (left, right):
                axes.axhline(value, label=f"{name}: {value:.3f}", **line(color))
                axes.legend()
        save(figure, file)
