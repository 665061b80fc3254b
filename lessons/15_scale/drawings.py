"""The pictures of lesson 15; each function takes what was computed and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from minigrad.figures import (
    BACKWARD,
    BLUE,
    COMMUNICATION,
    FORWARD,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    SAND,
    curve,
    line,
    points,
)

PLAIN = FuncFormatter(lambda x, _: f"{x:,g}")


def powers(axes, ticks):
    """A logarithmic axis along x with these ticks, as plain numbers."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_locator(NullLocator())


def efficiency(gpus, curves, lowest, highest, horovod, goyal, published):
    """Lines of the model, bands between its two extremes, published points."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    places = {"Inception-V3": (45, 0.985), "ResNet-101": (45, 0.895), "VGG-16": (45, 0.755)}
    for (name, efficiencies), color in zip(curves.items(), (GREEN, BLUE, RED), strict=True):
        left.plot(gpus, efficiencies, **line(color))
        if name == "VGG-16":
            left.fill_between(gpus, lowest[name], highest[name], color=color, alpha=0.12, lw=0)
        left.plot(
            *zip(*horovod[name].items(), strict=True), **points(color) | {"ms": 8 + 5 * (color == GREEN)}
        )
        left.text(*places[name], name, color=color, ha="right")
    left.text(9, 0.56, "VGG-16: between nothing hidden\nand no latency", color=RED, fontsize=10)
    left.plot([], [], "o", color=GREY, ms=8, label="published")
    left.plot([], [], color=GREY, lw=2, label="model")
    left.legend(loc="lower left")
    powers(left, gpus[::2] + gpus[-1:])
    left.set(xlabel="GPUs", ylabel="efficiency", ylim=(0.45, 1.02), title="Horovod: a ring, 25 Gbit/s")
    left.yaxis.set_major_formatter(PercentFormatter(1))
    right.plot(goyal.keys(), goyal.values(), color=BLUE, lw=2)
    right.plot(published.keys(), published.values(), **points(BLUE))
    right.text(60, 0.985, "ResNet-50", color=BLUE)
    powers(right, list(goyal))
    right.set(xlabel="GPUs", title="Goyal et al.: 8 in a server, 50 Gbit/s")
    return figure


def pipelines(published, stages):
    """Speeds by stages for 32 and for 4 micro-batches: the formula, and what was measured."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    ks = np.linspace(1, 8.3, 50)
    titles = {32: "32 micro-batches: a bound from above", 4: "4: not what the formula describes"}
    for panel, (m, title) in zip(panels, titles.items(), strict=True):
        panel.plot(ks, ks * m / (m + ks - 1), color=INK, lw=2)
        panel.text(8.2, 8.2 * m / (m + 7.2) + 0.15, "K M / (M + K - 1)", ha="right", color=INK)
        for (name, rows), color in zip(published.items(), (BLUE, RED, ORANGE), strict=True):
            panel.plot(stages, rows[m], **curve(color) | {"lw": 1}, label=name)
        panel.set(xlabel="stages K", xticks=[1, *stages], xlim=(0.8, 8.6), title=title)
    panels[0].set(ylabel="times as fast as one", ylim=(0, 7.4))
    panels[0].legend(loc="upper left")
    return figure


def split(ranks, ways):
    """Seconds that a step spends on messages, by the number of ranks and by the way they share."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    shifts = {"batch only": (8, 2), "model only": (-8, 8), "both, all layers alike": (8, -4)}
    shifts["both, linear layers only"] = (14, -28)
    for (name, times), color in zip(ways.items(), (BLUE, ORANGE, GREEN, RED), strict=True):
        rows, seconds = zip(*(x if isinstance(x, tuple) else (None, x) for x in times), strict=True)
        axes.plot(ranks[: len(seconds)], seconds, **curve(color))
        side = "right" if name == "model only" else "left"
        place = (ranks[len(seconds) - 1], seconds[-1])
        axes.annotate(name, place, shifts[name], textcoords="offset points", color=color, ha=side)
        for p, pr, y in zip(ranks, rows, seconds, strict=False):
            if pr:
                place = {
                    "textcoords": "offset points",
                    "ha": "center",
                    "bbox": {"fc": "white", "ec": "none", "pad": 1},
                }
                axes.annotate(pr, (p, y), (0, -17), color=color, **place)
    axes.axvline(512, color=GREY, lw=0.8, ls=":")
    axes.text(500, 6.5, "Gholami et al.", color=GREY, ha="right")
    powers(axes, ranks)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(PLAIN)
    axes.set(xlabel="ranks", ylabel="seconds of a step spent on messages", ylim=(0.003, 9))
    axes.set_xlim(ranks[0] * 0.85, ranks[-1] * 7)
    axes.spines["bottom"].set_bounds(ranks[0], ranks[-1])
    axes.set_title("AlexNet, a batch of 2,048; the numbers are the best Pr")
    return figure


def zero(nbytes, published):
    """Memory on a GPU by GPUs, for 7.5 billion parameters."""
    gpus = [2**i for i in range(11)]
    figure, axes = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
    names = ("every rank has all", "1: state shared", "2: gradients too", "3: weights too")
    for stage, (name, color) in enumerate(zip(names, (GREY, BLUE, ORANGE, GREEN), strict=True)):
        gigabytes = [nbytes(7.5e9, n, stage) / 1e9 for n in gpus]
        axes.plot(gpus, gigabytes, **line(color))
        axes.plot(64, published[stage], **points(color))
        axes.annotate(
            name,
            (gpus[-1], gigabytes[-1]),
            (8, -10 if stage == 1 else -4),
            textcoords="offset points",
            color=color,
        )
    axes.plot([1, gpus[-1]], [32, 32], color=INK, lw=0.8, ls="--")
    axes.text(1, 24.5, "a GPU of 32 GB", color=INK, fontsize=9)
    powers(axes, gpus)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(PLAIN)
    axes.set(xlabel="GPUs", ylabel="GB on each", xlim=(0.9, 6000))
    axes.spines["bottom"].set_bounds(1, gpus[-1])
    axes.set_title("7.5 billion parameters: memory by ZeRO stage (points: published)")
    return figure


def checkpoints(intervals, simulated, formula, young, daly):
    """The share of the time that is lost, by the interval between checkpoints."""
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    axes.plot(intervals / 60, formula, color=BLUE, lw=2, label="formula")
    axes.plot(intervals / 60, simulated, **points(ORANGE), label="simulated")
    for name, seconds, side in (("Young", young, "left"), ("Daly", daly, "right")):
        axes.axvline(seconds / 60, color=GREY, lw=1, ls=":")
        axes.text(seconds / 60, 0.24, f" {name} ", color=GREY, ha=side)
    axes.legend(loc="lower left")
    axes.set_xscale("log")
    axes.set_xticks([5, 10, 20, 40, 80])
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(xlabel="minutes between checkpoints", ylabel="time lost", ylim=(0, 0.27))
    axes.set_title("60 s to save, a failure every 3 hours")
    return figure


def utilization(used):
    """For each model the share of the peak that it needs, and the share that is computed again."""
    figure, axes = plt.subplots(figsize=(9, 4.4), layout="constrained")
    places = np.arange(len(used))
    mfu, hfu = np.transpose(list(used.values()))
    axes.bar(places, np.ones(len(used)), 0.7, color=SAND, label="not used")
    axes.bar(places, hfu, 0.7, color=ORANGE, hatch="//", ec="white", label="computed again")
    axes.bar(places, mfu, 0.7, color=BLUE, label="needed by the model")
    for place, needed, executed in zip(places, mfu, hfu, strict=True):
        axes.text(place, needed / 2, f"{needed:.0%}", ha="center", va="center", color="white")
        axes.text(place, executed + 0.02, f"{executed:.0%}", ha="center", color=INK)
    axes.set(xticks=places, xticklabels=used, xlabel="billion parameters", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set(ylabel="share of 312 TFLOP/s", title="Megatron-LM on A100s: MFU, and HFU above it")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def prefetch(steps):
    """Computing of rank 0 and collectives on its link over time, by the number of layers gathered ahead."""
    shown = {ahead: step for ahead, step in steps.items() if ahead < 3}
    figure, panels = plt.subplots(len(shown), 1, figsize=(10.5, 5), sharex=True, layout="constrained")
    looks = {
        "forward": (0, FORWARD, None),
        "backward": (0, BACKWARD, None),
        "start_allgather": (1, COMMUNICATION, None),
        "start_reduce_scatter": (1, COMMUNICATION, "///"),
    }
    for axes, (ahead, step) in zip(panels, shown.items(), strict=True):
        for span in step.spans:
            lane, color, hatch = looks[span.what.partition(" ")[0]]
            start, length = 1e3 * span.start, 1e3 * (span.stop - span.start)
            axes.add_patch(Rectangle((start, lane), length, 0.85, fc=color, ec="white", lw=1, hatch=hatch))
        axes.set(xlim=(0, 109), ylim=(2, -0.1), yticks=(0.42, 1.42), yticklabels=("computes", "link"))
        memory = f"{step.most_held:,} weights whole or on their way"
        axes.set_title(f"prefetch {ahead}: {1e3 * step.seconds:.0f} ms, {memory}", loc="left")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    panels[-1].set_xlabel("ms")
    handles = [
        Patch(fc=FORWARD, label="forward"),
        Patch(fc=BACKWARD, label="backward"),
        Patch(fc=COMMUNICATION, label="all-gather of weights"),
        Patch(fc=COMMUNICATION, ec="white", hatch="///", label="reduce-scatter of gradients"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure
