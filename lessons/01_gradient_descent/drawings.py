"""The pictures of lesson 01; each function takes what was measured and gives a figure."""

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator, PercentFormatter

from minigrad.figures import BLUE, DASHES, GREEN, GREY, INK, ORANGE, RED, curve, line, points


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
        panel.plot(*path.T, color=color, lw=1.2, marker=".", ms=4, ls=DASHES[color])
        panel.plot(*path[0], "s", color=INK, ms=5, zorder=5)
        panel.annotate("start", path[0], (6, 6), textcoords="offset points")
        epochs = plans[name][2]
        panel.set(title=f"{name}\n{len(path) - 1} steps, {epochs} epochs", aspect="equal")
    panels[0].annotate("best", best, (8, 6), textcoords="offset points")
    panels[0].set_ylabel("weight 2")
    return figure


def rates(falls, sweep):
    """Distance to the best point by step, for five learning rates; test accuracy by learning rate."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    colors = dict(zip(falls, (GREY, BLUE, GREEN, ORANGE, RED), strict=True))
    for name, distance in falls.items():
        left.semilogy(distance, **line(colors[name]))
        at = (len(distance) - 1, distance[-1])
        left.annotate(f"{name} / L", at, (5, -3), textcoords="offset points", color=colors[name])
    left.set(xlabel="step", ylabel="distance to the best weights", xlim=(0, 48), ylim=(1e-5, None))
    left.set_title("A bowl: above 2 / L the steps lead away")
    right.semilogx(list(sweep), list(sweep.values()), **curve(BLUE))
    right.text(1.2e-4, 0.42, "too small:\nslow", color=GREY)
    right.text(1.2, 0.55, "too large:\ndiverges", color=GREY)
    right.set(xlabel="learning rate", ylabel="test accuracy after one epoch", ylim=(0, 1), xlim=(7e-5, 9))
    right.yaxis.set_major_formatter(PercentFormatter(1))
    right.set_title("Digits: the same two limits")
    return figure


def noise(sizes, measured, of_one, n, squared):
    """The squared error of a mini-batch's gradient by its size, measured and by the formula."""
    figure, panel = plt.subplots(figsize=(7, 4.4), layout="constrained")
    fine = np.geomspace(1, n / 1.3, 100)
    panel.loglog(fine, of_one / fine * (n - fine) / (n - 1), color=BLUE, lw=1.5, label="formula")
    panel.loglog(sizes, measured, **points(BLUE), label="100 draws each")
    panel.legend()
    panel.axhline(squared, color=GREY, ls="--", lw=1)
    panel.text(1, squared * 1.12, "squared length of the gradient itself", color=GREY)
    panel.set_xticks(sizes, [str(b) for b in sizes])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set(xlabel="b, samples in the mini-batch", ylabel="squared error of its gradient")
    panel.set_title("b samples: a b-th of the squared error")
    return figure


def sizes(curves):
    """Test accuracy by epochs, and by steps."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained")
    for (b, measured), color in zip(curves.items(), (RED, GREEN, BLUE, INK), strict=True):
        epochs, right_share = measured.T
        n = max(curves)
        name = "all samples" if b == n else "per sample" if b == 1 else f"b = {b}"
        left.plot(epochs, right_share, **curve(color) | {"ms": 5}, label=name)
        right.semilogx(epochs * n / b, right_share, **curve(color) | {"ms": 5})
    left.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    left.set(xlabel="epochs", ylabel="test accuracy", ylim=(0, 1), xlim=(0, 2.05))
    right.set(xlabel="steps")
    left.yaxis.set_major_formatter(PercentFormatter(1))
    left.set_title("By epochs, small batches learn faster")
    right.set_title("By steps, large batches do")
    return figure


def larger(scaled, fixed, n, most_epochs):
    """Steps and epochs to 90 % by batch size, by rule for the learning rate; crosses at the limit."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    means = {b: np.mean(steps) for b, steps in scaled.items()}
    sizes = np.array(list(scaled))
    left.loglog(
        sizes, means[sizes[0]] * sizes[0] / sizes, color=GREY, lw=1.2, ls=":", label="proportional to 1 / b"
    )
    for name, runs, color in (("rate 0.0025 b", means, BLUE), ("rate 0.02", fixed, ORANGE)):
        for panel, per_step in ((left, lambda b: 1), (right, lambda b: b / n)):
            b = np.array([b for b, steps in runs.items() if steps < math.inf])
            values = [runs[size] * per_step(size) for size in b]
            panel.plot(b, values, **curve(color), label=name)
        for b in (b for b, steps in runs.items() if steps == math.inf):
            right.plot(b, most_epochs, "x", color=color, ms=10, mew=2.5)
    right.plot([], [], "x", color=INK, ms=8, mew=2, label=f"not reached in {most_epochs} epochs")
    right.axhline(most_epochs, color=GREY, lw=1, ls="--", zorder=0)
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel("b, samples in the mini-batch")
    left.legend(loc="lower left")
    right.legend(loc="center right")
    left.set(ylabel="steps until the accuracy is 90 %", title="In proportion: fewer steps ...")
    right.set(ylabel="epochs until the accuracy is 90 %", ylim=(0, most_epochs + 2))
    right.set_title("... in as many epochs, up to a limit")
    return figure


def double_well(height, wells, shares):
    """The loss with a shallow and a deep minimum, three runs in it, and the share of runs that leave."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained")
    w = np.linspace(-1.65, 1.65, 200)
    left.plot(w, height(w), color=INK, lw=1.5)
    start = max(wells)
    left.plot(1.3, height(1.3), "s", color=INK, ms=6)
    left.annotate("start", (1.3, height(1.3)), (-8, 8), textcoords="offset points", ha="right")
    end = wells[start][-1, 0]
    left.plot(end, height(end), "o", color=BLUE, ms=9, mec="white")
    left.annotate(
        "full batch\nstays here",
        (end, height(end)),
        (0, -36),
        textcoords="offset points",
        color=BLUE,
        ha="center",
    )
    left.text(-1.07, height(-1.07) - 0.035, "deep", ha="center", va="top")
    left.set(xlabel="weight", ylabel="loss over all samples", ylim=(-0.48, 0.35))
    left.set_title("A double well", fontsize=11)
    for b, color in ((1, RED), (4, GREEN), (max(wells), BLUE)):
        path = wells[b]
        one = path[:, int(np.argmin(path[-1]))]  # the run that ends furthest to the left
        middle.plot(
            one, color=color, lw=1, ls=DASHES[color], label=f"b = {b}" if b < max(wells) else "all samples"
        )
    middle.axhline(0.152, color=INK, ls="--", lw=1)
    middle.text(345, 0.2, "barrier", color=INK, ha="center")
    middle.legend(loc="lower center", ncols=3, fontsize=9, handlelength=1.4, columnspacing=0.8)
    middle.set(xlabel="step", ylabel="weight", ylim=(-2.2, 1.7))
    middle.set_title("Noise crosses\nthe barrier", fontsize=11)
    places = np.arange(len(shares))
    right.bar(places, list(shares.values()), 0.7, color=GREEN)
    for place, share in zip(places, shares.values(), strict=True):
        right.text(place, share + 0.015, f"{share:.0%}", ha="center")
    right.set_xticks(places, [str(b) for b in shares])
    right.yaxis.set_major_formatter(PercentFormatter(1))
    right.set(
        xlabel="b, samples in the mini-batch (of 64)", ylabel="of 200 runs in the deep well", ylim=(0, 1)
    )
    right.set_title("Small batches leave\nthe shallow minimum", fontsize=11)
    return figure


def walks(height, goal, minimum, needed, losses):
    """Three ways through a long valley; the loss on the digits by step."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    contours(left, height, goal, ((-2.3, 2.4), (-4.2, 2.4)))
    for (name, path), color in zip(minimum.items(), (BLUE, RED, GREEN), strict=True):
        label = f"{name}: {needed[name]} steps"
        left.plot(*path[:60].T, **curve(color) | {"lw": 1.2, "ms": 4}, label=label)
    left.plot(*path[0], "s", color=INK, ms=5, zorder=5)
    left.legend(loc="upper right", framealpha=0.9, frameon=True, edgecolor="white", fontsize=9)
    left.set(ylabel="weight 2", title="A long valley")
    for (name, loss), color in zip(losses.items(), (GREY, RED, BLUE, GREEN), strict=True):
        smooth = np.convolve(loss, np.ones(15) / 15, mode="valid")
        right.plot(np.arange(len(smooth)) + 8, smooth, **line(color), label=name)
    right.legend(loc="upper right")
    right.set(
        xlabel="step (mini-batches of 50)", ylabel="loss, mean over 15 steps", ylim=(0, 2.4), title="Digits"
    )
    return figure
