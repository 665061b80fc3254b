"""The pictures of lesson 18; each function takes what was computed and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Patch, Rectangle
from minigrad_course.machines.overlap import Compute

from minigrad.figures import (
    BACKWARD,
    BLUE,
    COLORS,
    COMMUNICATION,
    FORWARD,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SAND,
    curve,
    hollow,
    line,
)

WHITE_TO_BLUE = LinearSegmentedColormap.from_list("white to blue", ["#FFFFFF", BLUE])


def four_tokens(tokens, gates, chosen, factors):
    """The gates of four tokens for three experts; a frame around the largest of each."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for (t, e), gate in np.ndenumerate(gates):
        is_best = e == chosen[t]
        box = Rectangle((e, t), 0.92, 0.88, fc=BLUE, alpha=gate, lw=0)
        axes.add_patch(box)
        if is_best:
            axes.add_patch(Rectangle((e, t), 0.92, 0.88, fill=False, ec=ORANGE, lw=3))
        result = factors[e] * gate * tokens[t]
        words = f"{gate:.3f}\n→ ({result[0]:.3g}, {result[1]:.3g})" if is_best else f"{gate:.3f}"
        axes.text(e + 0.46, t + 0.44, words, ha="center", va="center", color="white" if gate > 0.6 else INK)
    axes.set(xlim=(-0.05, 3), ylim=(4, -0.05), xticks=np.arange(3) + 0.46, yticks=np.arange(4) + 0.44)
    axes.set_xticklabels([f"expert {e}: times {factor}" for e, factor in enumerate(factors)])
    axes.set_yticklabels([f"token ({x:g}, {y:g})" for x, y in tokens])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Gates of four tokens; the framed expert is chosen")
    return figure


def dropped(factors, formula, uniform, learned):
    """The share of tokens without a place by capacity factor: formula, drawn gates and a learned gate."""
    figure, axes = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    axes.plot(factors, learned, **curve(RED), label="a gate that has learned, without a penalty")
    axes.plot(factors, formula, **line(BLUE), label="all experts alike: formula")
    means, errors = np.transpose(uniform)
    drawn = curve(GREEN) | {"ls": "none", "capsize": 3}
    axes.errorbar(factors, means, 3 * errors, **drawn, label="all experts alike: drawn, 3 standard errors")
    axes.set_xscale("log", base=2)
    axes.set(xticks=factors, xticklabels=[f"{f:g}" for f in factors], ylim=(0, 1))
    axes.set(xlabel="capacity factor f", ylabel="share of tokens dropped")
    axes.set_yticks(np.arange(0, 1.1, 0.25), [f"{share:.0%}" for share in np.arange(0, 1.1, 0.25)])
    axes.minorticks_off()
    axes.set_title("64 tokens, 8 experts, one choice")
    axes.legend(loc="upper right")
    return figure


def shares_of_experts(without, balanced):
    """The share of tokens of each expert, step by step, dark where large; without and with the penalty."""
    figure, axes = plt.subplots(2, 1, figsize=(9, 5.2), sharex=True, layout="constrained")
    for panel, shares, name in zip(axes, (without, balanced), ("off", "on"), strict=True):
        image = panel.imshow(
            shares.T, aspect="auto", cmap=WHITE_TO_BLUE, vmin=0, vmax=0.75, interpolation="nearest"
        )
        panel.set(ylabel="expert", yticks=range(shares.shape[1]), title=f"Penalty {name}")
    axes[1].set_xlabel("step")
    bar = figure.colorbar(image, ax=axes, ticks=(0, 0.25, 0.5, 0.75))
    bar.ax.set_yticklabels(["0%", "25%", "50%", "75%"])
    bar.set_label("share of the tokens")
    return figure


def counts(counts, experts_of):
    """How many rows each rank has for each expert; the columns in the color of the expert's rank."""
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for owner, experts in enumerate(experts_of):
        for e in experts:
            for rank, rows in enumerate(counts[:, e]):
                stays = rank == owner
                axes.add_patch(
                    Rectangle(
                        (e, rank),
                        0.94,
                        0.9,
                        fc=COLORS[owner],
                        alpha=0.1 + 0.7 * rows / counts.max(),
                        hatch="///" if stays and rows else None,
                        ec=INK,
                        lw=0,
                    )
                )
                if stays and rows:
                    axes.add_patch(Rectangle((e + 0.3, rank + 0.25), 0.34, 0.4, fc="white", lw=0))
                axes.text(e + 0.47, rank + 0.45, rows, ha="center", va="center", color=INK)
    ranks, n_experts = counts.shape
    owners = [owner for owner, experts in enumerate(experts_of) for _ in experts]
    axes.set(xlim=(-0.05, n_experts), ylim=(ranks, -0.05))
    axes.set_xticks(np.arange(n_experts) + 0.47, [f"expert {e}\non rank {r}" for e, r in enumerate(owners)])
    axes.set_yticks(np.arange(ranks) + 0.45, [f"rows of rank {rank}" for rank in range(ranks)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Who sends how many rows to whom; hatched rows stay")
    return figure


def errors(by_capacity, limit):
    """The error of each parameter of a training on ranks, for both meanings of a capacity."""
    figure, axes = plt.subplots(figsize=(8, 5.6), layout="constrained")
    names = [name for name in by_capacity["sample"] if name != "loss"] + ["loss"]
    places, least = np.arange(len(names))[::-1], 1e-17
    for (per, of), color in zip(by_capacity.items(), (BLUE, RED), strict=True):
        values = np.maximum([of[name] for name in names], least)
        axes.plot(values, places, **curve(color) | {"ls": "none"}, label=f"places for each {per}")
    axes.axvline(limit, **line(GREY), label="limit")
    axes.set_xscale("log")
    axes.set(yticks=places, yticklabels=names, xlim=(least / 3, 10), xlabel="largest relative difference")
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.minorticks_off()
    axes.set_title("Four ranks against one machine, three steps")
    axes.legend(loc="upper center")
    return figure


def costs(numbers, sizes, counted_numbers, counted, even):
    """Parameters and operations against the number of experts; and the bytes that a rank sends."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    left.plot(numbers, [size.parameters / sizes[0].parameters for size in sizes], **curve(BLUE))
    left.plot(numbers, [size.flops / sizes[0].flops for size in sizes], **curve(ORANGE))
    left.text(8, 13, "parameters", color=BLUE, ha="right")
    left.text(8, 1.25, "operations for a token", color=ORANGE, ha="center")
    left.set(ylabel="times that of one expert", title="A layer of width 768", ylim=(0.8, 100))
    exchanged, reduced = np.transpose(counted) / 1024
    right.plot(counted_numbers, exchanged, **curve(PURPLE))
    right.axhline(even / 1024, **line(GREY))
    right.plot(counted_numbers, reduced, **hollow(GREEN))
    right.text(64, even / 1024 * 0.72, "rows there and back; evenly (dashed)", color=PURPLE, ha="right")
    right.text(14, 260, "all-reduce of\ncopies' gradients", color=GREEN, ha="right")
    right.set(ylabel="KiB that a rank sends in a step", title="Four ranks, 64 tokens each", ylim=(6, 1000))
    for axes, ticks in ((left, numbers), (right, counted_numbers)):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(xticks=ticks, xticklabels=ticks, xlabel="experts E")
        axes.minorticks_off()
    left.set_yticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    right.set_yticks([10, 100, 1000], ["10", "100", "1,000"])
    return figure


def lanes(forms):
    """What a rank computes and sends for two micro-batches, on one clock for all forms."""
    figure, axes = plt.subplots(len(forms), 1, figsize=(10, 4.2), sharex=True, layout="constrained")
    for panel, (name, done) in zip(axes, forms.items(), strict=True):
        for busy in done:
            computes = isinstance(busy.step, Compute)
            color = (FORWARD, BACKWARD)[busy.micro] if computes else COMMUNICATION
            panel.add_patch(
                Rectangle(
                    (busy.start, 0 if computes else 1),
                    busy.stop - busy.start,
                    0.85,
                    fc=color,
                    alpha=0.85,
                    ec="white",
                    lw=1,
                    hatch="///" if not computes and busy.micro else None,
                )
            )
        end = max(busy.stop for busy in done)
        panel.set(xlim=(0, 62), ylim=(2, -0.1), yticks=(0.42, 1.42), yticklabels=("computes", "sends"))
        panel.set_title(f"{name}: {end:g} s", loc="left")
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
    axes[-1].set_xlabel("seconds")
    handles = [
        Patch(fc=FORWARD, alpha=0.85, label="forward of one"),
        Patch(fc=BACKWARD, alpha=0.85, label="backward of the other"),
        Patch(fc=COMMUNICATION, alpha=0.85, label="all-to-all of one"),
        Patch(fc=COMMUNICATION, alpha=0.85, ec="white", hatch="///", label="of the other"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure


def hidden(times, computing, exchanges):
    """Seconds in sequence and in turns, by the seconds of an all-to-all, above what must be spent."""
    figure, axes = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    lengths = np.array(list(times))
    least = np.maximum(computing, exchanges * lengths)
    axes.fill_between(lengths, 0, least, color=SAND, lw=0)
    in_sequence, in_turns = np.transpose(list(times.values()))
    axes.plot(lengths, in_sequence, **curve(RED), label="in sequence: the sum")
    axes.plot(lengths, in_turns, **curve(BLUE), label="in turns")
    axes.text(5.6, 12, "the longer of computing and all-to-alls", ha="center", color=INK)
    axes.set(xlabel="seconds of an all-to-all", ylabel="seconds of both micro-batches", ylim=(0, None))
    axes.set(xlim=(0, lengths[-1] + 0.1), title="A forward and a backward, in turns")
    axes.legend(loc="upper left")
    return figure
