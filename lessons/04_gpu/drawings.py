"""The pictures of lesson 04; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from minigrad.figures import BLUE, GREEN, GREY, INK, ORANGE, RED, curve, line, points


def edge(size):
    """The n of the (n, n) product with as many operations."""
    m, k, n = size
    return (m * k * n) ** (1 / 3)


def label(size):
    m, k, n = size
    return str(n) if m == k == n else f"{m} x {k} by {k} x {n}"


def rates(measurements, overhead, flop):
    """Operations a second by size, and a line: an overhead, then work at the best rate of all sizes."""
    figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
    best = max(measurements.values())
    fine = np.geomspace(min(flop.values()), max(flop.values()), 200)
    axes.plot(fine, fine / (overhead + fine / best) / 1e9, color=GREY, lw=1.5)
    axes.text(3e3, 1.5 * 3e3 / overhead / 1e9, "overhead, then\nfull speed", color=GREY, ha="right")
    axes.loglog(
        [flop[s] for s in measurements],
        [rate / 1e9 for rate in measurements.values()],
        **points(BLUE),
        label="measured",
    )
    for size, rate in measurements.items():
        place = (-4, 9) if len(set(size)) == 1 else (9, -14)
        axes.annotate(label(size), (flop[size], rate / 1e9), place, textcoords="offset points", color=BLUE)
    axes.set(
        xlabel="operations in the product",
        ylabel="GFLOP/s, one thread",
        title="Small products are all overhead",
    )
    axes.set_ylim(min(measurements.values()) / 3e9, 3 * best / 1e9)
    return figure


def roofline(measured, bandwidth, roof, sheet):
    """What memory and arithmetic allow, by operations per byte, and what was measured below it."""
    figure, axes = plt.subplots(figsize=(8.5, 4.8), layout="constrained")
    fine = np.geomspace(0.06, 1500, 300)
    lines = ((bandwidth, roof, BLUE, "this CPU, one thread"), (sheet.memory, sheet.flops, GREY, sheet.name))
    for moved, units, color, name in lines:
        style = "-" if color == BLUE else "--"
        axes.loglog(fine, np.minimum(units, moved * fine) / 1e9, style, color=color, lw=2)
        text = f"{name}: {units / 1e9:,.0f} GFLOP/s, {moved / 1e9:,.0f} GB/s"
        text += "" if color == BLUE else " (data sheet)"
        axes.text(1500, 1.25 * units / 1e9, text, color=color, ha="right", va="bottom")
    for name, (intensity, rate) in measured.items():
        axes.plot(intensity, rate / 1e9, **points(ORANGE))
        axes.annotate(
            name, (intensity, rate / 1e9), (7, -13), textcoords="offset points", color=INK, fontsize=9
        )
    axes.set(
        xlabel="operations per byte moved",
        ylabel="GFLOP/s",
        title="The roofline: bytes first, then arithmetic",
    )
    axes.set_ylim(top=4 * sheet.flops / 1e9)
    return figure


def crossover(cpu, there, with_copies, wins, wins_with_copies, source):
    """Seconds of a product by its size, on the CPU, on a GPU, and with the copies."""
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    lines = (
        (cpu, BLUE, "CPU, one thread, measured"),
        (there, GREEN, "data on the GPU already"),
        (with_copies, ORANGE, "copied there, and back"),
    )
    for times, color, name in lines:
        n, took = zip(*((edge(size), 1e6 * t) for size, t in times.items()), strict=True)
        axes.loglog(n[1:], took[1:], **curve(color), label=name)
    bottom = axes.get_ylim()[0]
    for size, times, color in ((wins, there, GREEN), (wins_with_copies, with_copies, ORANGE)):
        sides, seconds = zip(*sorted((edge(s), t) for s, t in times.items()), strict=True)
        axes.plot([size] * 2, [bottom, 1e6 * np.interp(size, sides, seconds)], **line(color) | {"lw": 1})
        axes.text(size, bottom * 1.15, f" {size:.0f}", color=color)
    axes.set_ylim(bottom=bottom)
    sizes = list(cpu)[1:]  # from 30 x 20 up
    axes.set_xticks([edge(size) for size in sizes], [label(size).replace(" by ", "\n") for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="size of the product", ylabel="microseconds")
    axes.set_title(f"The size from which a GPU is faster\n(GPU: {source.removeprefix('GPU, ')})", fontsize=11)
    axes.legend(loc="upper left")
    return figure


def tile(outputs, terms, filters, sizes):
    """Windows times kernel is outputs: what a block loads at a time, and what it computes."""
    (high, wide, deep), gap = sizes, 30
    figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
    right = terms + gap
    matrices = (  # left, top, width, height of a matrix; left, top, width, height of a block's part; words
        (0, 0, terms, outputs, deep * 2, high, deep, high, BLUE, "windows", "loaded"),
        (
            right,
            -terms - gap,
            filters,
            terms,
            right,
            deep * 2 - terms - gap,
            wide,
            deep,
            BLUE,
            "kernel",
            "loaded",
        ),
        (right, 0, filters, outputs, right, high, wide, high, GREEN, "outputs", "sums"),
    )
    for left, top, width, height, x, y, across, down, color, name, words in matrices:
        axes.add_patch(plt.Rectangle((left, top), width, height, fill=False, edgecolor=GREY))
        axes.add_patch(plt.Rectangle((x, y), across, down, color=color, alpha=0.6))
        axes.text(
            left + width / 2, top - 3, f"{name}, {height} x {width}", ha="center", va="bottom", color=INK
        )
        axes.text(x + across + 2, y + down / 2, f"{down} x {across}\n{words}", va="center", color=color)
    axes.set(xlim=(-20, right + filters + 40), ylim=(outputs + 8, -terms - gap - 20))
    axes.set_title("A block loads two strips at a time, and adds their product to its sums")
    axes.axis("off")
    return figure


def scrambled(array, misread):
    """A digit, and its memory as it is read in C order."""
    figure, panels = plt.subplots(1, 2, figsize=(7, 3.1), layout="constrained")
    titles = ("a.T", "its memory, read in C order")
    for panel, picture, title in zip(panels, (array, misread), titles, strict=True):
        panel.imshow(picture, cmap="gray_r")
        panel.set(xticks=[], yticks=[], title=title)
        panel.spines[:].set(visible=True, color=GREY)
    panels[1].title.set_color(RED)
    return figure


def slow_forms(ratios, ops, bandwidth, roof):
    """How many times as fast each fast form is; and ops forward and backward under the roof."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    names = sorted(ratios, key=ratios.__getitem__)
    bars = left.barh(names, [ratios[name] for name in names], color=GREEN)
    left.bar_label(bars, [f"{ratios[name]:.3g}" for name in names], padding=4)
    left.set(xscale="log", xlabel="fast form: times as fast as the slow form", title="Five slow forms")
    left.set_xlim(1, 2 * max(ratios.values()))
    fine = np.geomspace(0.06, 300, 300)
    right.loglog(fine, np.minimum(roof, bandwidth * fine) / 1e9, color=BLUE, lw=2)
    right.text(300, 1.2 * roof / 1e9, f"{roof / 1e9:,.0f} GFLOP/s", color=BLUE, ha="right")
    for (name, (intensity, rate)), marker in zip(ops.items(), "osv^DPX", strict=True):
        right.plot(intensity, rate / 1e9, **points(ORANGE) | {"marker": marker}, label=name)
    right.legend(loc="lower right")  # names next to their points could overlap
    right.set(xlabel="operations per byte moved", ylabel="GFLOP/s", title="Ops of minigrad under the roof")
    right.set_ylim(top=3 * roof / 1e9)
    return figure
