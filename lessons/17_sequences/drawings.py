"""The pictures of lesson 17; each function takes what was computed and gives a figure."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle

from minigrad.figures import BLUE, COLORS, GREEN, GREY, INK, ORANGE, RED, SAND, curve, line, points


def squares(axes, weights, names, numbers=False):
    """A matrix of weights, dark where large; what the mask takes out has the color of sand."""
    for (i, j), weight in np.ndenumerate(weights):
        color = BLUE if weight else SAND
        axes.add_patch(
            Rectangle((j, i), 0.94, 0.94, fc=color, alpha=0.15 + 0.85 * weight if weight else 1, lw=0)
        )
        if numbers and weight:
            shade = "white" if weight > 0.5 else INK
            axes.text(j + 0.47, i + 0.47, f"{weight:.3f}", ha="center", va="center", color=shade, fontsize=10)
    n = len(weights)
    axes.set(xlim=(0, n), ylim=(n, 0), aspect="equal", xlabel="key of token", ylabel="query of token")
    axes.set(xticks=np.arange(n) + 0.47, yticks=np.arange(n) + 0.47, xticklabels=names, yticklabels=names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def three_masks(by_hand, padded, two_documents):
    """The weights of the example by hand, of a row with padding, and of a row with two documents."""
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 4.3), layout="constrained")
    squares(axes[0], by_hand, list("abab"), numbers=True)
    squares(axes[1], padded, [*"012345", "·", "·"])
    squares(axes[2], two_documents, list("01201234"))
    axes[0].set_title("By hand: a triangle")
    axes[1].set_title("Six tokens, two of padding (·)")
    axes[2].set_title("Documents of 3 and 5: two blocks")
    figure.suptitle("Weights of attention: dark is large, sand is masked")
    return figure


def running_softmax(scores, rescaled, not_rescaled):
    """Scores with their running maximum; and the running sum, with and without the factor."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    places = np.arange(1, len(scores) + 1)
    left.bar(places, scores, 0.7, color=SAND, label="score")
    left.step(places, rescaled[0], where="mid", **line(BLUE), label="largest so far, m")
    left.set(xlabel="key", ylabel="score", xticks=places, title="The row is read once")
    left.legend(loc="upper left")
    for (_, sums, results), color, name in (
        (rescaled, BLUE, "rescaled"),
        (not_rescaled, RED, "not rescaled"),
    ):
        right.plot(places, sums, **curve(color), label=f"{name}: result {results[-1]:.1f}")
    right.set(xlabel="key", ylabel="sum so far, l", xticks=places, ylim=(0, None))
    right.set_title("Where m changes, the old sum shrinks")
    right.legend(loc="upper left")
    return figure


def memory(lengths, forms):
    """Bytes that the tape holds by the number of tokens, for each form."""
    figure, axes = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    for (name, nbytes), color in zip(forms.items(), (RED, BLUE), strict=True):
        axes.loglog(lengths, np.array(nbytes) / 2**10, **curve(color), base=2)
        slope = np.polyfit(np.log(lengths), np.log(nbytes), 1)[0]
        axes.annotate(
            f"{name}: slope {slope:.0f}",
            (lengths[-2], nbytes[-2] / 2**10),
            (-12, 10) if slope > 1.5 else (10, -22),
            textcoords="offset points",
            ha="right" if slope > 1.5 else "center",
            color=color,
        )
    kib = 4.0 ** np.arange(2, 8)
    axes.set(xticks=lengths, xticklabels=lengths, xlabel="tokens S", ylabel="KiB held for backward")
    axes.set(yticks=kib, yticklabels=[f"{n:,.0f}" for n in kib], ylim=(kib[0], 3 * kib[-1]))
    axes.minorticks_off()
    axes.set_title("What attention holds for backward: S² or S")
    return figure


def losses(tests, letters, pairs, first):
    """The test loss by step, and the losses of tables of single symbols and of pairs."""
    figure, axes = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    axes.plot(list(tests), list(tests.values()), **curve(BLUE), label="transformer, on text it has not seen")
    for height, color, name in (
        (first, GREY, f"all symbols alike, log V = {first:.2f}"),
        (letters, ORANGE, f"frequencies of symbols: {letters:.2f}"),
        (pairs, GREEN, f"frequencies of pairs: {pairs:.2f}"),
    ):
        axes.axhline(height, **line(color), label=name)
    axes.set(xlabel="step", ylabel="loss, nats a symbol", xlim=(0, None), ylim=(1.6, 4.8))
    axes.set_title("A small transformer on the prose of this course")
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.9))
    return figure


def who_holds_what(qkv, out, size):
    """The rows of qkv and the columns of out, in the color of the rank that has them."""
    figure, axes = plt.subplots(figsize=(9.5, 5.2), layout="constrained")
    rows, columns = qkv.shape[0], out.shape[1]
    for row in range(0, rows, size):
        which = row // size % 3
        color = COLORS[int(qkv[row, 0])]
        axes.add_patch(Rectangle((0, row), 20, size - 0.6, fc=color, alpha=(1, 0.7, 0.4)[which], lw=0))
        name = f"{('queries', 'keys', 'values')[which]}, head {row // (3 * size)}"
        axes.text(-0.8, row + size / 2, name, ha="right", va="center", fontsize=9)
    top, left = (rows - 20) / 2, 36
    for column in range(0, columns, size):
        color = COLORS[int(out[0, column])]
        axes.add_patch(Rectangle((left + column, top), size - 0.6, 20, fc=color, lw=0))
        center = left + column + size / 2
        axes.text(center, top + 20.8, f"head {column // size}", ha="center", va="top", fontsize=9)
    axes.text(10, -1, "qkv: rows are neurons", ha="center", va="bottom", fontweight="bold")
    axes.text(left + columns / 2, top - 1, "out: columns", ha="center", va="bottom", fontweight="bold")
    axes.text(28, rows / 2, "heads compute\nalone →", ha="center", va="center", color=GREY, fontsize=10)
    axes.text(
        left + columns + 1,
        rows / 2,
        "→ one sum,\n+ bias, once",
        ha="left",
        va="center",
        color=GREY,
        fontsize=10,
    )
    ranks = int(max(qkv.max(), out.max())) + 1
    handles = [Patch(fc=COLORS[rank], label=f"rank {rank}") for rank in range(ranks)]
    axes.legend(handles=handles, loc="lower right", ncols=ranks)
    axes.set(xlim=(-11, left + columns + 10), ylim=(rows + 5, -4), title="Four heads on three ranks")
    axes.axis("off")
    return figure


def activation_bars(forms):
    """Activations held for backward by form: a split part, and what every rank holds whole (hatched)."""
    figure, axes = plt.subplots(figsize=(8, 4.3), layout="constrained")
    totals, wholes = np.array(list(forms.values())).T
    places = np.arange(len(forms))
    axes.bar(places, wholes, 0.6, color=SAND, hatch="///", ec=INK, lw=0.6, label="whole on every rank")
    axes.bar(places, totals - wholes, 0.6, bottom=wholes, color=BLUE, label="split over the ranks")
    for place, total in enumerate(totals):
        axes.text(place, total + 0.3, f"{total:.4g}", ha="center")
    axes.set(xticks=range(len(forms)), xticklabels=forms, ylabel="activations held, in B S h numbers")
    axes.set(ylim=(0, 18), title="A block on two ranks: the same bytes are sent, and less is held")
    axes.legend(loc="upper right")
    return figure


def ring_lanes(orders, steps_of):
    """Each rank's tiles over time, for each order of the tokens, from pairs by rank of query and of key."""
    figure, axes = plt.subplots(len(orders), 1, figsize=(9.5, 5.4), layout="constrained", sharex=True)
    for plot, (name, pairs) in zip(axes, orders.items(), strict=True):
        start, p = 0, len(pairs)
        for t, length in enumerate(steps_of(pairs)):
            for rank in range(p):
                key = (rank - t) % p
                tile = int(pairs[rank, key])
                plot.barh(rank, length, 0.72, left=start, color=GREY, alpha=0.3, lw=0)
                plot.barh(rank, tile, 0.72, left=start, color=COLORS[rank], ec="white")
                if tile:
                    shade = "white" if COLORS[rank] in (BLUE, RED) else INK
                    plot.text(start + tile / 2, rank, f"keys of {key}", ha="center", va="center", color=shade)
            start += length
        plot.set(yticks=range(p), yticklabels=[f"rank {rank}" for rank in range(p)], ylim=(p - 0.5, -0.5))
        plot.set_title(f"{name}: {start} pairs")
    axes[-1].set_xlabel("time, in pairs of a query and a key; grey: waiting for the others")
    figure.suptitle("A ring of four ranks, 64 tokens")
    return figure


def turned_array(tokens, heads, ranks, sent, factors):
    """An array cut by tokens and by heads, and what a rank sends by the number of ranks."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(11.5, 4.3), layout="constrained", width_ratios=(1, 1, 2.2)
    )
    for axes, title, owner in (
        (left, "Before: by tokens", lambda token, _: token * ranks // tokens),
        (middle, "After: by heads", lambda _, head: head * ranks // heads),
    ):
        for token, head in np.ndindex(tokens, heads):
            color = COLORS[owner(token, head)]
            axes.add_patch(Rectangle((head, token), 0.94, 0.94, fc=color, lw=0))
            shade = "white" if color in (BLUE, RED) else INK
            axes.text(head + 0.47, token + 0.47, owner(token, head), ha="center", va="center", color=shade)
        axes.set(
            xlim=(0, heads), ylim=(tokens, 0), aspect="equal", xlabel="head", ylabel="token", title=title
        )
        axes.set(xticks=np.arange(heads) + 0.47, xticklabels=range(heads))
        axes.set(yticks=np.arange(tokens) + 0.47, yticklabels=range(tokens))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    numbers = np.arange(1, 17)
    for (name, by_ranks), color in zip(sent.items(), (BLUE, ORANGE, GREEN), strict=True):
        right.plot(numbers, factors[name](numbers) * (numbers - 1) / numbers, **line(color), label=name)
        right.plot(list(by_ranks), list(by_ranks.values()), **points(color))
    right.set(xlabel="ranks p", ylabel="a rank sends, in B S h numbers", xlim=(0.5, 16.5), ylim=(0, 9.5))
    right.set_title("Lines: formulas. Points: counted")
    right.legend(loc="upper left", ncols=3)
    return figure


def packed_rows(x, y):
    """Rows of letters in the color of their document; letters without a label that counts are hatched."""
    figure, axes = plt.subplots(figsize=(9.5, 3.2), layout="constrained")
    count = 0
    for i, row in enumerate(x):
        for j, (symbol, place, document) in enumerate(row):
            count += place == 0 and document >= 0
            color = COLORS[(count - 1) % len(COLORS)] if document >= 0 else SAND
            hatch = "///" if y[i, j] < 0 and document >= 0 else None
            axes.add_patch(
                Rectangle(
                    (j, i),
                    0.94,
                    0.86,
                    fc=color,
                    alpha=0.45 if document >= 0 else 1,
                    hatch=hatch,
                    ec=INK,
                    lw=0,
                )
            )
            if document >= 0:
                letter = chr(symbol + ord("a") - 1) if symbol else "␣"
                axes.text(j + 0.47, i + 0.36, letter, ha="center", va="center", fontsize=13)
                axes.text(j + 0.47, i + 0.72, place, ha="center", va="center", fontsize=8)
    axes.set(xlim=(0, x.shape[1]), ylim=(len(x), 0), xticks=[], yticks=np.arange(len(x)) + 0.43)
    axes.set(yticklabels=[f"row {i}" for i in range(len(x))])
    axes.set_xlabel("small: the place in its document; hatched: no label; sand: padding")
    axes.set_title("Five documents in three rows")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
