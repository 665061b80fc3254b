"""The pictures of lesson 05; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minigrad.figures import BLUE, COLORS, GREEN, GREY, INK, ORANGE, PAPER, RED, SKY, line, points


def gradient_descent(losses, losses_2, differences, weights):
    """Loss of the serial and the parallel run; how far their weights are apart; the weights as pictures."""
    figure = plt.figure(figsize=(10, 5.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[2.3, 1], hspace=0.06)
    left, right = above.subplots(1, 2)
    iterations = np.arange(1, len(losses) + 1)
    left.plot(iterations, losses, color=BLUE, lw=2, label="serial")
    left.plot(iterations[::3], losses_2[::3], **points(ORANGE), label="two ranks (every third)")
    left.set(
        xlabel="iteration", ylabel="mean cross-entropy", ylim=0, title="Two ranks walk the serial path ..."
    )
    left.legend()
    right.semilogy(iterations, np.maximum(differences, 1e-18), ".", color=GREEN)
    right.axhline(1e-10, color=RED, ls="--", lw=1)
    right.text(len(losses), 1.6e-10, "asserted", color=RED, ha="right")
    right.set(xlabel="iteration", ylabel="largest difference of a weight", ylim=(1e-18, 1e-8))
    right.set_title("... to the last bits")
    below.suptitle("The weights after training, a picture for each digit (red: positive, blue: negative)")
    for digit, panel in enumerate(below.subplots(1, 10)):
        panel.imshow(weights[:784, digit].reshape(28, 28), cmap="RdBu_r", vmin=-0.3, vmax=0.3)
        panel.set_xlabel(digit)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
    return figure


def ring(holdings):
    """``holdings[rank, step, chunk]``: bit r says that rank r's numbers are in that partial sum."""
    p = len(holdings)
    phases = [f"{phase}, step {t}" for phase in ("reduce-scatter", "all-gather") for t in range(1, p)]
    figure, panels = plt.subplots(2, p, figsize=(2.5 * p, 5.7), layout="constrained")
    figure.suptitle("Ring all-reduce: whose numbers are in which partial sum", fontsize=13)
    for step, name in enumerate(["start", *phases]):
        panel = panels.flat[step if step < p else step + 1]
        for rank, chunk in np.ndindex(p, p):
            ring_cell(panel, chunk, rank, holdings[rank, step, chunk], p)
            if step > 0 and holdings[rank, step, chunk] != holdings[rank, step - 1, chunk]:
                ring_frame(panel, chunk, rank)
        panel.set_title(name, fontsize=11)
        panel.set_xlabel("chunk")
        panel.set_xticks(np.arange(p) + 0.5, range(p))
        panel.set_yticks(np.arange(p) + 0.5, [f"rank {r}" for r in range(p)])
        panel.tick_params(length=0)
    key = panels[1, 0]
    key.set(xticks=[], yticks=[])
    for r in range(p):
        ring_cell(key, 0.2, 0.8 * r, 1 << r, p)
        key.text(1.45, 0.8 * r + 0.5, f"rank {r}'s numbers", va="center")
    ring_frame(key, 0.2, 0.8 * p)
    key.text(1.45, 0.8 * p + 0.5, "has just arrived", va="center")
    for panel in panels.flat:
        panel.set(xlim=(0, p), ylim=(p, 0) if panel is not key else (0.8 * p + 1, 0), aspect="equal")
        panel.spines[:].set_visible(False)
    return figure


def ring_cell(panel, x, y, ranks, p):
    """A square with a stripe for each rank that is in the sum."""
    for r in range(p):
        color = COLORS[r] if ranks >> r & 1 else PAPER
        panel.add_patch(Rectangle((x + 0.08 + 0.84 / p * r, y + 0.14), 0.84 / p, 0.72, color=color, lw=0))


def ring_frame(panel, x, y):
    panel.add_patch(Rectangle((x + 0.03, y + 0.09), 0.94, 0.82, fill=False, ec=INK, lw=2))


def pictures(shown):
    """Images below one another, each with its name."""
    figure, panels = plt.subplots(len(shown), 1, figsize=(7, 1.55 * len(shown)), layout="constrained")
    for panel, (name, picture) in zip(panels, shown.items(), strict=True):
        panel.imshow(picture, cmap="gray_r")
        panel.set_title(name, loc="left", fontsize=11)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color=GREY)
    return figure


def latency_bandwidth(sizes, tree, ring, crossover, lengths, seconds, fitted):
    """``tree`` and ``ring`` are pairs (formula, measured); ``fitted`` gives the seconds of a message."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    n = np.geomspace(sizes[0], sizes[-1], 200)
    names = ("tree: 2 L (latency + n / bandwidth)", "ring: 2 (p - 1) (latency + n / p / bandwidth)")
    for (formula, measured), name, color in zip((tree, ring), names, (BLUE, ORANGE), strict=True):
        left.loglog(n, formula(n), **line(color), label=name)
        left.loglog(sizes, measured, **points(color))
    bottom = tree[0](sizes[0]) / 1.6
    left.plot([crossover] * 2, [bottom, tree[0](crossover)], color=GREY, ls="--", lw=1, zorder=0)
    left.text(crossover * 1.15, bottom * 1.1, f"n* = {crossover / 1e3:.1f} kB", color=INK, va="bottom")
    left.set(xlabel="message size n (bytes)", ylabel="seconds", ylim=bottom)
    left.set_title("All-reduce: 8 ranks, 50 µs, 1 Gbit/s\n(points: virtual cluster; lines: the formulas)")
    left.legend(loc="upper left", fontsize=9)
    n = np.geomspace(lengths[0], lengths[-1], 200)
    right.loglog(n, fitted(n), **line(GREEN), label="latency + n / bandwidth, fitted")
    right.loglog(lengths, seconds, "o", color=INK, ms=5, label="measured")
    right.set(xlabel="message size n (bytes)", ylabel="seconds for one message", ylim=min(seconds) / 2)
    right.set_title("Ping-pong of two thread ranks")
    right.legend(loc="upper left")
    return figure


def all_reduces(sizes, costs):
    """Seconds of each all-reduce by size, a panel for each cluster: ``costs[cluster][name]``."""
    figure, panels = plt.subplots(1, len(costs), figsize=(11, 5), layout="constrained", sharey=True)
    names = {name: None for by in costs.values() for name in by}
    colors = dict(zip(names, (GREY, SKY, BLUE, GREEN, ORANGE, RED, INK), strict=True))
    for panel, (cluster, by) in zip(panels, costs.items(), strict=True):
        for name, seconds in by.items():
            panel.loglog(sizes, seconds, **line(colors[name]), label=name)
        best = np.min(list(by.values()), axis=0)
        panel.loglog(sizes, best, "o", color=INK, mfc="none", ms=8, label="the fastest")
        panel.set(xlabel="message size n (bytes)", title=cluster)
    panels[0].set_ylabel("seconds")
    handles = panels[-1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4)
    return figure
