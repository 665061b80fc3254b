"""The pictures of lesson 08; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from minigrad.figures import (
    BLUE,
    COLORS,
    COMMUNICATION,
    COMPUTING,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    SKY,
    curve,
    hollow,
    line,
    points,
)


def messages(runs, push, answer, seconds=9.7):
    """Two workers and a server: who computed when, each message, each gradient's staleness."""
    figure, panels = plt.subplots(len(runs), 1, figsize=(10.5, 6.2), sharex=True, layout="constrained")
    rows = {0: 2.0, 2: 1.0, 1: 0.0}  # the server, rank 2, in the middle
    for panel, (name, run) in zip(panels, runs.items(), strict=True):
        zero = min(start for _, start, _ in run.computed)
        for y in rows.values():
            panel.axhline(y, color=GREY, lw=0.6, zorder=0)
        for worker, start, stop in run.computed:
            bar = [(start - zero, stop - start)]
            panel.broken_barh(bar, (rows[worker] - 0.13, 0.26), color=COMPUTING, edgecolor=BLUE, lw=0.8)
        for message in run.cluster.transfers:
            if message.tag in (push, answer):
                tail, head = message.start - zero, message.stop - zero
                style = "-" if message.tag == push else (0, (2, 1.5))
                panel.annotate(
                    "",
                    (head, rows[message.destination]),
                    (tail, rows[message.source]),
                    arrowprops=dict(
                        arrowstyle="->", color=COMMUNICATION, ls=style, lw=1.4, shrinkA=0, shrinkB=0
                    ),
                    annotation_clip=True,
                )
        for applied in run.applied:
            at = applied.time - zero
            if 0 <= at <= seconds:
                panel.plot(at, 1.0, "o", color=COLORS[3] if applied.staleness > 1 else INK, ms=11.5, zorder=3)
                panel.text(
                    at,
                    0.985,
                    applied.staleness,
                    color="white",
                    fontsize=8.5,
                    ha="center",
                    va="center",
                    zorder=4,
                )
        panel.set(xlim=(-0.1, seconds), ylim=(-0.35, 2.35), title=name)
        panel.set_yticks(list(rows.values()), ["worker 0", "server", "worker 1"])
        panel.spines["left"].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[-1].set_xlabel(
        "seconds\nbars: a gradient, 1 s (worker 1 below: 3 s); arrows: a message, 0.2 s (dashed: pull); "
        "circles: staleness, red above 1\n"
        "at 1.0 s worker 1 above waits: the server receives one message at a time"
    )
    panels[0].text(1.06, 1.45, "push", color=COMMUNICATION, fontweight="bold", ha="right")
    panels[0].text(1.35, 1.45, "pull", color=COMMUNICATION, fontweight="bold", ha="left")
    return figure


def histogram(equal, random, workers):
    """How many gradients had which staleness."""
    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    top = max(random)
    places = np.arange(top + 1)
    axes.bar(places - 0.2, [equal[t] for t in places], 0.4, color=BLUE)
    axes.bar(places + 0.2, [random[t] for t in places], 0.4, color=ORANGE)
    axes.text(workers - 1.5, 0.93 * max(equal.values()), "equal workers", color=BLUE, ha="right")
    axes.text(workers + 0.7, 1.25 * max(random.values()), "computing times random", color=ORANGE)
    axes.set(
        xlabel=f"staleness of a gradient; {workers} workers",
        ylabel="gradients",
        title=f"On average a gradient is about {workers - 1} updates old",
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def contention(measured, formula, workers, servers, ring):
    """Time of a round by workers, for several numbers of servers, on the formula's lines."""
    figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    fine = np.linspace(1, max(workers), 60)
    for s, color in zip(servers, (BLUE, ORANGE, GREEN, SKY), strict=True):
        axes.plot(fine, [1e3 * formula(p, s) for p in fine], **line(color))
        axes.plot(workers, [1e3 * measured[p, s] for p in workers], **points(color))
        text = f"{s} server" + ("s" if s > 1 else "")
        axes.text(max(workers) + 0.4, 1e3 * formula(max(workers), s), text, color=color, va="center")
    axes.plot(fine, 2e3 * ring * (fine - 1) / fine, **line(RED))
    axes.text(max(workers) + 0.4, 1e3 * ring * 1.55, "ring all-reduce", color=RED, va="center")
    axes.set(
        xlabel="workers",
        ylabel="ms a round",
        xlim=(0, max(workers) + 4),
        ylim=0,
        xticks=workers,
        title="One server is the bottleneck; more share its load\n(dots: virtual cluster; lines: formula)",
    )
    return figure


def cost_of_staleness(swings, limit, taus, losses, careful):
    """The path of w under stale gradients of w² / 2; the loss of a network by staleness and rate."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for tau, color in zip((0, 4, 8), (BLUE, GREEN, RED), strict=True):
        left.plot(swings(0.19, tau, 60), **line(color))
    left.axhline(0, color=GREY, lw=0.8, ls=":")
    left.text(6.2, 0.42, r"$\tau = 0$", color=BLUE)
    left.text(20, 0.17, r"$\tau = 4$", color=GREEN, ha="right")
    left.text(31, 1.23, r"$\tau = 8$", color=RED, ha="center")
    left.set(
        xlabel="update",
        ylabel="w",
        title=f"w²/2 with lr = 0.19: at tau = 8 the limit is {limit[8]:.3f}",
        xlim=(0, 60),
        ylim=(-1.4, 1.4),
    )
    for rate, color in zip(losses, (RED, BLUE), strict=True):
        right.plot(taus, losses[rate], **curve(color))
        right.plot(taus, careful[rate], **hollow(color))
        right.text(taus[-1] + 0.4, losses[rate][-1], f"lr {rate}", color=color, va="center")
        right.text(taus[-1] + 0.4, careful[rate][-1], f"lr {rate} / tau", color=color, va="center")
    right.set(
        xlabel="staleness tau",
        ylabel="loss on the training digits",
        xticks=taus,
        xlim=(-0.5, taus[-1] + 4.5),
        ylim=0,
        title="Stale gradients need a small learning rate;\nlr / tau can be smaller than needed",
    )
    return figure


def momentum(taus, plain, heavy, workers, reached):
    """The largest rates by staleness, without and with momentum; the accuracy by workers and rule."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
    for limit, color, text in ((plain, BLUE, "no momentum"), (heavy, RED, "momentum 0.9")):
        left.plot(taus, [limit[tau] for tau in taus], **curve(color))
        left.text(taus[-1] + 0.4, limit[taus[-1]], text, color=color, va="center")
    left.set(
        xlabel="staleness tau",
        ylabel="largest learning rate that converges",
        yscale="log",
        xticks=taus,
        xlim=(-0.5, taus[-1] + 6),
        title="w²/2: momentum helps while nothing is stale,\nand harms from a staleness of 1 on",
    )
    names = {"naive": "lr", "divided": "lr / tau", "damped": "lr / (W + tau)"}
    for (name, accuracies), color in zip(reached.items(), (RED, ORANGE, BLUE), strict=True):
        right.plot(range(len(workers)), [100 * x for x in accuracies], **curve(color))
        right.text(len(workers) - 0.9, 100 * accuracies[-1], names[name], color=color, va="center")
    right.set(
        xlabel="workers W, equally fast",
        ylabel="test accuracy (%)",
        xlim=(-0.2, len(workers) + 0.1),
        ylim=(0, 100),
        title="Momentum 0.9, the settings of one machine:\nthree learning rates for a stale gradient",
    )
    right.set_xticks(range(len(workers)), workers)
    return figure


def slow_worker(scenes, shown=26.0):
    """Above: who computes when, by the three rules; below: the loss against time."""
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    panels = figure.subplots(2, len(scenes), sharey="row", height_ratios=[1.25, 1])
    for (upper, lower), (scene, workers) in zip(panels.T, scenes.items(), strict=True):
        for i, ((run, _, by_time), color) in enumerate(zip(workers.values(), COLORS, strict=False)):
            for worker in range(4):
                bars = [
                    (start, stop - start) for w, start, stop in run.computed if w == worker and start < shown
                ]
                place = 5 * i + worker
                upper.broken_barh(bars, (place - 0.4, 0.8), color=color, edgecolor="white", lw=1.0)
            times, losses = np.array(by_time).T
            lower.plot(times, losses, **line(color))
        upper.set(xlim=(0, shown), xlabel="seconds", ylim=(14, -1), title=scene[0].upper() + scene[1:])
        upper.set_yticks([1.5, 6.5, 11.5], list(workers))
        upper.tick_params(axis="y", length=0)
        upper.spines["left"].set_visible(False)
        for label, color in zip(upper.get_yticklabels(), COLORS, strict=False):
            label.set_color(color)
        lower.set(xlabel="seconds", xlim=0, ylim=(0, 2.4))
    panels[0, 0].set_ylabel("the four workers, by rule", labelpad=12)
    panels[1, 0].set_ylabel("loss on the test digits")
    panels[1, 1].legend(panels[1, 1].get_lines(), list(workers), loc="upper right")
    figure.suptitle("Colored: a worker computes a gradient. White: it waits for the others")
    return figure
