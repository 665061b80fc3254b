"""The pictures of lesson 19; each function takes what was computed and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from minigrad.figures import BLUE, GREEN, GREY, INK, ORANGE, RED, SAND, curve, line, points

LEAST, NORMAL = -24, -14  # the exponents of float16's least number, and of its least normal number


def power(k):
    """2 to the k, as a label."""
    return f"$2^{{{k}}}$"


def spacing(finite):
    """The distance from each positive float16 number to the next one, and the gaps of two other formats."""
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    exponents = np.arange(-32, 17)
    for bits, color, name in ((7, ORANGE, "bfloat16"), (23, GREEN, "float32")):
        axes.plot(exponents, exponents - bits, **line(color), label=name)
    x, gaps = np.log2(finite[:-1]), np.log2(np.diff(finite))
    axes.step(x, gaps, where="post", **line(BLUE), label="float16")
    axes.plot([x[-1]] * 2, [gaps[-1], 12], **line(BLUE) | {"lw": 1})
    axes.text(16.3, 0, "infinity above", rotation=90, va="center", color=BLUE)
    axes.text(-19, -22.6, "subnormal", ha="center", color=BLUE)
    ticks = np.arange(-32, 17, 8)
    axes.set(xticks=ticks, xticklabels=map(power, ticks), xlim=(-32, 18), ylim=(-56, 12))
    ticks = np.arange(-56, 9, 8)
    axes.set(yticks=ticks, yticklabels=map(power, ticks), xlabel="number", ylabel="width of the gap above it")
    axes.set_title("Holes grow with the numbers; among the subnormal ones they are all equal")
    axes.legend(loc="lower right")
    return figure


def histograms(gradients, powers, least=LEAST):
    """The share of gradients in each power of two, for seeds 2^k; 2^least is the format's least number."""
    sizes = np.concatenate([np.log2(np.abs(g[g != 0])) for g in gradients])
    start = -48 if least == LEAST else -140
    figure, panels = plt.subplots(len(powers), 1, figsize=(9, 5.2), sharex=True, layout="constrained")
    for axes, k, color in zip(panels, powers, (BLUE, ORANGE), strict=True):
        counts, edges = np.histogram(sizes + k, np.arange(start, 17))
        height = 1.25 * counts.max() / len(sizes)
        axes.axvspan(start, least - 1, color=SAND, lw=0)
        axes.bar(edges[:-1] + 0.5, counts / len(sizes), 0.86, color=color)
        axes.axvline(least - 1, color=INK, lw=1)
        axes.text(least - 1.5, 0.86 * height, "lost", ha="right")
        if least == LEAST:
            axes.axvline(NORMAL, color=INK, lw=1, ls=(0, (2, 2)))
            axes.text((least - 1 + NORMAL) / 2, 0.86 * height, "subnormal", ha="center")
        axes.text(NORMAL + 0.5 if least == LEAST else least, 0.86 * height, "normal", ha="left")
        axes.set(ylim=(0, height), xlim=(start, 16), title=f"Seed {power(k)}", ylabel="share")
    ticks = np.arange(start + (-start) % 8, 17, 8 if least == LEAST else 16)
    panels[-1].set(xticks=ticks, xticklabels=map(power, ticks), xlabel="size of a gradient")
    return figure


def errors_by_seed(powers, formats):
    """The error of gradients by the exponent of the seed, for each format."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for (name, errors), color in zip(formats.items(), (BLUE, ORANGE), strict=False):
        finite = np.isfinite(errors)
        places = np.array(powers)[finite]
        axes.plot(places, errors[finite], **curve(color), label=name)
        if not finite.all():
            beyond = np.array(powers)[~finite]
            axes.plot(beyond, np.full(len(beyond), 2.0), **points(RED), label=f"{name}: infinite")
    axes.set_yscale("log")
    ticks = powers[::2]
    axes.set(xticks=ticks, xticklabels=map(power, ticks), ylim=(1e-4, 4), xlabel="seed of backward")
    axes.set_ylabel("error of the gradients (median)")
    axes.minorticks_off()
    axes.set_title("A small seed loses gradients")
    axes.legend(loc="center right")
    return figure


def losses(paths, letters):
    """Losses of trainings, as means of ten steps, and what the frequencies of letters reach."""
    figure, axes = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    for (name, path), color in zip(paths.items(), (BLUE, RED, ORANGE), strict=True):
        means = path.reshape(-1, 10).mean(axis=1)
        style = curve(color) | (
            {"ls": "none", "ms": 8, "mfc": "none", "mec": color} if color == ORANGE else {}
        )
        axes.plot(10 * np.arange(1, len(means) + 1), means, **style, label=name)
    axes.axhline(letters, **line(GREY), label=f"frequencies of letters: {letters:.2f}")
    axes.set(xlabel="step", ylabel="loss, nats a letter", xlim=(0, None), ylim=(2.5, 5.5))
    axes.set_title(f"Seed {power(-12)}: without a scale no better than a table of letters")
    axes.legend(loc="upper center", ncols=2)
    return figure


def vanishing(without, masters):
    """A weight of 1 by step, with and without a float32 copy, between the float16 numbers there."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for k in range(0, 52, 2):
        axes.axhline(1 - k * 2.0**-11, color=SAND, lw=0.8)
    steps = np.arange(len(without))
    axes.plot(steps, without, **line(RED), label=f"float16 alone: {without[-1]:g}")
    axes.step(steps, masters, where="post", **line(BLUE), label=f"float32 copy, rounded: {masters[-1]:.4f}")
    axes.set(xlabel="step", ylabel="weight", xlim=(0, len(without) - 1), ylim=(0.974, 1.003))
    axes.set_title(f"A hundred updates of {power(-12)}; pale: every second float16 number")
    axes.legend(loc="lower left")
    return figure


def bytes_held(part_bytes, for_backward):
    """Bytes of a parameter by what holds them, and of the activations, in both formats."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 4.2), layout="constrained", width_ratios=(1.6, 1)
    )
    names = list(part_bytes)
    bottom = np.zeros(len(names))
    parts = {"parameter": BLUE, "gradient": ORANGE, "m": GREEN, "s": GREEN, "master": SAND}
    words = {"m": "Adam's mean", "s": "Adam's square", "master": "float32 copy"}
    for part, color in parts.items():
        sizes = np.array([part_bytes[name][part] for name in names])
        hatch = "///" if part == "s" else None
        left.bar(
            names,
            sizes,
            0.5,
            bottom=bottom,
            color=color,
            ec="white",
            hatch=hatch,
            label=words.get(part, part),
        )
        for place, (size, low) in enumerate(zip(sizes, bottom, strict=True)):
            if size and part != "s":
                shade = "white" if color == BLUE else INK
                left.text(place, low + size / 2, f"{size:g}", ha="center", va="center", color=shade)
        bottom += sizes
    left.set(ylabel="bytes a parameter", ylim=(0, 17), xlim=(-0.5, 2.6), title="Sixteen, both")
    left.legend(loc="center right", reverse=True)
    sizes = [for_backward[name] / 2**20 for name in names]
    right.bar(names, sizes, 0.5, color=SAND, hatch="///", ec=INK, lw=0.6)
    for place, size in enumerate(sizes):
        right.text(place, size + 0.06, f"{size:.1f}", ha="center")
    right.set(ylabel="MiB for 512 letters", title="Activations for backward", ylim=(0, 1.15 * max(sizes)))
    return figure


def sawtooth(path, largest):
    """The exponent of a dynamic scale after each step, the limit of each step, and the steps left out."""
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    path = np.array([16, *path])
    steps = np.arange(len(largest))
    axes.plot(
        steps,
        15 - largest,
        **points(GREY) | {"ms": 6, "mec": GREY},
        label="largest scale without an infinity",
    )
    axes.step(np.arange(len(path)), path, where="post", **line(BLUE), label="scale, on all four ranks")
    skipped = steps[np.diff(path) < 0]
    axes.plot(skipped, path[skipped], **points(RED), label="left out: some gradient is infinite")
    ticks = np.arange(int(min(path.min(), (15 - largest).min())), int((15 - largest).max()) + 1, 2)
    axes.set(yticks=ticks, yticklabels=map(power, ticks), xlabel="step", ylabel="loss scale")
    axes.set(ylim=(ticks[0] - 1, ticks[-1] + 6), xlim=(-1, len(largest)))
    axes.set_title("A dynamic scale: halved at once, doubled after eight good steps")
    axes.legend(loc="upper right", ncols=2)
    return figure


def sums(ranks, lines):
    """The largest error of a sum over ranks, relative to the sum of sizes, and its bound."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for (name, errors), color in zip(lines.items(), (BLUE, GREY, GREEN), strict=True):
        axes.plot(
            ranks, np.array(errors) * 2**11, **line(color) if color == GREY else curve(color), label=name
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xticks=ranks, xticklabels=ranks, xlabel="ranks p", ylabel="largest error, in u")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16]
    axes.set(yticks=ticks, yticklabels=[f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title("Sums of 5,000 float16 numbers over ranks")
    axes.legend(loc="upper left")
    return figure
