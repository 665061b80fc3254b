"""The pictures of lesson 01; each function takes what was measured and gives a figure."""

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator, PercentFormatter

from lessons.style import BLUE, GREEN, GREY, INK, ORANGE, RED


def contours(panel, height, best, spans):
    """The loss as a map: lines of equal height, and a star at the best point."""
    grid = np.stack(np.meshgrid(*(np.linspace(*span, 90) for span in spans)), axis=-1)
    loss = height(grid)
    levels = loss.min() + (loss.max() - loss.min()) * np.linspace(0.03, 1, 14) ** 2
    panel.contour(*grid.transpose(2, 0, 1), loss, levels=levels, colors=GREY, linewidths=0.6, alpha=0.6)
    panel.plot(*best, "*", color=INK, ms=13, mec="white", zorder=5)
    panel.set(xlabel="weight 1")


def bowl(height, best, paths, plans):
    """The ways down: with all samples, with some, with one at a time."""
    figure, panels = plt.subplots(1, 3, figsize=(11, 4.6), sharex=True, sharey=True, layout="constrained")
    for panel, (name, path), color in zip(panels, paths.items(), (BLUE, GREEN, RED), strict=True):
        contours(panel, height, best, ((-2.4, 2.6), (-2.6, 2.0)))
        panel.plot(*path.T, color=color, lw=1.2, marker=".", ms=4)
        panel.plot(*path[0], "s", color=INK, ms=5, zorder=5)
        panel.annotate("start", path[0], (6, 6), textcoords="offset points")
        epochs = plans[name][2]
        panel.set(title=f"{name}\n{len(path) - 1} steps, {epochs} passes over the data", aspect="equal")
    panels[0].annotate("best", best, (8, 6), textcoords="offset points")
    panels[0].set_ylabel("weight 2")
    return figure


def rates(falls, sweep):
    """Distance to the best point by step, for five rates; digits that are right after an epoch, by rate."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    colors = dict(zip(falls, (GREY, BLUE, GREEN, ORANGE, RED), strict=True))
    for name, distance in falls.items():
        left.semilogy(distance, color=colors[name], lw=2)
        at = (len(distance) - 1, distance[-1])
        left.annotate(f"{name} / L", at, (5, -3), textcoords="offset points", color=colors[name])
    left.set(xlabel="step", ylabel="distance to the best weights", xlim=(0, 48), ylim=(1e-5, None))
    left.set_title("A bowl: above 2 / L the steps lead away")
    right.semilogx(list(sweep), list(sweep.values()), "o-", color=BLUE, lw=2, ms=7, mec="white")
    right.text(1.2e-4, 0.42, "too small:\nhardly moves", color=GREY)
    right.text(1.2, 0.55, "too large:\njumps about", color=GREY)
    right.set(xlabel="rate", ylabel="test digits right after one epoch", ylim=(0, 1), xlim=(7e-5, 9))
    right.yaxis.set_major_formatter(PercentFormatter(1))
    right.set_title("Digits: the same two ways to go wrong")
    return figure


def noise(sizes, measured, of_one, n, squared):
    """The squared error of a mini-batch's gradient by its size, measured and by the formula."""
    figure, panel = plt.subplots(figsize=(7, 4.4), layout="constrained")
    fine = np.geomspace(1, n / 1.3, 100)
    panel.loglog(fine, of_one / fine * (n - fine) / (n - 1), color=BLUE, lw=1.5)
    panel.loglog(sizes, measured, "o", color=BLUE, ms=8, mec="white")
    panel.axhline(squared, color=GREY, ls="--", lw=1)
    panel.text(1, squared * 1.12, "squared length of the gradient itself", color=GREY)
    panel.set_xticks(sizes, [str(b) for b in sizes])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set(xlabel="b, samples in the mini-batch", ylabel="squared error of its gradient")
    panel.set_title("b samples: a b-th of the squared error\n(dots: 100 draws each; line: the formula)")
    return figure


def sizes(curves):
    """Digits that are right by epochs, and by steps."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained")
    for (b, curve), color in zip(curves.items(), (RED, GREEN, BLUE, INK), strict=True):
        epochs, right_share = curve.T
        n = max(curves)
        name = "all samples" if b == n else "per sample" if b == 1 else f"b = {b}"
        left.plot(epochs, right_share, "o-", color=color, lw=2, ms=4, label=name)
        right.semilogx(epochs * n / b, right_share, "o-", color=color, lw=2, ms=4)
    left.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    left.set(xlabel="epochs (passes over the data)", ylabel="test digits right", ylim=(0, 1), xlim=(0, 2.05))
    right.set(xlabel="steps")
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set_title("Per sample seen, the small batches get further")
    right.set_title("Per step, the large ones do")
    return figure


def larger(scaled, fixed, n):
    """Steps and epochs to 90 % by batch size, with the rate in proportion to it, and with a fixed one."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    arrived = {b: steps for b, steps in scaled.items() if max(steps) < math.inf}
    b = np.array(list(arrived))
    steps = np.array([np.mean(s) for s in arrived.values()])
    left.loglog(b, steps[0] * b[0] / b, color=BLUE, lw=1, ls=":")
    left.text(
        b[3] * 1.25, steps[3] * 1.15, "rate in proportion to b:\nsteps fall as 1 / b (dotted)", color=BLUE
    )
    for panel, per_step in ((left, lambda b: 1), (right, lambda b: b / n)):
        panel.plot(b, steps * per_step(b), "o-", color=BLUE, lw=2, ms=7, mec="white")
        fixed_at = np.array(list(fixed))
        panel.plot(
            fixed_at, list(fixed.values()) * per_step(fixed_at), "o-", color=ORANGE, lw=2, ms=7, mec="white"
        )
        panel.set_xscale("log")
        panel.set_xticks(list(scaled), [str(size) for size in scaled])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel("b, samples in the mini-batch")
    left.text(34, fixed[32], "rate stays", color=ORANGE, va="center")
    right.text(34, fixed[32] * 32 / n, "rate stays", color=ORANGE, va="center")
    for lost in set(scaled) - set(arrived):
        right.plot(lost, 24, "x", color=RED, ms=11, mew=2.5)
        right.text(lost, 23, "not in 10", color=RED, ha="center", va="top")
    right.text(b[3], (steps * b / n).max() + 1.2, "rate in proportion to b", color=BLUE, ha="center")
    left.set(ylabel="steps until 90 % are right", title="Larger batches: fewer steps ...")
    right.set(
        ylabel="epochs until 90 % are right", ylim=(0, 26), title="... of as many samples, until it breaks"
    )
    return figure


def walks(height, goal, found, needed, losses):
    """Three ways through a long valley; the loss on the digits by step."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    contours(left, height, goal, ((-2.3, 2.4), (-4.2, 2.4)))
    for (name, path), color in zip(found.items(), (BLUE, RED, GREEN), strict=True):
        label = f"{name}: {needed[name]} steps"
        left.plot(*path[:60].T, color=color, lw=1.4, marker=".", ms=5, label=label)
    left.plot(*path[0], "s", color=INK, ms=5, zorder=5)
    left.legend(loc="upper right", framealpha=0.9, frameon=True, edgecolor="white", fontsize=9)
    left.set(ylabel="weight 2", title="A long valley")
    for (name, loss), color in zip(losses.items(), (GREY, RED, BLUE, GREEN), strict=True):
        smooth = np.convolve(loss, np.ones(15) / 15, mode="valid")
        right.plot(np.arange(len(smooth)) + 8, smooth, color=color, lw=2, label=name)
    right.legend(loc="upper right")
    right.set(
        xlabel="step (mini-batches of 50)", ylabel="loss, mean over 15 steps", ylim=(0, 2.4), title="Digits"
    )
    return figure
