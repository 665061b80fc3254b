"""The pictures of lesson 09; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MultipleLocator, NullLocator, PercentFormatter

from minigrad.figures import BLUE, COLORS, GREEN, GREY, INK, RED, curve, line


def one_average(same, same_mean, different, different_mean):
    """Accuracy of each rank's own model, and of their mean, after every epoch."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    pairs = ((same, same_mean), (different, different_mean))
    for panel, (alone, together) in zip(panels, pairs, strict=True):
        epochs = np.arange(1, len(together) + 1)
        for accuracies, color in zip(alone, COLORS, strict=False):
            panel.plot(epochs, accuracies, **line(color) | {"lw": 1.5})
        panel.plot(epochs, together, "o-", color=INK, lw=2.5, ms=5, mec="white")
        panel.set_xlabel("epoch")
        panel.yaxis.set_major_locator(MultipleLocator(0.05))
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0].set(ylabel="test accuracy", ylim=(0.7, 0.92))
    panels[0].set_title("One start for all: the mean is better than each")
    panels[1].set_title("A start for each: the mean is worse than each")
    last = epochs[-1]
    panels[0].text(last, same_mean[-1] + 0.008, "the mean of the four", ha="right", fontweight="bold")
    panels[1].text(last, different_mean[-1] - 0.016, "the mean of the four", ha="right", fontweight="bold")
    for panel, (alone, _) in zip(panels, pairs, strict=True):
        panel.text(last, alone[:, -1].min() - 0.02, "four ranks, each alone", ha="right", color=GREY)
    return figure


def neurons(way, between, pairs, shown=6):
    """Losses on the straight line between two networks; input weights of hidden neurons with one number."""
    figure = plt.figure(figsize=(10, 4.8), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1], wspace=0.04)
    panel = left.subplots()
    colors = dict(zip(pairs, (BLUE, RED, GREEN), strict=True))
    for name, losses in between.items():
        panel.plot(way, losses, **curve(colors[name]))
    top = max(between["different starts"])
    panel.text(0.5, top * 1.02, "different starts", color=RED, ha="center")
    panel.text(
        0.5,
        between["different starts, matched"][5] * 1.06,
        "different starts, matched",
        color=GREEN,
        ha="center",
    )
    panel.text(0.5, between["same start"][5] * 0.97, "same start", color=BLUE, ha="center", va="top")
    panel.set(xticks=[0, 0.5, 1], ylim=(0.3, top * 1.1), ylabel="loss on the test digits")
    panel.set_xticklabels(["rank 0's network", "their mean", "rank 1's network"])
    panel.set_title("The barrier comes from the order of neurons")
    right.supxlabel("red: positive weights, blue: negative ones", fontsize=10)
    for block, (name, states) in zip(right.subfigures(3, 1), pairs.items(), strict=True):
        block.suptitle(f"{name}: neurons at the same places", color=colors[name], fontsize=10)
        busy = np.argsort(-np.linalg.norm(states[0]["3.weight"], axis=0))[:shown]
        grid = block.subplots(2, shown)
        for rank, neuron in np.ndindex(2, shown):
            picture = states[rank]["1.weight"][busy[neuron]].reshape(28, 28)
            grid[rank, neuron].imshow(picture, cmap="RdBu_r", vmin=-0.25, vmax=0.25)
            grid[rank, neuron].set(xticks=[], yticks=[])
            grid[rank, neuron].spines[:].set_visible(False)
        for rank in (0, 1):
            grid[rank, 0].set_ylabel(f"rank {rank}", rotation=0, ha="right", va="center", fontsize=9)
    return figure


def local_sgd(results, sent):
    """Loss against the number of steps between two averages; accuracy against what was sent."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    megabytes = [nbytes / 1e6 for _, nbytes in sent.values()]
    periods = list(sent)
    for (name, by_period), color in zip(results.items(), (BLUE, RED), strict=True):
        losses, rights = np.array(list(by_period.values())).T
        left.plot(periods, losses, **curve(color))
        right.plot(megabytes, rights, **curve(color))
        words = {"mixed": "a random share each", "sorted": "sorted by digit"}[name]
        left.text(
            16 if name == "mixed" else 9,
            losses[2] + (-0.13 if name == "mixed" else 0.16),
            words,
            color=color,
            ha="center",
        )
    left.set_xscale("log")
    left.set_xticks(periods, [str(H) for H in periods[:-1]] + ["300\n(the end)"])
    left.xaxis.set_minor_locator(NullLocator())
    left.set(xlabel="H, steps between two averages", ylabel="loss on the 5,000 digits", ylim=0)
    left.set_title("Random shares: few averages suffice. Sorted shares: drift")
    for H, x, y in zip(periods, megabytes, (r for _, r in results["sorted"].values()), strict=True):
        right.annotate(f"H = {H}", (x, y), (8, -16), textcoords="offset points", color=GREY)
    right.set(
        xscale="log", xlim=(1, 500), xlabel="sent by rank 0 (MB)", ylabel="test accuracy", ylim=(0.2, 1)
    )
    right.set_title("Fewer messages, and the accuracy that they cost")
    right.set_xticks([1, 10, 100], ["1", "10", "100"])
    right.yaxis.set_major_formatter(PercentFormatter(1))
    return figure


def outer(tuned):
    """Loss against the learning rate, by method; a panel for each way to share the data."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    titles = {"mixed": "A random share each", "sorted": "Shares sorted by digit"}
    for panel, (share, by_method) in zip(panels, tuned.items(), strict=True):
        for (name, losses), color in zip(by_method.items(), (BLUE, GREEN, RED), strict=True):
            panel.plot(list(losses), list(losses.values()), **curve(color), label=name)
        rates = sorted({rate for losses in by_method.values() for rate in losses})
        panel.set(xscale="log", xlabel="learning rate of the ranks", title=titles[share], ylim=(0, 1.25))
        panel.set_xticks(rates, [f"{rate:g}" for rate in rates])
        panel.xaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("loss on the 5,000 digits")
    panels[0].legend(loc="upper left")
    return figure


def springs(data, targets, best, jumps, pulled):
    """Where the ranks' two weights went, between their own minima and the best for all.

    ``jumps`` and ``pulled`` are [rank, time, model or center, weight].
    """
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.8), sharex=True, sharey=True, layout="constrained")
    grid = np.stack(np.meshgrid(np.linspace(-2.6, 2.6, 80), np.linspace(-2.1, 2.5, 80)), axis=-1)
    loss = sum(((grid @ batch.x.T - batch.y[:, 0]) ** 2).mean(axis=-1) for batch in data) / len(data)
    for panel, paths in zip(panels, (jumps, pulled), strict=True):
        panel.contour(*grid.transpose(2, 0, 1), loss, levels=12, colors=GREY, linewidths=0.5, alpha=0.5)
        for rank, (path, color) in enumerate(zip(paths, COLORS, strict=False)):
            panel.plot(*path[:, 0].T, **curve(color) | {"lw": 1, "ms": 4})
            panel.plot(*targets[rank], "x", color=color, ms=9, mew=2.5)
            above = 8 if targets[rank, 1] > 0 else -18
            name = f"rank {rank}'s best"
            panel.annotate(
                name, targets[rank], (0, above), textcoords="offset points", color=color, ha="center"
            )
        panel.plot(*best, "*", color=INK, ms=13, mec="white", zorder=5)
        panel.plot(*paths[0, 0, 0], "s", color=INK, ms=5, zorder=5)
        panel.annotate("start", paths[0, 0, 0], (-6, -12), textcoords="offset points", ha="right")
        panel.set(xlabel="weight 1", aspect="equal")
    panels[1].plot(*pulled[0, :, 1].T, color=INK, lw=2, marker="o", ms=4)
    panels[1].annotate("center", pulled[0, -1, 1], (6, -14), textcoords="offset points")
    panels[1].annotate("best for\nall data", best, (10, 2), textcoords="offset points")
    panels[0].set(ylabel="weight 2", title="Local SGD: all jump to the mean, and leave again")
    panels[1].set_title("Elastic averaging: all are tied to a center")
    return figure
