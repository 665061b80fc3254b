"""The pictures of lesson 02; each function takes a tape, or what was measured, and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minigrad.figures import BACKWARD, BLUE, FORWARD, GREY, INK, PAPER, RED, WEIGHTS, curve, line


def number(x):
    return f"{float(x):.3g}"


def graphs(recordings):
    """Recorded tapes as graphs: on every edge the value (red) and the derivative (blue), as in the lecture.

    For each title ``recordings`` has a tape after backward, and its nodes' places, {node: (x, y, name)}.
    """
    figure, panels = plt.subplots(1, len(recordings), figsize=(8.5, 4.2), layout="constrained", squeeze=False)
    for panel, (title, (tape, places)) in zip(panels[0], recordings.items(), strict=True):
        for node, inputs, pullbacks in tape.entries:
            for k, (x, pullback) in enumerate(zip(inputs, pullbacks, strict=True)):
                edge(panel, places[x][:2], places[node][:2], x.value, pullback(node.grad), near=k)
        output = tape.entries[-1][0]
        x, y, _ = places[output]
        edge(panel, (x, y), (x + 1.5, y), output.value, output.grad)
        made = [node for node, _, _ in tape.entries]
        uses = [x for _, inputs, _ in tape.entries for x in inputs]
        for node, (x, y, name) in places.items():
            face = PAPER if node in made else "white"
            panel.text(
                x,
                y,
                name,
                fontsize=17 if len(name) == 1 else 9,
                ha="center",
                va="center",
                zorder=4,
                bbox={"boxstyle": "circle,pad=0.35", "fc": face, "ec": INK if node in made else GREY},
            )
            if uses.count(node) > 1:
                total = f"sum of both derivatives\n{number(node.grad)}"
                panel.annotate(
                    total, (x, y), (0, -44), textcoords="offset points", color=BLUE, ha="center", fontsize=11
                )
        xs, ys = zip(*(place[:2] for place in places.values()), strict=True)
        panel.set(xlim=(min(xs) - 0.5, max(xs) + 1.7), ylim=(min(ys) - 0.6, max(ys) + 0.5))
        panel.set_title(title, fontsize=14)
        panel.axis("off")
    figure.text(0.02, 0.02, "values", color=RED, fontsize=11)
    figure.text(0.2, 0.02, "derivatives", color=BLUE, fontsize=11)
    return figure


def edge(panel, start, end, value, derivative, near=0):
    """An arrow with two numbers on it."""
    arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 1.3, "shrinkA": 17, "shrinkB": 17}
    panel.annotate("", end, start, arrowprops=arrow, zorder=1)
    (x0, y0), (x1, y1) = start, end
    middle = ((x0 + x1) / 2, (y0 + y1) / 2)
    white = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"}
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 13, "zorder": 3}
    room = "  " * max(len(number(value)), len(number(derivative)))
    panel.annotate(f"{room}\n{room}", middle, (0, 0), va="center", bbox=white, **style)
    panel.annotate(number(value), middle, (0, 1), va="bottom", color=RED, **style)
    panel.annotate(number(derivative), middle, (0, -1), va="top", color=BLUE, **style)


def careless(right, wrong):
    """Losses of a right and a wrong pullback, which look alike, and the errors of their gradients."""
    figure, (left, panel) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for (losses, errors), color, name in ((right, BLUE, "right pullback"), (wrong, RED, "wrong pullback")):
        smooth = np.convolve(losses, np.ones(10) / 10, mode="valid")
        left.plot(np.arange(len(smooth)) + 5, smooth, **line(color), label=name)
        steps = np.linspace(0, len(losses), len(errors), endpoint=False)
        panel.plot(steps, errors, **curve(color), label=name)
    left.legend()
    left.set(xlabel="step", ylabel="loss, mean over 10 steps", ylim=0, title="Both learn, so all is well?")
    panel.legend(loc="center right")
    panel.set(xlabel="step", ylabel="error of the gradient, relative", ylim=(-0.05, None))
    panel.set_title("The gradient says what the loss hides")
    return figure


def cost(counted):
    """Multiplications forward and backward, in units of forward."""
    figure, panel = plt.subplots(figsize=(8, 3.8), layout="constrained")
    for row, counts in enumerate(counted.values()):
        parts = [counts[what] / counts["forward"] for what in ("forward", "to weights", "to inputs")]
        panel.barh(row - 0.19, parts[0], 0.34, color=FORWARD)
        panel.barh(row + 0.19, parts[1], 0.34, color=WEIGHTS)
        panel.barh(row + 0.19, parts[2], 0.34, left=parts[1], color=BACKWARD)
        total, white = parts[1] + parts[2], {"fc": "white", "ec": "none", "pad": 1.5}
        panel.text(total + 0.03, row + 0.19, f"{total:.2f}", va="center", bbox=white)
    panel.text(0.03, -0.19, "forward", color="white", va="center")
    panel.text(0.03, 0.19, "backward, to the weights", color=INK, va="center")
    panel.text(1.03, len(counted) - 1 + 0.19, "to the inputs", color=INK, va="center")
    panel.axvline(2, color=GREY, ls="--", lw=1, zorder=0)
    panel.set_yticks(range(len(counted)), list(counted))
    panel.invert_yaxis()
    panel.set(
        xlabel="multiplications, in units of forward",
        xlim=(0, 2.3),
        title="Twice forward, minus what is not needed",
    )
    return figure


def cells(panel, numbers, title, color, face=None):
    """A matrix as squares with its numbers; zeros are pale, other numbers have the background ``face``."""
    height, width = numbers.shape
    for (row, column), n in np.ndenumerate(numbers):
        panel.add_patch(Rectangle((column, row), 1, 1, fc=face if face and n else "white", ec=GREY, lw=0.8))
        shade = color if n else GREY
        panel.text(column + 0.5, row + 0.5, f"{n:g}", color=shade, ha="center", va="center", fontsize=11)
    panel.set(xlim=(-0.1, width + 0.1), ylim=(height + 0.1, -0.1), aspect="equal")
    panel.set_title(title, fontsize=11)
    panel.axis("off")


def one_pixel(kernel, image, outputs):
    """The numbers of a kernel's taps, an image of one pixel, and the outputs that use it."""
    figure, panels = plt.subplots(1, 3, figsize=(10, 4.4), width_ratios=[4, 7, 5], layout="constrained")
    for panel, numbers, title in zip(
        panels,
        (kernel, image, outputs),
        (
            "kernel:\nthe numbers of its taps",
            "image:\na single pixel is 1",
            "outputs that use the pixel:\nthe kernel, turned by 180°",
        ),
        strict=True,
    ):
        cells(panel, numbers, title, RED, PAPER)
    return figure


def pooling(values):
    """Rows: kinds of pooling. Columns: the pixels, the outputs, and the derivatives of both."""
    figure, panels = plt.subplots(
        len(values), 4, figsize=(10.5, 5.6), width_ratios=[4, 2, 2, 4], layout="constrained"
    )
    names = ("pixels", "outputs", "derivatives of\nthe outputs", "derivatives of\nthe pixels")
    for row, (kind, arrays) in zip(panels, values.items(), strict=True):
        for panel, name, numbers, color in zip(row, names, arrays, (RED, RED, BLUE, BLUE), strict=True):
            cells(panel, numbers, f"{kind}: {name}" if panel is row[0] else name, color, PAPER)
            if len(numbers) == 4:
                panel.plot([0, 4], [2, 2], color=INK, lw=2)
                panel.plot([2, 2], [0, 4], color=INK, lw=2)
    figure.supxlabel(" ")  # room for the two words below
    figure.text(0.3, 0.01, "values", color=RED, fontsize=11)
    figure.text(0.55, 0.01, "derivatives", color=BLUE, fontsize=11)
    return figure
