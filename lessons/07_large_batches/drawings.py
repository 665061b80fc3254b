"""The pictures of lesson 07; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MultipleLocator, NullLocator, PercentFormatter

from lessons.style import BLUE, GREEN, GREY, ORANGE, RED


def scaling(steps, epochs, at_most):
    """Epochs and steps to the target against the batch size, by rule; where there is no end, a cross."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    colors = {"linear": BLUE, "square root": ORANGE, "fixed": RED}
    for panel, found in ((left, epochs), (right, steps)):
        for rule, color in colors.items():
            batches, values = np.array(list(found[rule].items())).T
            panel.plot(batches, values, "o-", color=color, lw=2, ms=6, mec="white")  # infinite: not drawn
    sizes = np.array(list(steps["linear"]))
    ideal = steps["linear"][sizes[0]] * sizes[0] / sizes
    left.plot(sizes[-1], at_most, "x", color=BLUE, ms=9, mew=2)
    left.text(sizes[-1], at_most - 0.8, f"not in\n{at_most} epochs", color=BLUE, ha="center", va="top")
    left.text(128, epochs["linear"][128] - 1.4, "k times the rate", color=BLUE, ha="center")
    left.text(72, epochs["square root"][64], "√k times the rate", color=ORANGE, va="center")
    left.text(64, min(epochs["fixed"][64], at_most - 2) + 0.7, "the same rate", color=RED, ha="center")
    left.set(ylim=(0, at_most + 1), ylabel="epochs until 90 % are right")
    left.yaxis.set_major_locator(MultipleLocator(5))
    left.set_title("k times the rate: no more epochs than before ...")
    right.plot(sizes, ideal, ":", color=GREY, lw=1.5, zorder=0)
    right.text(sizes[-2], ideal[-2] * 0.72, "1/k", color=GREY, ha="right")
    right.set(yscale="log", ylabel="steps until 90 % are right")
    right.set_title("... so 1/k of the steps, up to a limit")
    for panel in (left, right):
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [str(b) for b in sizes])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel("batch size (samples), k times 16")
    return figure


def warm_up(schedules, curves, right, per_epoch, warm):
    """Rate and loss over the epochs, a column for each kind of warm-up, a line for each seed."""
    figure, panels = plt.subplots(
        2, 3, figsize=(10, 5.4), sharex=True, sharey="row", height_ratios=[1, 2.4], layout="constrained"
    )
    colors = {"no": ORANGE, "constant": RED, "gradual": GREEN}
    for (above, below), (kind, schedule) in zip(panels.T, schedules.items(), strict=True):
        steps = np.arange(curves[kind].shape[1])
        above.plot(steps / per_epoch, [schedule(t) for t in steps], color=colors[kind], lw=2)
        below.semilogy(steps / per_epoch, curves[kind].T, color=colors[kind], lw=1, alpha=0.8)
        below.axhline(np.log(10), color=GREY, ls="--", lw=1, zorder=0)
        above.set_title(f"{kind} warm-up".capitalize())
        figures = f"in the end {right[kind].mean():.0%}\nof the test digits right"
        below.text(0.98, 0.98, figures, transform=below.transAxes, ha="right", va="top")
        below.set_xlabel("epoch")
        for panel in (above, below):
            panel.axvline(warm, color=GREY, ls=":", lw=1, zorder=0)
    panels[0, 0].set(ylabel="learning rate", ylim=0)
    panels[1, 0].set(ylabel="training loss, four seeds", ylim=(0.01, 400), xlim=(0, len(steps) / per_epoch))
    panels[1, 2].text(len(steps) / per_epoch, 2.6, "guessing", color=GREY, ha="right", fontsize=9)
    figure.suptitle(
        "A large rate from the first step on is a gamble, a jump to it later a worse one", fontsize=13
    )
    return figure


def traps(rates, sgd, corrected, uncorrected, same, different):
    """Step sizes while the rate changes; norms of weights when loss or rate is multiplied."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    t = np.arange(len(rates))
    for jump in np.flatnonzero(np.diff(rates)) + 1:
        left.axvline(jump - 0.5, color=GREY, ls=":", lw=1, zorder=0)
    for start, stop in ((0, 40), (40, 80), (80, 120)):
        left.text((start + stop) / 2, 12.2, f"rate {rates[start]:g}", color=GREY, ha="center")
    left.step(t, sgd, where="mid", color=BLUE, lw=2)
    left.plot(t[::4], corrected[::4], "o", color=ORANGE, ms=5)
    left.plot(t, uncorrected, color=RED, lw=2)
    left.text(60, 10.9, "SGD", color=BLUE, ha="center")
    left.text(60, 10.3, "HeavyBall, corrected", color=ORANGE, ha="center", fontsize=9)
    left.text(92, 5.2, "HeavyBall,\nnot corrected", color=RED)
    left.set(xlabel="step", ylabel="length of the step", ylim=(0, 13), xlim=(-2, 120))
    left.set_title("Uncorrected momentum remembers the old rate")
    steps = np.arange(1, len(same[0]) + 1)
    right.plot(steps, same[0], color=GREY, lw=2)
    right.plot(steps[::8], same[1][::8], "o", color=GREY, ms=5)
    right.plot(steps, different[0], color=ORANGE, lw=2)
    right.plot(steps, different[1], color=BLUE, lw=2)
    end, top = len(steps), same[0][-1]
    right.text(end * 0.7, top, "no decay, 32 times\nthe loss or the rate", color=GREY, ha="right", va="top")
    right.text(end, different[0][-1] - 0.6, "decay, 32 times the loss", color=ORANGE, ha="right", va="top")
    right.text(end, different[1][-1] - 0.12, "decay, 32 times the rate", color=BLUE, ha="right", va="top")
    right.set(xlabel="step", ylabel="norm of the first layer's weights", xlim=(0, end))
    right.set_title("32 times the loss hides the weight decay")
    return figure


def lars(ratios, right_by_rate, small):
    """Weights against gradients, by layer; accuracy against the rate, by optimizer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=[1, 1.5], layout="constrained")
    left.bar(np.arange(1, len(ratios) + 1), ratios, color=GREY, width=0.7)
    left.set(xlabel="layer", ylabel="|w| / |g| at the start", title="No one rate suits all layers")
    for name, color, place in (("SGD", BLUE, (0.23, 0.74)), ("LARS", GREEN, (0.021, 0.82))):
        found = right_by_rate[name]
        right.plot(list(found), [seeds.mean() for seeds in found.values()], color=color, lw=2)
        for rate, seeds in found.items():
            right.plot([rate] * len(seeds), seeds, "o", color=color, ms=6, mec="white")
        right.text(*place, name, color=color, ha="left", va="bottom", fontsize=11)
    right.axhline(small, color=GREY, ls="--", lw=1, zorder=0)
    right.text(0.5, small + 0.01, "SGD, batches of 32", color=GREY, ha="right", va="bottom")
    right.axhline(0.1, color=GREY, ls="--", lw=1, zorder=0)
    right.text(0.1, 0.11, "guessing", color=GREY, va="bottom")
    right.set(
        xscale="log", xlabel="learning rate (its highest value)", ylabel="test digits right", ylim=(0, 1.02)
    )
    right.set_title("Six layers, batches of 500: SGD is lost, LARS is not")
    right.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"])
    right.xaxis.set_minor_locator(NullLocator())
    right.yaxis.set_major_formatter(PercentFormatter(1))
    return figure
