"""The pictures of lesson 13; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from backends.pipeline.gantt import figure_of
from minigrad.figures import BLUE, COLORS, GREEN, GREY, ORANGE, RED, curve, line, points


def on_one_clock(traces, title, chunks=()):
    """The traces above one another, all from 0 to the end of the longest; ``chunks`` names the chunks."""
    return figure_of(traces, title, one_clock=True, chunk_names=chunks)


def bubbles(micros, fractions):
    """The idle share by micro-batches: dots were measured, lines are the formula."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    fine = np.geomspace(micros[0], micros[-1], 100)
    for (ranks, shares), color in zip(fractions.items(), COLORS, strict=False):
        axes.plot(fine, (ranks - 1) / (fine + ranks - 1), **line(color))
        axes.plot(micros, shares, **points(color))
        axes.annotate(
            f"{ranks} ranks", (micros[0], shares[0]), (8, 4), textcoords="offset points", color=color
        )
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="micro-batches m",
        ylabel="share of the ranks' time that is idle",
        xticks=micros,
        xticklabels=micros,
        ylim=(0, None),
        title="More micro-batches, less waiting\n(dots: measured; lines: (p - 1) / (m + p - 1))",
    )
    return figure


def one_buffer(errors, curves):
    """The error of each rank's gradient, and the accuracy that hides it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for place, ((name, values), color) in enumerate(zip(errors.items(), (RED, ORANGE), strict=True)):
        spots = np.arange(len(values)) + 0.4 * (place - 0.5)
        left.bar(spots, values, 0.36, color=color, label=name)
    left.set_yscale("log")
    left.legend(loc="upper left")
    left.set(
        xticks=range(len(values)),
        xticklabels=[f"rank {rank}" for rank in range(len(values))],
        ylabel="error of the gradient, relative",
        ylim=(1e-17, 10),
        title="One buffer: wrong where several\nmicro-batches are in flight ...",
    )
    for (name, values), color in zip(curves.items(), (BLUE, RED), strict=True):
        right.plot(range(len(values)), values, **curve(color), label=name)
    right.legend(loc="lower right")
    right.set(xlabel="epoch", ylabel="test accuracy", xticks=range(len(values)), ylim=(0, 1))
    right.set_title("... and the accuracy rises all the same")
    return figure


def memory(series_of):
    """Bytes that each rank holds for backward, over time, a panel for each schedule."""
    figure, panels = plt.subplots(1, len(series_of), figsize=(10.5, 4), sharey=True, layout="constrained")
    for axes, (name, by_rank) in zip(panels, series_of.items(), strict=True):
        for rank, series in enumerate(by_rank):
            times, nbytes = np.array([(0.0, 0.0), *series]).T
            axes.step(times, nbytes / 1024, where="post", **line(COLORS[rank]), label=f"rank {rank}")
        axes.set(xlabel="time (s)", title=name, xlim=(0, None), ylim=(0, None))
    panels[0].set_ylabel("KiB held for backward")
    panels[0].legend()
    figure.suptitle("The same time, but 1F1B holds min(m, p - s) micro-batches instead of m")
    return figure


def lines_and_dots(axes, latencies, lines, shown, dots):
    """Planned seconds by latency, and measured ones."""
    for (name, values), color in zip(lines.items(), (BLUE, ORANGE, GREEN), strict=True):
        pale = {"lw": 6, "alpha": 0.3, "ls": "-"} if name == "gpipe" else {}  # another line covers it
        axes.plot(latencies, values, **line(color) | pale, label=name)
        axes.plot(shown, dots[name], **points(color))
    axes.legend()
    axes.set(
        xlabel="seconds a message takes (a stage's forward: 1)", ylabel="seconds a step", xlim=(-0.02, 1)
    )


def slow_links(latencies, lines, shown, dots):
    figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    lines_and_dots(axes, latencies, lines, shown, dots)
    axes.set(
        title="Chunks shrink the bubble, and send more messages\n"
        "(lines: plan; dots: run, in which a rank receives one message at a time)"
    )
    return figure


def products(parts, apart, batched):
    """Processor milliseconds for the weight gradients of 512 samples, by the number of micro-batches."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for times, color, name in ((apart, RED, "one by one, added up"), (batched, BLUE, "as one product")):
        axes.plot(parts, 1e3 * np.array(times), **curve(color), label=name)
    axes.legend()
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="micro-batches of 512 samples",
        ylabel="processor ms for a layer's weight gradients",
        xticks=parts,
        xticklabels=parts,
        ylim=(0, None),
        title="512 samples: small products against a large one\n(the fastest of 12 runs, this machine)",
    )
    return figure


def versions(curves, steps=25):
    """Training losses, [seed][step], as means over so many steps: each seed thin, the median thick."""
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    top = 3.0
    for (name, of_seed), color in zip(curves.items(), (GREY, BLUE, GREEN, ORANGE, RED), strict=True):
        capped = np.minimum(np.nan_to_num(np.array(of_seed), nan=np.inf, posinf=2 * top), 2 * top)
        smooth = [np.convolve(losses, np.ones(steps) / steps, "valid") for losses in capped]
        x = np.arange(steps, steps + len(smooth[0]))
        for losses in smooth:
            axes.plot(x, losses, color=color, lw=0.7, alpha=0.5)
        axes.plot(x, np.median(smooth, axis=0), **line(color), label=name)
    axes.legend(loc="lower left", ncols=2)
    axes.set(
        xlabel="step",
        ylabel=f"loss, mean of {steps} steps (up to {top:g})",
        xlim=(0, None),
        ylim=(0, top),
        title="Four ranks, no flush: stale gradients at a large learning rate\n"
        "(thin: three seeds; thick: their median)",
    )
    return figure


def own(latencies, lines, shown, dots, versions):
    """Seconds by latency, and bytes by rank, of a schedule and two others."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    lines_and_dots(left, latencies, lines, shown, dots)
    left.set_title("As fast as GPipe on slow links ...")
    for place, ((name, values), color) in enumerate(
        zip(versions.items(), (BLUE, ORANGE, GREEN), strict=True)
    ):
        spots = np.arange(len(values)) + 0.27 * (place - 1)
        right.bar(spots, np.array(values) / 1024, 0.25, color=color, label=name)
    right.set(
        xticks=range(len(values)),
        xticklabels=[f"rank {rank}" for rank in range(len(values))],
        ylabel="KiB held for backward, most",
        title="... with less memory",
    )
    return figure
