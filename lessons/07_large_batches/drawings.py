"""The pictures of lesson 07; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator, PercentFormatter

from minigrad.figures import BLUE, GREEN, GREY, ORANGE, RED, curve, line, points


def one_step_for_many(errors, rules):
    """A panel for each setting: by k, how far one large step is from k small ones, a line for each rule."""
    figure, panels = plt.subplots(1, len(errors), figsize=(11.5, 4.2), sharey=True, layout="constrained")
    for panel, (where, by_k) in zip(panels, errors.items(), strict=True):
        ks = list(by_k)
        for rule, color in zip(rules, (BLUE, ORANGE, RED), strict=True):
            panel.plot(ks, [by_k[k][rule] for k in ks], **curve(color), label=rule)
        panel.axhline(1, color=GREY, ls="--", lw=1, zorder=0)
        panel.set_xscale("log", base=2)
        panel.set_xticks(ks, [str(k) for k in ks])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set(xlabel="k, the number of small steps", title=where, ylim=(-0.05, 2))
    panels[0].set_ylabel("error of one large step, relative to\nthe distance of k small steps")
    panels[0].yaxis.set_major_formatter(PercentFormatter(1))
    panels[0].legend(title="learning rate by rule", loc="upper left")
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
        figures = f"test accuracy in\nthe end: {right[kind].mean():.0%}"
        below.text(0.98, 0.98, figures, transform=below.transAxes, ha="right", va="top")
        below.set_xlabel("epoch")
        for panel in (above, below):
            panel.axvline(warm, color=GREY, ls=":", lw=1, zorder=0)
    panels[0, 0].set(ylabel="learning rate", ylim=0)
    panels[1, 0].set(ylabel="training loss, four seeds", ylim=(0.01, 400), xlim=(0, len(steps) / per_epoch))
    panels[1, 2].text(len(steps) / per_epoch, 2.6, "guessing", color=GREY, ha="right", fontsize=9)
    figure.suptitle(
        "A large learning rate from the first step on is a risk, a jump to it later a larger one", fontsize=13
    )
    return figure


def traps(rates, sgd, corrected, uncorrected, same, different):
    """Step sizes while the rate changes; norms of weights when loss or rate is multiplied."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    t = np.arange(len(rates))
    for jump in np.flatnonzero(np.diff(rates)) + 1:
        left.axvline(jump - 0.5, color=GREY, ls=":", lw=1, zorder=0)
    for start, stop in ((0, 40), (40, 80), (80, 120)):
        left.text((start + stop) / 2, 12.2, f"lr = {rates[start]:g}", color=GREY, ha="center")
    left.step(t, sgd, where="mid", color=BLUE, lw=2, label="SGD")
    left.plot(t[::4], corrected[::4], **points(ORANGE))
    left.plot(t, uncorrected, **line(RED))
    left.text(60, 10.9, "SGD", color=BLUE, ha="center")
    left.text(60, 10.3, "HeavyBall, corrected", color=ORANGE, ha="center", fontsize=9)
    left.text(92, 5.2, "HeavyBall,\nnot corrected", color=RED)
    left.set(xlabel="step", ylabel="length of the step", ylim=(0, 13), xlim=(-2, 120))
    left.set_title("Without correction, momentum keeps the old learning rate")
    steps = np.arange(1, len(same[0]) + 1)
    right.plot(steps, same[0], **line(GREY))
    right.plot(steps[::8], same[1][::8], **points(GREY))
    right.plot(steps, different[0], **line(ORANGE))
    right.plot(steps, different[1], **line(BLUE))
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
    left.set(xlabel="layer", ylabel="|w| / |g| at the start", title="No one learning rate suits all")
    for name, color in (("SGD", BLUE), ("LARS", GREEN)):
        accuracies = right_by_rate[name]
        means = [seeds.mean() for seeds in accuracies.values()]
        right.plot(
            list(accuracies),
            means,
            **line(color),
            label=f"{name}, mean of {len(accuracies[min(accuracies)])} seeds",
        )
        places = [rate for rate, seeds in accuracies.items() for _ in seeds]
        right.plot(places, np.concatenate(list(accuracies.values())), **points(color), label="each seed")
    right.legend(loc="lower left", bbox_to_anchor=(0, 0.4), fontsize=9)
    right.axhline(small, color=GREY, ls="--", lw=1, zorder=0)
    right.text(0.5, small + 0.01, "SGD, batches of 32", color=GREY, ha="right", va="bottom")
    right.axhline(0.1, color=GREY, ls="--", lw=1, zorder=0)
    right.text(0.1, 0.11, "guessing", color=GREY, va="bottom")
    right.set(
        xscale="log", xlabel="learning rate (its highest value)", ylabel="test accuracy", ylim=(0, 1.02)
    )
    right.set_title("Six layers, batches of 500: the best of LARS is better")
    right.set_xticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5"])
    right.xaxis.set_minor_locator(NullLocator())
    right.yaxis.set_major_formatter(PercentFormatter(1))
    return figure
