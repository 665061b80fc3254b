"""The pictures of lesson 11; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minigrad.figures import BLUE, COLORS, GREEN, GREY, INK, RED, SAND, curve


def parts_of_a_gradient(whole, parts):
    """One sample's gradient of x: the part of each rank, and the sum of all parts."""
    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    places = np.arange(len(whole))
    named = {f"rank {r} alone": (part, COLORS[r]) for r, part in enumerate(parts)}
    for i, (name, (values, color)) in enumerate({**named, "the gradient": (whole, INK)}.items()):
        axes.bar(places + 0.27 * (i - 1), values, 0.25, color=color, label=name)
    axes.axhline(0, color=GREY, lw=1)
    axes.legend()
    axes.set(
        xlabel="input",
        ylabel="derivative of the loss",
        xticks=places,
        title="Without fan_out each rank has a part; the parts add up to the gradient",
    )
    return figure


def who_holds_what(owned, ranks):
    """x W1, tanh, times W2: every number in the color of the rank that holds it, grey on all ranks.

    ``owned`` gives the owner of each element by parameter name, None for what every rank has.
    """
    first, second, bias = owned["1.weight"].T, owned["3.weight"].T, owned["1.bias"]
    n_in, hidden = first.shape
    n_out = second.shape[1]
    matrices = [
        ("x", np.full((1, n_in), -1), None, "whole"),
        ("W1, by columns", first, bias, "its bias, below, is split too"),
        ("hidden", bias[None], None, "stays split"),
        ("W2, by rows", second, np.full(n_out, -1), "its bias: on all ranks,\nadded once"),
        ("y", np.full((1, n_out), -1), None, "whole, after the sum"),
    ]
    figure, axes = plt.subplots(figsize=(11.5, 4), layout="constrained")
    middle, left = hidden / 2, 0.0
    signs = ("·", "= tanh →", "·", "= sum →", "")
    for (name, owners, below, note), sign in zip(matrices, signs, strict=True):
        top = middle - owners.shape[0] / 2
        cells(axes, left, top, owners)
        bottom = top + owners.shape[0]
        if below is not None:
            cells(axes, left, bottom + 0.4, below[None])
            bottom += 1.4
        center = left + owners.shape[1] / 2
        axes.text(center, top - 0.35, name, ha="center", va="bottom", fontweight="bold")
        axes.text(center, bottom + 0.3, note, ha="center", va="top", color=GREY, fontsize=10)
        left += owners.shape[1]
        gap = 3.6 if len(sign) > 1 else 1.4
        axes.text(left + gap / 2, middle, sign, ha="center", va="center", fontsize=11)
        left += gap
    for rank in range(ranks + 1):
        color, name = (COLORS[rank], f"rank {rank}") if rank < ranks else (SAND, "every rank")
        axes.add_patch(Rectangle((0.2 + 5.5 * rank, -3.4), 0.9, 0.9, color=color, lw=0))
        axes.text(1.4 + 5.5 * rank, -2.95, name, va="center")
    axes.set(xlim=(-0.3, left - 1), ylim=(hidden + 4.2, -3.7), aspect="equal")
    axes.axis("off")
    return figure


def cells(axes, left, top, owners):
    """A square for each element, in its owner's color."""
    for (row, column), owner in np.ndenumerate(owners):
        color = SAND if owner < 0 else COLORS[int(owner)]
        axes.add_patch(Rectangle((left + column + 0.05, top + row + 0.05), 0.9, 0.9, color=color, lw=0))


def naive_and_pair(times, naive, pair):
    """Numbers a rank sends, (forward, backward) by width of the hidden layer."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for place, (name, counts, color) in enumerate(
        (("every layer gathers", naive, RED), ("column, then row", pair, BLUE))
    ):
        spots = np.arange(len(times)) + 0.4 * (place - 0.5)
        axes.bar(spots, counts[:, 0], 0.36, color=color, alpha=0.55)
        axes.bar(spots, counts[:, 1], 0.36, bottom=counts[:, 0], color=color)
        for spot, total in zip(spots, counts.sum(axis=1), strict=True):
            axes.text(spot, total + 8, total, ha="center", color=color)
        axes.text(0.02, 0.95 - 0.08 * place, name, color=color, transform=axes.transAxes, fontweight="bold")
    axes.text(0.02, 0.79, "pale: forward; full: backward", color=GREY, transform=axes.transAxes)
    axes.set(
        xticks=range(len(times)),
        xticklabels=[f"{n} x as wide" if n > 1 else "as wide as the others" for n in times],
        xlabel="the hidden layer is",
        ylabel="numbers a rank sends",
        title="What a pair sends does not depend on the hidden width",
    )
    return figure


def bias_once(once, every):
    """Error of the gradient by step, bias added once and on every rank."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    steps = np.arange(1, len(once) + 1)
    for errors, color in ((every, RED), (once, GREEN)):
        axes.semilogy(steps, np.maximum(errors, 1e-17), **curve(color))
    axes.text(steps[-1], every[-1] * 5, "bias on every rank", color=RED, ha="right")
    axes.text(steps[-1], once[-1] * 8, "bias added once, after the sum", color=GREEN, ha="right")
    axes.set(
        xlabel="step, from biases that are zero",
        ylabel="error of the gradient, relative",
        xticks=steps,
        ylim=(1e-17, 10),
        title="The first step does not show the mistake",
    )
    return figure


def many_classes(classes, gathered, three):
    """Numbers per sample that a rank sends to each other one, by the number of classes."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.loglog(classes, gathered, **curve(RED))
    axes.loglog(classes, three, **curve(BLUE))
    axes.text(classes[-2], gathered[-2] * 1.6, "all logits gathered", color=RED, ha="right")
    axes.text(classes[-2], three[-2] * 1.25, "largest, sum, own: always 3", color=BLUE, ha="center")
    axes.set(
        xlabel="classes, on four ranks",
        ylabel="numbers per sample, to each other rank",
        ylim=(1, gathered[-1] * 2),
        title="Cross-entropy of logits that stay where they are",
    )
    return figure


def filters_and_channels(image, ranks):
    """An image, the hidden images and the partial sum of each rank, and the sum; frames by rank."""
    figure, axes = plt.subplots(len(ranks), 5, figsize=(11, 4.6), layout="constrained")
    for panel in axes.flat:
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set(visible=False)

    def show(panel, pixels, title, color, most):
        panel.imshow(pixels, cmap="gray_r", vmin=0, vmax=most)
        panel.spines[:].set(visible=True, color=color, lw=3)
        panel.set_title(title, color=color, fontsize=10)

    _, _, total = ranks[0]
    for rank, (row, (hidden, part, _)) in enumerate(zip(axes, ranks, strict=True)):
        for i, channel in enumerate(hidden):
            name = f"rank {rank}: hidden channel {len(hidden) * rank + i}"
            show(row[1 + i], channel, name, COLORS[rank], hidden.max())
        show(row[3], part, f"rank {rank}: partial sum", COLORS[rank], total.max())
    show(axes[0, 0], image, "input, on both ranks", INK, 1)
    show(axes[0, 4], total, "all-reduce: the output", INK, total.max())
    axes[1, 0].text(0.5, 0.6, "by filters →\nno message", ha="center", color=GREY, fontsize=11)
    axes[1, 4].text(0.5, 0.6, "← by channels:\none sum", ha="center", color=GREY, fontsize=11)
    return figure
