"""The pictures of lesson 02; each function takes a tape, or what was measured, and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np

from lessons.style import BLUE, GREY, INK, ORANGE, PAPER, RED


def number(x):
    return f"{float(x):.3g}"


def graphs(found):
    """What tapes recorded, as graphs: on every edge the value going forward and the derivative coming back.

    ``found`` gives, for each title, a tape after backward and the places of its nodes, {node: (x, y, name)}.
    """
    figure, panels = plt.subplots(1, len(found), figsize=(8.5, 4.2), layout="constrained", squeeze=False)
    for panel, (title, (tape, places)) in zip(panels[0], found.items(), strict=True):
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
                fontsize=17,
                ha="center",
                va="center",
                zorder=4,
                bbox={"boxstyle": "circle,pad=0.35", "fc": face, "ec": INK if node in made else GREY},
            )
            if uses.count(node) > 1:
                total = f"both ways together\n{number(node.grad)}"
                panel.annotate(
                    total, (x, y), (0, -44), textcoords="offset points", color=RED, ha="center", fontsize=11
                )
        xs, ys = zip(*(place[:2] for place in places.values()), strict=True)
        panel.set(xlim=(min(xs) - 0.5, max(xs) + 1.7), ylim=(min(ys) - 0.6, max(ys) + 0.5))
        panel.set_title(title, fontsize=14)
        panel.axis("off")
    figure.text(0.02, 0.02, "values, forward", color=BLUE, fontsize=11)
    figure.text(0.2, 0.02, "derivatives, back", color=RED, fontsize=11)
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
    panel.annotate(number(value), middle, (0, 1), va="bottom", color=BLUE, **style)
    panel.annotate(number(derivative), middle, (0, -1), va="top", color=RED, **style)


def careless(right, wrong):
    """Losses of a right and a wrong pullback, which look alike, and the errors of their gradients."""
    figure, (left, panel) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for (losses, errors), color, name in ((right, BLUE, "right pullback"), (wrong, RED, "wrong pullback")):
        smooth = np.convolve(losses, np.ones(10) / 10, mode="valid")
        left.plot(np.arange(len(smooth)) + 5, smooth, color=color, lw=2, label=name)
        steps = np.linspace(0, len(losses), len(errors), endpoint=False)
        panel.plot(steps, errors, "o-", color=color, lw=2, ms=5, label=name)
    left.legend()
    left.set(xlabel="step", ylabel="loss, mean over 10 steps", ylim=0, title="Both learn, so all is well?")
    panel.legend(loc="center right")
    panel.set(xlabel="step", ylabel="error of the gradient, relative", ylim=(-0.05, None))
    panel.set_title("The gradient says what the loss hides")
    return figure


def cost(counted):
    """Multiplications forward and backward, in units of forward."""
    figure, panel = plt.subplots(figsize=(8, 3.8), layout="constrained")
    for row, found in enumerate(counted.values()):
        parts = [found[what] / found["forward"] for what in ("forward", "to weights", "to inputs")]
        panel.barh(row - 0.19, parts[0], 0.34, color=BLUE)
        panel.barh(row + 0.19, parts[1], 0.34, color=RED)
        panel.barh(row + 0.19, parts[2], 0.34, left=parts[1], color=ORANGE)
        total, white = parts[1] + parts[2], {"fc": "white", "ec": "none", "pad": 1.5}
        panel.text(total + 0.03, row + 0.19, f"{total:.2f}", va="center", bbox=white)
    panel.text(0.03, -0.19, "forward", color="white", va="center")
    panel.text(0.03, 0.19, "backward, to the weights", color="white", va="center")
    panel.text(1.03, len(counted) - 1 + 0.19, "to the inputs", color="white", va="center")
    panel.axvline(2, color=GREY, ls="--", lw=1, zorder=0)
    panel.set_yticks(range(len(counted)), list(counted))
    panel.invert_yaxis()
    panel.set(
        xlabel="multiplications, in units of forward",
        xlim=(0, 2.3),
        title="Twice forward, less what nobody needs",
    )
    return figure
