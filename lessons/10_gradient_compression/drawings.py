"""The pictures of lesson 10; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter, NullLocator

from minigrad.figures import BLUE, COMMUNICATION, GREEN, GREY, INK, MARKERS, ORANGE, RED, curve, line, points


def smooth(losses, window=10):
    """The mean of the last ``window`` steps' losses, at each step from the ``window``-th on."""
    return np.arange(window, len(losses) + 1), np.convolve(losses, np.ones(window) / window, "valid")


def threshold(gradient, limit, results):
    """The sizes of a gradient's entries; losses where entries below the threshold are kept or dropped."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    sizes = abs(gradient[gradient != 0])
    _, edges, bars = left.hist(np.log10(sizes), bins=np.linspace(-7, -0.5, 53), color=BLUE)
    for edge, bar in zip(edges, bars, strict=False):
        if edge >= np.log10(limit) - 1e-9:
            bar.set_color(COMMUNICATION)
    left.axvline(np.log10(limit), color=INK, lw=1)
    top = left.get_ylim()[1] * 1.12
    left.set_ylim(0, top)
    left.text(np.log10(limit) + 0.12, top * 0.95, "sent", color=COMMUNICATION, fontweight="bold", va="top")
    left.text(
        np.log10(limit) - 0.12, top * 0.95, "stays", color=BLUE, fontweight="bold", va="top", ha="right"
    )
    zeros = (gradient == 0).mean()
    left.text(-6.9, top * 0.95, f"{zeros:.0%} are exactly 0", color=GREY, va="top")
    left.set_xticks(range(-7, 0), [f"$10^{{{k}}}$" for k in range(-7, 0)])
    left.set(xlabel="size of an entry of the gradient", ylabel="entries")
    left.set_title("Most entries of a gradient are small")
    for name, color in (("dense", INK), ("threshold", GREEN), ("threshold, dropped", RED)):
        right.plot(*smooth(results[name][2]), **line(color))
    at, last = smooth(results["threshold, dropped"][2])
    right.text(at[-1], last[-1] + 0.22, "the rest is dropped", color=RED, ha="right")
    at, last = smooth(results["threshold"][2])
    right.text(at[35], last[35] + 0.15, "the rest is kept", color=GREEN)
    right.text(at[-1], last[-1] - 0.08, "all is sent", color=INK, ha="right", va="top")
    right.set(xlabel="step", ylabel="loss (mean of ten steps)", ylim=(0, 2.5))
    right.set_title("With error feedback nothing is lost")
    return figure


def momentum(moved, valley, trained):
    """A gradient that waits; velocities that keep moving in a valley; training."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.5, 4.4), layout="constrained")
    colors = {"dense": INK, "basic": RED, "corrected": BLUE, "masked": GREEN}
    for name, path in moved.items():
        left.plot(path, **line(colors[name]), drawstyle="steps-post")
    left.axvline(9, color=GREY, lw=0.8, ls=":")
    left.text(13, 0.3, "sent for\nthe first time", color=GREY)
    left.set(xlabel="step", ylabel="the weight", ylim=(0, 10.5))
    left.set_title("A gradient of 1 in step 0")
    for name, path in valley.items():
        middle.plot(path, **line(colors[name]), drawstyle="steps-post")
    middle.axhline(0, color=GREY, lw=0.8, ls=":")
    middle.set(xlabel="step", ylabel="the weight", ylim=(-1.2, 1.05))
    middle.set_title("Into a valley,\nsent every 10th step")
    for name, color in colors.items():
        curves = [smooth(losses, 25) for _, _, losses, _ in trained[name]]
        for steps, losses in curves:
            right.plot(steps, losses, color=color, lw=0.6, alpha=0.5)
        mean = np.mean([losses for _, losses in curves], axis=0)
        right.plot(curves[0][0], mean, **line(color), label=name)
    right.set(xlabel="step", ylabel="loss (mean of 25 steps)", yscale="log", ylim=(0.02, 4))
    right.set_title("Digits, 1 entry in 1,000 sent\n(thin: 2 seeds; thick: their mean)")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


PLACES = {  # of the labels: bytes and loss
    "dense": (152_000, 0.42),
    "threshold": (20_000, 0.48),
    "top-k": (5_000, 0.42),
    "random-k": (40_000, 0.45),
    "DGC": (1_400, 0.46),
    "1-bit": (7_500, 0.19),
    "scaled sign": (4_000, 0.3),
    "QSGD": (48_000, 0.29),
    "TernGrad": (25_000, 0.25),
    "PowerSGD": (14_000, 0.2),
    "threshold, dropped": (3_000, 1.4),
    "top-k, dropped": (5_600, 0.65),
    "scaled sign, dropped": (11_600, 0.72),
    "PowerSGD, dropped": (12_000, 0.85),
}


def family(results):
    """Bytes sent against the loss at the end; hollow where what was not sent is dropped."""
    figure, panel = plt.subplots(figsize=(9, 5.6), layout="constrained")
    kinds = {
        BLUE: ("threshold", "top-k", "random-k", "DGC"),
        ORANGE: ("1-bit", "scaled sign", "QSGD", "TernGrad"),
        GREEN: ("PowerSGD",),
    }
    colors = {"dense": INK} | {name: color for color, names in kinds.items() for name in names}
    for name, (loss, _, _, sent) in results.items():
        method = name.removesuffix(", dropped")
        color, hollow = colors[method], method != name
        panel.plot(sent, loss, MARKERS[color], ms=9, mew=2, color=color, mfc="white" if hollow else color)
        other = results[method]
        panel.plot([other[3], sent], [other[0], loss], ":", lw=1, color=GREY, zorder=0)
        left = name in ("top-k, dropped", "scaled sign", "top-k")
        side = "right" if left else "left" if hollow else "center"
        line = None if hollow else {"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkB": 5}
        panel.annotate(name, (sent, loss), PLACES[name], color=color, ha=side, va="center", arrowprops=line)
    panel.axhline(results["dense"][0], color=GREY, lw=0.8, ls=":", zorder=0)
    words = ("some entries", "all entries, in few bits", "narrow matrices")
    for y, color, text in zip((1.5, 1.42, 1.34), kinds, words, strict=True):
        panel.text(40_000, y, text, color=color, fontweight="bold", va="center")
    panel.set(xscale="log", xlim=(400, 3e5), ylim=(0.1, 1.65))
    panel.set(xlabel="bytes that a rank sends in a step", ylabel="loss at the end")
    panel.set_title("Fewer bytes, a similar loss; without error feedback (hollow) a much larger one")
    return figure


def sign(paths, samples):
    """The paths of the two weights over the loss; their distance from the best."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    grid = np.stack(np.meshgrid(np.linspace(-0.6, 2.1, 80), np.linspace(-0.6, 1.5, 80)), axis=-1)
    left.contour(
        *grid.transpose(2, 0, 1), ((grid @ samples.T) ** 2).mean(axis=-1), 14, colors=GREY, linewidths=0.5
    )
    for path, color in zip(paths.values(), (INK, RED, GREEN), strict=True):
        left.plot(*path.T, **curve(color) | {"lw": 1.2, "ms": 4})
        distance = np.maximum(np.linalg.norm(path, axis=1), 1e-8)
        right.plot(distance, **line(color))
    left.plot(0, 0, "*", color=INK, ms=14, mec="white", zorder=5)
    left.annotate("the best", (0, 0), (-10, -16), textcoords="offset points", ha="center")
    left.annotate("start", paths["its sign"][0], (4, 6), textcoords="offset points")
    left.annotate("stuck", paths["its sign"][-1], (6, 6), textcoords="offset points", color=RED)
    left.set(xlabel="weight 1", ylabel="weight 2", aspect="equal")
    left.set_title("Signs only move along one diagonal")
    right.text(118, 5e-4, "the gradient", color=INK, ha="right")
    right.text(118, 2, "its sign", color=RED, ha="right")
    right.text(4, 3e-5, "its sign,\nwith error feedback", color=GREEN)
    right.set(yscale="log", xlabel="step", ylabel="distance from the best", ylim=(1e-7, 5))
    right.set_title("With error feedback signs converge")
    return figure


def density(densities, gathered, ring, length):
    """Bytes of the all-gather against bytes of the ring, by density; the density at which both are equal."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    share = np.geomspace(0.008, 1, 50)
    for p, color in zip(gathered, (BLUE, GREEN, ORANGE, RED), strict=True):
        one = 2 * (p - 1) / p * 4
        left.plot(share, (p - 1) * 8 * share / one, **line(color) | {"lw": 1.2})
        left.plot(densities, np.array(gathered[p]) / ring[p], **points(color))
        left.text(1.05, p, f"{p} ranks", color=color, va="center")
    left.axhline(1, color=INK, lw=1.5)
    left.text(0.0085, 1.08, "a dense ring", color=INK)
    left.set(xscale="log", yscale="log", xlim=(0.008, 2.2), xlabel="density d, the share that is sent")
    left.set_ylabel("bytes of the all-gather, the ring's being 1")
    left.set_xticks([0.01, 0.05, 0.125, 0.25, 0.5, 1], ["1%", "5%", "12.5%", "25%", "50%", "100%"])
    left.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    left.set_title("Measured, and the formula p d")
    p = np.geomspace(2, 256, 50)
    for factor, name, color in (
        (2, "values alone (random-k): 2 / p", ORANGE),
        (4 / 3, "8 bytes and an index: 4 / (3 p)", GREEN),
        (1, "4 bytes and an index: 1 / p", BLUE),
    ):
        right.plot(p, np.minimum(factor / p, 1), **line(color), label=name)
    right.plot(32, 0.25, "x", color=RED, ms=9, mew=2.5)
    right.annotate(
        "25% on 32 ranks:\n8 times the ring", (32, 0.25), (8, 0), textcoords="offset points", color=RED
    )
    right.legend(loc="lower left", labelcolor="linecolor")
    right.set(xscale="log", yscale="log", xlabel="ranks p", ylabel="density at which both send the same")
    right.set_xticks([2, 8, 32, 128], ["2", "8", "32", "128"])
    right.set_yticks([0.01, 0.1, 1], ["1%", "10%", "100%"])
    right.set_title("Above the line: do not compress")
    for axis in (left.xaxis, left.yaxis, right.xaxis, right.yaxis):
        axis.set_minor_locator(NullLocator())
    return figure


def slow_link(seconds, speeds, formula, computing):
    """Seconds a step against the bandwidth: measured on the virtual clock, and the formulas."""
    figure, panel = plt.subplots(figsize=(8, 4.6), layout="constrained")
    speed = np.geomspace(10e6, 200e9, 100) / 8
    for (method, times), color in zip(seconds.items(), (INK, BLUE, GREEN), strict=True):
        label = {"dense": "dense ring", "DGC": "DGC, density 0.1%", "PowerSGD": "PowerSGD, rank 2"}[method]
        panel.plot(8 * speed, [1e3 * formula(method, b) for b in speed], **line(color), label=label)
        for name, t in times.items():
            panel.plot(8 * speeds[name], 1e3 * t, **points(color))
    panel.axhline(1e3 * computing, color=GREY, lw=0.8, ls=":")
    panel.text(1.1e7, 1e3 * computing * 0.97, "computing alone", color=GREY, va="top")
    panel.legend(loc="upper right", labelcolor="linecolor")
    panel.set(xscale="log", yscale="log", xlabel="bandwidth of a link", ylabel="a step (ms)")
    panel.set_xticks(
        [1e7, 1e8, 1e9, 1e10, 1e11], ["10 Mbit/s", "100 Mbit/s", "1 Gbit/s", "10 Gbit/s", "100 Gbit/s"]
    )
    panel.set_yticks([20, 50, 100, 200, 500, 1000], ["20", "50", "100", "200", "500", "1000"])
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_title("Eight machines: on a slow link compression pays, on a fast one little is left to save")
    return figure
