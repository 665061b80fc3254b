"""The pictures of lesson 14; each function takes what was counted and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from minigrad.figures import BLUE, GREEN, GREY, INK, MARKERS, ORANGE, RED, SAND, TEXT, curve, line, points


def level(names, crossovers):
    """For each layer the batch at which splitting it and sharing the batch move as much."""
    left, right = 0.1, 20_000
    rows = np.arange(len(names))[::-1]
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    axes.barh(rows, np.array(crossovers) - left, left=left, color=ORANGE, alpha=0.85, height=0.7)
    axes.barh(rows, right - np.array(crossovers), left=crossovers, color=BLUE, alpha=0.2, height=0.7)
    for row, at in zip(rows, crossovers, strict=True):
        text = f"{at:,.0f}" if at > 100 else f"{at:.1f}"
        axes.annotate(text, (at, row), (5, 0), textcoords="offset points", va="center", color=INK)
    axes.text(0.13, rows[-2], "split the layer", color=INK, va="center", fontweight="bold")
    axes.text(right * 0.8, rows[1], "share the batch", color=BLUE, va="center", ha="right", fontweight="bold")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(plain)
    axes.set(
        xlabel="samples in the batch",
        xlim=(left, right),
        yticks=rows,
        yticklabels=names,
        title="AlexNet: what moves fewer numbers, layer by layer",
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def alexnet(ranks, curves, parts):
    """Seconds by the ranks that share the model; and how the first curve's seconds are spent."""
    figure, (axes, bars) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1.45, 1), layout="constrained")
    figure.suptitle("AlexNet on 512 ranks, by the formula of Gholami et al. 2018")
    places = ((0, 32, "center"), (10, -5, "left"), (0, -17, "center"))  # of the labels, from the optimum
    for (name, seconds), color, (x, y, side) in zip(
        curves.items(), (BLUE, ORANGE, GREEN), places, strict=True
    ):
        best = int(np.argmin(seconds))
        axes.loglog(ranks, seconds, **curve(color) | {"ms": 5})
        axes.loglog(ranks[best], seconds[best], MARKERS[color], color=color, ms=10)
        axes.annotate(
            f"Pr = {ranks[best]}: {seconds[best]:.4f} s",
            (ranks[best], seconds[best]),
            (x, y),
            textcoords="offset points",
            color=color,
            ha=side,
        )
        label, place = name.replace(", ", ",\n"), (ranks[-1], seconds[-1])
        axes.annotate(label, place, (8, 0), textcoords="offset points", color=color, va="center")
    axes.set(
        xlabel="Pr, the ranks that share the model (of 512)",
        ylabel="seconds of a step spent on messages",
        xticks=ranks,
        xlim=(0.8, 6000),
        ylim=(0.007, 5),
        title="Neither pure data (left) nor pure model (right) parallelism",
    )
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.spines["bottom"].set_bounds(1, ranks[-1])
    axes.yaxis.set_major_formatter(plain)
    shown = [str(r) for r in ranks[: len(next(iter(parts.values())))]]
    bottom = np.zeros(len(shown))
    for (what, heights), color in zip(parts.items(), (GREEN, BLUE), strict=True):
        bars.bar(shown, 1e3 * np.array(heights), bottom=bottom, color=color, width=0.65, label=what)
        bottom += 1e3 * np.array(heights)
    bars.legend(loc="upper center")
    bars.set(xlabel="Pr", ylabel="milliseconds, all layers split, B = 2048", ylim=(0, 105))
    bars.set_title("Weights against activations")
    return figure


def three_ways(ranks, seconds, samples):
    """Seconds of a step's messages by ranks, where the batch, the model and the images may be shared."""
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    for (name, times), color in zip(seconds.items(), (BLUE, GREEN, RED), strict=True):
        axes.plot(ranks[: len(times)], times, **curve(color), label=name)
    axes.axvline(samples, color=GREY, ls="--", lw=1)
    axes.text(samples * 1.05, 0.06, f"{samples} samples", color=GREY)
    axes.legend()
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="ranks",
        ylabel="seconds of a step spent on messages",
        xticks=ranks,
        yticks=[0.005, 0.01, 0.02, 0.05, 0.1],
        title=f"AlexNet, a batch of {samples}: more ranks than samples",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
    return figure


def grids(batches, measured, formula, borders):
    """Bytes sent by each rank against the batch: dots measured, lines the formula."""
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    names = {"4 x 1": "4 x 1, the batch", "2 x 2": "2 x 2, both", "1 x 4": "1 x 4, the model"}
    for (name, times), color in zip(measured.items(), (BLUE, GREEN, ORANGE), strict=True):
        axes.loglog(batches, np.array(formula[name]) / 1e3, **line(color))
        axes.loglog(batches, np.array(times) / 1e3, **points(color))
        axes.annotate(
            names[name],
            (batches[0], times[0] / 1e3),
            (12, -5) if name == "1 x 4" else (0, 9),
            textcoords="offset points",
            color=color,
            fontweight="bold",
        )
    for border in borders:
        axes.axvline(border, color=GREY, ls="--", lw=1)
        axes.text(
            border * 1.03, 0.03, f"{border:.0f} samples", color=GREY, transform=axes.get_xaxis_transform()
        )
    axes.set(
        xlabel="samples in the batch",
        ylabel="kB sent by each rank in a step",
        xticks=batches,
        title="784-128-128-10 on four ranks, data x model (dots: counted; lines: formula)",
    )
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator([30, 100, 300, 1000, 3000]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(plain)
    return figure


def blocks(counted, formulas, bound, whole):
    """Numbers sent by each rank for a product, of ``whole`` in a matrix: dots counted, lines the formulas."""
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    ranks = np.geomspace(4, 4096, 61)
    places = {"by columns": (60, 8), "SUMMA": (20, 12), "2.5D, c = 4": (-30, -28)}
    for (name, numbers), color in zip(counted.items(), (ORANGE, BLUE, GREEN), strict=True):
        shown = ranks[ranks >= min(numbers)]
        axes.loglog(shown, [formulas[name](p) / whole for p in shown], **line(color))
        axes.loglog(list(numbers), [n / whole for n in numbers.values()], **points(color))
        last = max(numbers)
        axes.annotate(
            name,
            (last, numbers[last] / whole),
            places[name],
            textcoords="offset points",
            color=TEXT.get(color, color),
            fontweight="bold",
        )
    axes.loglog(ranks, [bound(p) / whole for p in ranks], **line(RED))
    axes.annotate(
        "no algorithm sends less",
        (32, bound(32) / whole),
        (-40, -24),
        textcoords="offset points",
        ha="center",
        color=TEXT[RED],
    )
    axes.set(
        xlabel="ranks p",
        ylabel="numbers sent by each rank, of N²",
        xticks=[4, 16, 64, 256, 1024, 4096],
        yticks=[0.01, 0.03, 0.1, 0.3, 1],
        ylim=(0.004, 2),
        title="A product of N x N matrices (dots: counted; lines: formula)",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
    return figure


@FuncFormatter
def plain(value, place):
    """Numbers as they are read, not as powers of ten."""
    return f"{value:,.10g}"


def rooflines(tokens, ratios):
    """Seconds of computing by seconds of messages, by the tokens of a rank, for each split and each link."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    colors = {"pipeline": INK, "experts": ORANGE, "model": GREEN, "sequence": RED, "batch": BLUE}
    titles = {"NVLink": "In a server: 300 GB/s", "200 Gbit/s": "Between servers: 25 GB/s"}
    for axes, (name, splits) in zip(panels, ratios.items(), strict=True):
        axes.axhspan(0.01, 1, color=SAND, alpha=0.5, lw=0)
        for split, values in splits.items():
            axes.loglog(tokens, values, **line(colors[split]), label=split)
        axes.set(xlabel="tokens on a rank", title=titles[name], ylim=(0.02, 600), xlim=(16, 65_536))
        axes.set_xticks([16, 128, 1024, 8192, 65_536])
        axes.xaxis.set_major_formatter(plain)
        axes.xaxis.set_minor_locator(NullLocator())
    panels[0].text(60_000, 0.03, "bound by messages", color=INK, ha="right")
    panels[0].set_ylabel("computing takes ... times as long as messages")
    panels[0].yaxis.set_major_formatter(plain)
    panels[1].legend(loc="upper left")
    return figure
