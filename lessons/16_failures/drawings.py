"""The pictures of lesson 16; each function takes what was computed and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from minigrad.figures import BLUE, GREEN, GREY, INK, ORANGE, PAPER, RED, SKY, YELLOW, line, points

PLAIN = FuncFormatter(lambda x, _: f"{x:,g}")
LOOKS = {"old": (SKY, ""), "new": (GREEN, ""), "mix": (YELLOW, "////"), "nothing": (RED, "xxxx")}


def torn(content, length, columns=16):
    """The bytes of a file as rows of hexadecimal numbers; those from ``length`` on are lost."""
    rows = -(-len(content) // columns)
    figure, axes = plt.subplots(figsize=(9, 0.34 * rows + 1.1), layout="constrained")
    header = 8 + int.from_bytes(content[:8], "little")
    for place, byte in enumerate(content):
        x, y = place % columns, place // columns
        kind = BLUE if place < 8 else SKY if place < header else GREEN
        axes.add_patch(Rectangle((x, y), 1, 1, fc=PAPER if place >= length else kind, ec="white", alpha=0.35))
        axes.text(
            x + 0.5, y + 0.54, f"{byte:02x}" if place < length else "··", ha="center", va="center", fontsize=8
        )
    for row in range(rows):
        axes.text(-0.2, row + 0.54, f"{row * columns:04x}", ha="right", va="center", fontsize=8, color=GREY)
        text = content[row * columns : (row + 1) * columns]
        shown = "".join(
            chr(byte) if 32 < byte < 127 and row * columns + i < length else "·"
            for i, byte in enumerate(text)
        )
        axes.text(
            columns + 0.3, row + 0.54, shown, va="center", fontsize=8, family="monospace", parse_math=False
        )
    keys = [("length of the header", BLUE), ("header: names, shapes, places", SKY), ("numbers", GREEN)]
    patches = [Patch(fc=color, alpha=0.35, label=label) for label, color in keys]
    patches.append(Patch(fc=PAPER, ec=GREY, lw=0.5, label="lost"))
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=9)
    axes.set(xlim=(-1.5, columns + 6.5), ylim=(rows, 0))
    axes.axis("off")
    axes.set_title(f"A file of {len(content)} bytes, of which the first {length} reached the disk")
    return figure


def crash_states(crashes):
    """For each program and each number of operations done: what comes back after a crash, as shares."""
    figure, panels = plt.subplots(2, 2, figsize=(11, 6), layout="constrained", sharey=True)
    for panel, (name, outcomes) in zip(panels.flat, crashes.items(), strict=True):
        done = np.arange(len(outcomes.counts))
        bottom = np.zeros(len(done))
        for outcome, (color, hatch) in LOOKS.items():
            share = np.array([count[outcome] / count.total() for count in outcomes.counts])
            panel.bar(done, share, 0.92, bottom, color=color, hatch=hatch, ec="white", lw=0.4)
            bottom += share
        bad = outcomes.total["mix"] + outcomes.total["nothing"]
        verdict = (
            f"{bad} of {outcomes.total.total()} states lose both"
            if bad
            else f"{outcomes.total.total()} states, none lost"
        )
        panel.set_title(f"{name}: {verdict}")
        panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        panel.yaxis.set_major_formatter(PercentFormatter(1))
        panel.margins(x=0.01)
    for panel in panels[1]:
        panel.set_xlabel("operations of the save that were done before the crash")
    for panel in panels[:, 0]:
        panel.set_ylabel("states after the crash")
    labels = {"old": "the old generation", "new": "the new one", "mix": "a mix of both", "nothing": "nothing"}
    patches = [
        Patch(fc=color, hatch=hatch, ec="white", label=labels[o]) for o, (color, hatch) in LOOKS.items()
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4)
    return figure


def intervals(kinds, failures):
    """The share of the time that is lost, by the seconds between saves, for each way to save."""
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    for (name, (seconds, formula, simulated, best)), color in zip(
        kinds.items(), (RED, ORANGE, BLUE), strict=True
    ):
        axes.plot(seconds, formula, **line(color))
        axes.plot(seconds, simulated, **points(color), label=name)
        lowest = float(np.interp(best, seconds, formula))
        axes.vlines(best, 0, lowest, color=color, lw=0.8, ls=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="upper center")
    axes.set(xlabel="seconds between two saves (dotted: Young's)", ylabel="time lost", ylim=(0, 0.4))
    axes.set_title(f"Save in less time, save more often, lose less: a failure every {failures:,.0f} s")
    return figure


def holders(ranks, hosts):
    """Who holds what: pieces, copies and parity, by rank, for partner copies and for parity."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 0.42 * ranks + 1.9), layout="constrained", sharey=True)
    of_host = ranks // hosts
    for panel, kind in zip(panels, ("copy", "parity"), strict=True):
        for rank in range(ranks):
            panel.add_patch(Rectangle((rank, rank), 1, 1, fc=BLUE, ec="white"))
            panel.text(rank + 0.5, rank + 0.5, "own", ha="center", va="center", color="white", fontsize=9)
            others = [(rank - of_host) % ranks]
            if kind == "parity":
                others = [other for other in range(rank % of_host, ranks, of_host) if other != rank]
            for other in others:
                panel.add_patch(Rectangle((other, rank), 1, 1, fc=YELLOW, ec="white"))
                text = "copy" if kind == "copy" else f"1/{hosts - 1}"
                panel.text(other + 0.5, rank + 0.5, text, ha="center", va="center", fontsize=9)
        for edge in range(of_host, ranks, of_host):
            panel.axhline(edge, color=INK, lw=0.8)
        panel.set(xlim=(0, ranks), ylim=(ranks, 0), xlabel="piece of rank")
        panel.set_xticks(np.arange(ranks) + 0.5, [str(rank) for rank in range(ranks)])
        panel.set_yticks(np.arange(ranks) + 0.5, [str(rank) for rank in range(ranks)])
        panel.tick_params(length=0)
    panels[0].set(ylabel="in the memory of rank")
    panels[0].set_title("Partner copies: a row has its own piece and a copy")
    panels[1].set_title("Parity: a row has one exclusive or of its parts")
    return figure


def shrunk(serial, before, after, lost_at, resumed_at):
    """The loss of each step: one machine, four ranks until one is lost, three ranks from the checkpoint."""
    figure, axes = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
    steps = np.arange(1, len(serial) + 1)
    axes.plot(steps, serial, **line(GREY), label="one machine")
    axes.plot(steps[: len(before)], before, **points(BLUE) | {"ms": 10}, label="four ranks")
    axes.plot(steps[resumed_at:], after, **points(ORANGE), label="three ranks, from the checkpoint")
    axes.axvline(lost_at + 0.5, color=RED, lw=1, ls="--")
    bottom = axes.get_ylim()[0]
    axes.text(lost_at + 0.6, bottom, "rank 2 is lost", color=RED, va="bottom")
    axes.axvline(resumed_at + 0.5, color=GREY, lw=1, ls=":")
    axes.text(resumed_at + 0.4, bottom, "saved", color=GREY, ha="right", va="bottom")
    axes.legend(loc="upper right")
    axes.set(xlabel="step", ylabel="loss", title="A rank is lost, and the training is the same")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
