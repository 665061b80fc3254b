"""The pictures of lesson 12; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minigrad.figures import BLUE, COLORS, GREEN, GREY, INK, ORANGE, RED, curve, hollow, line, points


def picture(panel, image, title, **settings):
    """An image without axes, its pixels' corners at whole numbers."""
    height, width = image.shape
    panel.imshow(image, extent=(0, width, height, 0), **{"cmap": "gray_r", "vmin": 0, "vmax": 1} | settings)
    panel.set_title(title, fontsize=11)
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set(visible=True, color=GREY)


def shade(panel, top, rows, color, left=0, columns=28, **settings):
    """A translucent rectangle of pixels."""
    panel.add_patch(Rectangle((left, top), columns, rows, color=color, lw=0, **{"alpha": 0.35} | settings))


def halo(digit, bounds, needs):
    """The rows of each rank, and the rows that each rank needs: its own rows, halo, padding."""
    ranks = len(needs)
    figure, panels = plt.subplots(1, ranks + 1, figsize=(2.6 * (ranks + 1), 3.7), layout="constrained")
    picture(panels[0], digit, "the rows of each rank")
    for rank in range(ranks):
        shade(panels[0], bounds[rank], bounds[rank + 1] - bounds[rank], COLORS[rank])
    for rank, (panel, needed) in enumerate(zip(panels[1:], needs, strict=True)):
        pixels = np.zeros_like(digit)
        pixels[needed.start : needed.stop] = digit[needed.start : needed.stop]
        picture(panel, pixels, f"rank {rank} needs")
        for owner in range(ranks):
            top, end = max(bounds[owner], needed.start), min(bounds[owner + 1], needed.stop)
            if top < end:
                shade(panel, top, end - top, COLORS[owner], alpha=0.2 if owner == rank else 0.6)
            if top < end and owner != rank:
                panel.text(0.6, (top + end) / 2, f"halo, of rank {owner}", va="center", fontsize=9)
        for top, rows in ((-needed.before, needed.before), (28, needed.after)):
            if rows:
                hatch = Rectangle((0, top), 28, rows, fill=False, ec=GREY, hatch="////", lw=0)
                panel.add_patch(hatch)
                panel.text(14, top + rows / 2, "padding", ha="center", va="center", backgroundcolor="white")
    for panel in panels:
        panel.set_ylim(30.2, -2.2)
        panel.spines[:].set_visible(False)
        panel.add_patch(Rectangle((0, 0), 28, 28, fill=False, ec=GREY, lw=1))
    return figure


def torn(digit, right, differences, bounds):
    """The digit, its edges, and the errors after one, two, three convolutions without halos."""
    figure, panels = plt.subplots(
        1, 2 + len(differences), figsize=(2.6 * (2 + len(differences)), 3.3), layout="constrained"
    )
    picture(panels[0], digit, "the digit, on three ranks")
    signed = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1}
    picture(panels[1], right, "convolved: its edges", **signed)
    for panel, (layers, wrong) in zip(panels[2:], differences.items(), strict=True):
        times = "1 convolution" if layers == 1 else f"{layers} convolutions"
        picture(panel, wrong, f"error after {times}", **signed)
    for panel in panels:
        for bound in bounds[1:-1]:
            panel.axhline(bound, color=GREY, lw=1, ls=":")
    figure.supxlabel(
        "without halos, rows at the borders between ranks (dotted) are wrong; red: positive, blue: negative",
        fontsize=11,
    )
    return figure


def rows_or_filters(heights, rows, filters, formula):
    """Numbers a rank sends (forward, backward, weights) by height; rows against filters forward."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.3), layout="constrained")
    for counts, color in ((filters, RED), (rows, BLUE)):
        left.loglog(heights, counts.sum(axis=1), **curve(color))
        left.loglog(heights, counts[:, 0], **hollow(color))
    left.text(heights[1], filters[1].sum() * 1.5, "filters", color=RED, ha="right", fontweight="bold")
    left.text(heights[-1], rows[-1].sum() * 1.25, "rows", color=BLUE, ha="right", fontweight="bold")
    left.text(
        0.97, 0.03, "full: a step, with the weights' sum\ndashed: forward", color=GREY, ha="right",
        transform=left.transAxes,
    )  # fmt: skip
    left.set(ylabel="numbers a rank sends", title="What a rank sends for one 3 x 3 convolution")
    h = np.geomspace(heights[0], heights[-1], 50)
    right.loglog(h, formula(h), **line(GREY))
    right.loglog(heights, rows[:, 0] / filters[:, 0], **points(INK))
    right.text(h[25] * 1.1, formula(h[25]), "(k - 1) t / (H (t - 1))", color=GREY, va="bottom")
    right.set_yticks([0.05, 0.1, 0.2, 0.3], ["0.05", "0.1", "0.2", "0.3"])
    right.set(ylabel="rows / filters, forward", title="Rows against filters: as 1 / H")
    for panel in (left, right):
        panel.set_xticks(heights, [f"{n} x {n}" for n in heights])
        panel.minorticks_off()
        panel.set_xlabel("image")
    return figure


def corners(digit, needed, wrong):
    """The last of 2 x 2 tiles and its halo, whose corner is the diagonal neighbor's; the error without."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 5), layout="constrained")
    picture(left, digit, "The halo of rank 3's tile has a corner\n(needed from rank 1, rank 2 and rank 0)")
    for rank in range(4):
        shade(left, 14 * (rank // 2), 14, COLORS[rank], 14 * (rank % 2), 14, alpha=0.2)
        down, across = divmod(rank, 2)
        left.text(
            27 * across + 0.5, 27 * down + 0.5, f"rank {rank}", color=COLORS[rank],
            ha="right" if across else "left", va="bottom" if down else "top",
        )  # fmt: skip
    (top, *_), (side, *_) = needed
    shade(left, top, 14 - top, ORANGE, 14, 14, alpha=0.9)
    shade(left, 14, 14, GREEN, side, 14 - side, alpha=0.9)
    shade(left, top, 14 - top, BLUE, side, 14 - side, alpha=0.9)
    left.annotate(
        "pixel of rank 0,\nsent by rank 2", (side + 0.5, top + 0.5), (0.5, 6), color=INK,
        arrowprops={"arrowstyle": "->", "color": INK},
    )  # fmt: skip
    picture(
        right,
        wrong,
        "Error without corners\n(red: too large, blue: too small)",
        cmap="RdBu_r",
        vmin=-0.25,
        vmax=0.25,
    )
    for border in (right.axhline, right.axvline):
        border(14, color=GREY, lw=1, ls=":")
    return figure


def smaller_layers(table, accuracies):
    """Kilobytes a rank sends in a step, [batch, rows, columns] by network, and the networks' accuracies."""
    figure, axes = plt.subplots(figsize=(9.5, 4.8), layout="constrained")
    places = np.arange(len(table))
    ways = ("batch shared", "first layer by rows", "by columns, last by rows")
    for i, (way, kilobytes, color) in enumerate(
        zip(ways, zip(*table.values(), strict=True), (BLUE, GREEN, ORANGE), strict=True)
    ):
        axes.barh(places + 0.27 * (i - 1), kilobytes, 0.25, color=color, label=way)
        for place, n in zip(places, kilobytes, strict=True):
            axes.text(n + 8, place + 0.27 * (i - 1), f"{n:,.0f}", va="center", color=color, fontsize=8)
    names = [f"{name}\naccuracy {right:.1%}" for name, right in zip(table, accuracies, strict=True)]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    axes.set(xlabel="kB that each of four ranks sends in a step of 64 digits")
    axes.set_title("Smaller fully-connected layers send less, and may cost accuracy")
    return figure
