"""The pictures of lesson 03; each function takes what was measured and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from minigrad.figures import BLUE, GREEN, GREY, INK, ORANGE, RED, SAND, YELLOW, curve, line

COLORS = {"activation": BLUE, "gradient": ORANGE, "weights": GREEN}
WORDS = {
    "activation": "activations",
    "gradient": "gradients of activations",
    "weights": "gradients of weights",
}


def lifetimes(inference, training, layers):
    """Bars: the ticks in which each array exists. Below: the bytes of all arrays, by tick."""
    figure, panels = plt.subplots(
        2, 2, figsize=(11, 7), sharex="col", sharey="row", width_ratios=[1, 2], layout="constrained"
    )
    names = inference.names[:layers]
    for (above, below), trace in zip(panels.T, (inference, training), strict=True):
        ticks = len(trace.now)
        alive = {kind: np.zeros(ticks) for kind in COLORS}
        for (kind, name), (born, died) in trace.lives.items():
            last = ticks if died is None else died + 1
            alive[kind][born:last] += trace.nbytes[kind, name] / 1e6
            if kind != "weights":
                place = names.index(name) - (0.18 if kind == "activation" else -0.18)
                thick = 0.72 if trace is inference else 0.34
                place = place if trace is training else names.index(name)
                above.barh(place, last - born, thick, left=born, color=COLORS[kind])
        floor = np.zeros(ticks)
        for kind, height in alive.items():
            below.bar(np.arange(ticks) + 0.5, height, 1, floor, color=COLORS[kind], label=WORDS[kind])
            floor += height
        edges = np.arange(ticks + 1)
        below.stairs(
            np.array(trace.most) / 1e6, edges, color=INK, lw=1.2, label="measured, at most in a tick"
        )
        below.set(xlim=(0, ticks), xlabel="tick")
        below.set_xticks(np.arange(ticks) + 0.5, range(ticks), fontsize=9)
    panels[0, 0].set_yticks(range(layers), names)
    panels[0, 0].invert_yaxis()
    panels[0, 0].set(title="Inference: needed for one more tick", ylabel="output of")
    panels[0, 1].set_title("Training: computed first, freed last")
    for panel in panels[:, 1]:
        panel.axvline(layers + 1, color=INK, lw=0.8, ls=":")
    panels[0, 1].text(layers + 0.8, layers - 0.4, "forward", ha="right", va="bottom", color=INK)
    panels[0, 1].text(layers + 1.2, -0.35, "backward", va="center", color=INK)
    panels[1, 0].set_ylabel("MB, without the batch")
    panels[1, 1].legend(loc="upper left", fontsize=9)
    return figure


def layers(full):
    """For each layer of VGG-16 what it keeps of one image, and its parameters."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 6), sharey=True, layout="constrained")
    names = [layer.name for layer in full]
    megabytes = [4 * layer.outputs / 1e6 for layer in full]
    weights = [4 * layer.parameters / 1e6 for layer in full]
    colors = [SAND if "pool" in name else ORANGE if "fc" in name else BLUE for name in names]
    for panel, numbers in ((left, megabytes), (right, weights)):
        panel.barh(names, numbers, color=colors)
        for place, number in enumerate(numbers):
            text = f"{number:.1f}" if number >= 0.05 else f"{number:.2f}" if number else ""
            panel.text(number, place, f" {text}", va="center", color=INK, fontsize=9)
        panel.set_xlabel("MB")
    left.invert_yaxis()
    right.set_xlim(0, 1.12 * max(weights))
    left.set_xlim(0, 1.08 * max(megabytes))
    names_of = {BLUE: "convolution", SAND: "pooling", ORANGE: "fully connected"}
    keys = [Patch(color=color, label=name) for color, name in names_of.items()]
    right.legend(handles=keys, loc="upper right")
    left.set_title(f"Activations of one image: {sum(megabytes):.0f} MB, and the image")
    right.set_title(f"Parameters: {sum(weights):.0f} MB")
    return figure


def by_batch(batches, parts):
    """What training with momentum holds, part by part."""
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    names = ("weights", "their gradients", "momentum", "activations")
    floor, places = np.zeros(len(batches)), np.arange(len(batches))
    for name, sizes, color in zip(names, np.array(parts).T / 1e9, (GREEN, ORANGE, YELLOW, BLUE), strict=True):
        axes.bar(places, sizes, 0.7, floor, color=color, label=name)
        floor += sizes
    for place, total in zip(places, floor, strict=True):
        axes.text(place, total + 0.2, f"{total:.1f}", ha="center", color=INK)
    axes.set_xticks(places, batches)
    axes.set(xlabel="images in a batch", ylabel="GB", title="Training VGG-16 in float32, with momentum")
    axes.legend(loc="upper left", reverse=True)
    return figure


def recomputation(plain, runs, layers, size, most, forwards):
    """Activations that exist over time; by segments the most of them, and the layers run forward."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(11.5, 4.4), width_ratios=[1.4, 1, 1], layout="constrained"
    )
    shown = (
        ("all kept", plain, RED),
        ("6 segments", runs[6, True], BLUE),
        ("1 segment", runs[1, True], GREEN),
    )
    for name, trace, color in shown:
        left.stairs(np.array(trace.most) / size, **line(color) | {"lw": 1.6}, label=name, baseline=None)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    left.set(xlabel="layers run forward, again, or backward", ylabel="activations at a time", ylim=0)
    left.set_title(f"{layers} layers: many small peaks instead of a large one")
    ks = sorted(k for k, all_again in runs if all_again)
    fine = np.geomspace(1, layers, 60)
    middle.plot(fine, fine + layers / fine, **line(GREY) | {"lw": 1.2}, label="k + n / k")
    for all_again, color, name in (
        (True, BLUE, "all segments again"),
        (False, ORANGE, "all but the last again"),
    ):
        some = [k for k in ks if (k, all_again) in runs]
        for panel, value in ((middle, most), (right, forwards)):
            style = {**curve(color), "lw": 1.5, "label": name}
            panel.plot(some, [value(runs[k, all_again]) for k in some], **style)
    for panel, value in ((middle, most(plain)), (right, forwards(plain))):
        panel.axhline(value, **line(RED) | {"lw": 1.6}, label="all kept")
        panel.set_xscale("log")
        panel.set_xticks(ks, [str(k) for k in ks])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel("k, segments")
    middle.set(ylabel="activations, most at a time", ylim=0, title="What is saved")
    right.set(ylabel="layers run forward in a step", ylim=(0, 2 * layers + 5), title="What it costs")
    middle.legend(loc="lower left", fontsize=10)
    return figure
