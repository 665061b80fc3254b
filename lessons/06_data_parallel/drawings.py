"""The pictures of lesson 06; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from minigrad.figures import BLUE, GREEN, GREY, INK, ORANGE, RED, YELLOW, curve, line, points


def weighted_mean(sizes, plain_errors, right_errors, curves):
    """The gradient's error by batch size, with and without weights; the accuracy that hides it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    left.semilogy(sizes, np.maximum(plain_errors, 1e-17), **points(RED))
    left.semilogy(sizes, np.maximum(right_errors, 1e-17), **points(GREEN))
    left.text(sizes[-1], 2, "plain mean of the ranks' means", color=RED, ha="right")
    left.text(sizes[-1], 2e-15, "weighted by samples", color=GREEN, ha="right")
    left.set(
        xlabel="samples in the batch, on three ranks",
        ylabel="error of the gradient, relative",
        ylim=(1e-17, 100),
        title="Without weights the gradient is wrong\nunless three divides the batch size ...",
    )
    for (name, accuracies), color in zip(curves.items(), (BLUE, RED), strict=True):
        epochs = np.arange(1, len(accuracies) + 1)
        right.plot(epochs, accuracies, **curve(color), label=name)
    right.legend(loc="lower right", labelcolor="linecolor")
    right.set(
        xlabel="epoch",
        ylabel="test accuracy",
        ylim=(min(min(a) for a in curves.values()) - 0.03, max(max(a) for a in curves.values()) + 0.03),
        xticks=epochs,
        title="... and the accuracy rises all the same",
    )
    return figure


def bucket_sizes(layers, measured, formula, computing):
    """Time of a step against the bucket size, for two latencies, on the formula's lines."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for (name, seconds), color in zip(measured.items(), (BLUE, ORANGE), strict=True):
        axes.plot(layers, 1e3 * np.array(formula[name]), **line(color))
        axes.plot(layers, 1e3 * np.array(seconds), **points(color))
        axes.annotate(
            f"latency {name}",
            (layers[-1], 1e3 * seconds[-1]),
            (9, 0),
            textcoords="offset points",
            color=color,
            va="center",
        )
        best = int(np.argmin(seconds))
        axes.annotate(
            "best",
            (layers[best], 1e3 * seconds[best]),
            (0, 8),
            textcoords="offset points",
            color=color,
            ha="center",
        )
    axes.axhline(1e3 * computing, color=GREY, ls="--", lw=1)
    axes.text(layers[-1], 1e3 * computing * 0.98, "computing alone", color=GREY, ha="right", va="top")
    axes.set(
        xlabel="layers in a bucket (6: everything in one message, after backward)",
        ylabel="ms a step",
        xticks=layers,
        xlim=(0.7, 7.6),
        ylim=(0, 1.12e3 * max(map(max, measured.values()))),
        title="Small buckets overlap, large ones save latency\n(dots: virtual cluster; lines: the formula)",
    )
    return figure


def zero_stages(ranks, optimizer_bytes):
    """Bytes per parameter on each rank, by what they are for, replicated and in the three stages."""
    part = 1 / ranks
    bytes_of = {
        "weights": (GREEN, [4, 4, 4, 4 * part]),
        "gradients": (ORANGE, [4, 4, 4 * part, 4 * part]),
        "Adam's state": (YELLOW, [optimizer_bytes, *[optimizer_bytes * part] * 3]),
    }
    names = ["replicated", "stage 1:\nstate in parts", "stage 2:\nand gradients", "stage 3:\nand weights"]
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    bottom = np.zeros(4)
    for what, (color, heights) in bytes_of.items():
        axes.bar(names, heights, bottom=bottom, color=color, width=0.6)
        axes.text(-0.38, bottom[0] + heights[0] / 2, what, ha="right", va="center", color=color)
        bottom += heights
    for place, total in enumerate(bottom):
        axes.text(place, total + 0.25, f"{total:g}", ha="center")
    sent = ("2", "2", "2", "3")
    for place, times in enumerate(sent):
        axes.text(place, -4.5, f"sends {times} (N-1)/N\nper parameter", ha="center", color=GREY)
    axes.set(
        ylabel="bytes per parameter on each rank",
        xlim=(-1.25, 3.5),
        title=f"Who holds what, on {ranks} ranks (float32)",
    )
    return figure


def stragglers(backups, simulated, expected, needed):
    """The mean time of a step against the number of backup workers."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(backups, expected, **line(GREY))
    axes.plot(backups, simulated, **points(BLUE))
    axes.text(backups[1] + 0.4, expected[1], "H(N + b) - H(b)", color=GREY)
    axes.annotate(
        f"{simulated[4]:.2f}", (4, simulated[4]), (0, 9), textcoords="offset points", color=BLUE, ha="center"
    )
    axes.annotate(
        f"{simulated[0]:.2f}", (0, simulated[0]), (9, 0), textcoords="offset points", color=BLUE, va="center"
    )
    axes.set(
        xlabel=f"backup workers b, besides the N = {needed} that are needed",
        ylabel="time of a step (mean time of one worker = 1)",
        ylim=(0, None),
        title="Four workers more, and a step takes 40 % less",
    )
    return figure


def scaling(ranks, share, strong, weak):
    """Speed-ups by ranks, strong and weak: the two laws, runs without messages, and runs with messages."""
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.3), sharey=True, layout="constrained")
    many = np.linspace(1, ranks[-1], 100)
    laws = 1 / (share + (1 - share) / many), many - share * (many - 1)
    titles = "Strong scaling: 64 samples in all", "Weak scaling: 64 samples on each rank"
    names = "Amdahl", "Gustafson"
    for axes, law, runs, title, name in zip(panels, laws, (strong, weak), titles, names, strict=True):
        axes.plot(many, many, **line(GREY) | {"lw": 1})
        axes.plot(many, law, **line(INK))
        for speedups, color in zip(runs, (BLUE, ORANGE), strict=True):
            axes.plot(ranks, [speedups[p] for p in ranks], **points(color))
        axes.plot([], [], **line(GREY), label="p times as fast")
        axes.plot([], [], **line(INK), label=f"{name}'s law")
        axes.plot([], [], **points(BLUE), label="run without messages")
        axes.plot([], [], **points(ORANGE), label="run with messages")
        axes.legend(loc="upper left")
        axes.set(xlabel="ranks", xticks=ranks, title=title, ylim=(0, 19))
    panels[0].set_ylabel("times as fast as one rank")
    return figure
