"""The usual mistakes in lessons/assignments/a10_ring_attention, each with what the grader says of it."""

USES_TILE = {"tile", "ring_forward", "overlapped_forward"}
USES_MERGE = {"merge", "ring_forward", "overlapped_forward"}
SUMS = "        sums[0] += b\n        sums[1] += c\n"
HOME = "        home = [home[0] + dk, home[1] + dv]\n"
MASK = "        mask = allowed(columns[comm.rank], columns[(comm.rank - t) % comm.size], documents)\n"
STARTS = (
    "            finishes = [comm.start_recv((comm.rank - 1) % comm.size) for _ in block]\n"
    "            sends = [comm.start_send(x, (comm.rank + 1) % comm.size) for x in block]\n"
)
COLUMNS = "    o, lse, block = np.zeros(v.shape), np.full(len(q), -np.inf), [k, v]\n"
SHOWN = "        if mask.any():"
SENDS = "            block = to_next(comm, block)\n    return o, lse\n\n\ndef tile_b"
SHOWS = "        if mask.any():\n            o, lse = merge(o, lse, *tile(q, block[0], block[1], mask))\n"
MISTAKES = {
    # of tile
    "scores are not divided by sqrt(D)": (
        [("    s = scores_of(q, k, mask)\n", "    s = np.where(mask, q @ k.T, -np.inf)\n")],
        USES_TILE,
        "o of tile is",
    ),
    "exponentials of large scores": (
        [("    m = finite(s.max(axis=1, initial=-np.inf))\n", "    m = np.zeros(len(q))\n")],
        {"tile"},
        "large scores",
    ),
    "a row that sees nothing is not finite": (
        [("    m = finite(s.max(axis=1, initial=-np.inf))\n", "    m = s.max(axis=1, initial=-np.inf)\n")],
        USES_TILE,
        "o of tile is nan at 0, 0, it should be 0",
    ),
    "what is masked has the score 0": (
        [("    s = scores_of(q, k, mask)\n", "    s = np.where(mask, q @ k.T / np.sqrt(q.shape[1]), 0.0)\n")],
        USES_TILE,
        "o of tile is",
    ),
    "no keys have no largest score": (
        [("s.max(axis=1, initial=-np.inf)", "s.max(axis=1)")],
        {"tile"},
        "0 keys",
    ),
    # of merge
    "merge without the rescale": (
        [
            (
                "o * np.exp(lse - n)[:, None] + other * np.exp(other_lse - n)[:, None]",
                "o + other * np.exp(other_lse - n)[:, None]",
            )
        ],
        USES_MERGE,
        "merged in the order",
    ),
    "the mean of two means": (
        [
            (
                "o * np.exp(lse - n)[:, None] + other * np.exp(other_lse - n)[:, None]",
                "(o + other) / np.where((lse > -np.inf) & (other_lse > -np.inf), 2, 1)[:, None]",
            )
        ],
        USES_MERGE,
        "merged in the order",
    ),
    "-inf from -inf": ([("    n = finite(both)\n", "    n = both\n")], {"merge", "ring_forward"}, "nan"),
    "adds the sums without a shift": (
        [
            (
                "    both = np.logaddexp(lse, other_lse)\n",
                "    total = np.exp(lse) + np.exp(other_lse)\n"
                "    both = np.where(total > 0, np.log(np.where(total > 0, total, 1.0)), -np.inf)\n",
            )
        ],
        {"merge"},
        "large scores",
    ),
    "works in its input": (
        [
            (
                "    return o * np.exp(lse - n)[:, None] + other",
                "    o *= np.exp(lse - n)[:, None]\n    return o + other",
            )
        ],
        {"merge"},
        "o was changed: work on a copy",
    ),
    # of zigzag
    "the partner is off by one": (
        [("blocks[2 * ranks - 1 - r]", "blocks[(2 * ranks - r) % (2 * ranks)]")],
        {"zigzag"},
        "pairs, not",
    ),
    "plain order under the name of zig-zag": (
        [
            (
                "[np.concatenate([blocks[r], blocks[2 * ranks - 1 - r]]) for r",
                "[np.concatenate(blocks[2 * r : 2 * r + 2]) for r",
            )
        ],
        {"zigzag"},
        "pairs, not",
    ),
    "an array of two axes": (
        [
            (
                "[np.concatenate([blocks[r], blocks[2 * ranks - 1 - r]]) for r",
                "[np.concatenate([blocks[r], blocks[2 * ranks - 1 - r]])[None] for r",
            )
        ],
        {"zigzag"},
        "the array of rank 0 has the shape (1, 8), it should be (n,)",
    ),
    "blocks of one size": (
        [
            (
                "    blocks = np.array_split(np.arange(tokens), 2 * ranks)\n",
                "    n = tokens // (2 * ranks)\n"
                "    blocks = [np.arange(i * n, (i + 1) * n) for i in range(2 * ranks)]\n",
            )
        ],
        {"zigzag"},
        "it should have",
    ),
    # of ring_forward
    "the keys are taken for those of rank r + t": (
        [(MASK + SHOWN, MASK.replace("- t", "+ t") + SHOWN)],
        {"ring_forward"},
        "3 ranks",
    ),
    "a block that nobody sees skips its message": (
        [
            (
                SHOWS,
                SHOWS.replace("if mask.any()", "if not mask.any():\n            continue\n        if True"),
            )
        ],
        {"ring_forward"},
        "the results are right, but rank 0 sent 2 messages, not 4",
    ),
    "keys go round, and values stay": (
        [(SENDS, SENDS.replace("to_next(comm, block)", "[to_next(comm, block)[0], v]"))],
        {"ring_forward"},
        "2 ranks",
    ),
    "goes round once too often": (
        [("        if t < comm.size - 1:\n" + SENDS, SENDS[4:])],
        {"ring_forward"},
        "sends itself a message",
    ),
    "one array for keys and values": (
        [
            (
                SENDS,
                "            both = to_next(comm, [np.concatenate(block)])[0]\n"
                "            block = list(np.split(both, 2))\n    return o, lse\n\n\ndef tile_b",
            )
        ],
        {"ring_forward"},
        "the results are right, but rank",
    ),
    "sends before it receives": (
        [
            ("    finish = comm.start_send(x, to)\n    received", "    comm.send(x, to)\n    received"),
            ("comm.recv(source)\n    finish()\n", "comm.recv(source)\n"),
        ],
        {"ring_forward", "ring_backward"},
        "deadlock",
    ),
    "the columns are overwritten": (
        [
            (
                COLUMNS + "    for t in range(comm.size):\n        mask",
                COLUMNS + "    columns[0][:] = 0\n    for t in range(comm.size):\n        mask",
            )
        ],
        {"ring_forward"},
        "columns[0] was changed",
    ),
    "padding becomes a document": (
        [("    delta = (g * o).sum(axis=1)\n", "    delta = (g * o).sum(axis=1)\n    documents += 1\n")],
        {"ring_backward"},
        "documents was changed",
    ),
    # of ring_backward
    "the last hop is missing": (
        [("        dk, dv = to_next(comm, sums)\n", "        dk, dv = sums if comm.size == 0 else home\n")],
        {"ring_backward"},
        "gradient of k of ring_backward is",
    ),
    "the gradients of passed ranks are dropped": (
        [
            (
                "[np.zeros(x.shape) for x in block] if t == 1 else to_next(comm, sums)",
                "[np.zeros(x.shape) for x in (block if t == 1 else to_next(comm, sums))]",
            )
        ],
        {"ring_backward"},
        "3 ranks",
    ),
    "the queries' gradient is overwritten": (
        [("        dq += a\n", "        dq = a\n")],
        {"ring_backward"},
        "gradient of q of ring_backward is",
    ),
    "own gradients travel, too": (
        [
            ("[np.zeros(x.shape) for x in block] if t == 1 else to_next(", "to_next("),
            (HOME, "        home = [dk, dv]\n"),
        ],
        {"ring_backward"},
        "the results are right, but rank",
    ),
    "no delta": (
        [("    delta = (g * o).sum(axis=1)\n", "    delta = np.zeros(len(q))\n")],
        {"ring_backward"},
        "1 rank",
    ),
    "the weights of the tile instead of those of the whole": (
        [
            (
                "    p = np.exp(scores_of(q, k, mask) - finite(lse)[:, None])\n",
                "    p = np.exp(scores_of(q, k, mask) - finite(tile(q, k, v, mask)[1])[:, None])\n",
            )
        ],
        {"ring_backward"},
        "ring_backward is",
    ),
    "the scale is forgotten on the way back": (
        [("(g @ v.T - delta[:, None]) / np.sqrt(q.shape[1])", "(g @ v.T - delta[:, None])")],
        {"ring_backward"},
        "gradient of q of ring_backward is",
    ),
    "keys of one rank are added to the gradients of another": (
        [("        sums[0] += b\n        sums[1] += c\n", "        home[0] += b\n        home[1] += c\n")],
        {"ring_backward"},
        "2 ranks",
    ),
    # of overlapped_forward
    "computes first, and sends then": (
        [
            ("        comm.compute(mask.sum())\n", ""),
            (
                "        finishes, sends = [], []\n",
                f"        finishes, sends = [], []\n{MASK}        comm.compute(mask.sum())\n",
            ),
        ],
        {"overlapped_forward"},
        "which it takes without any overlap",
    ),
    "all pairs take their time, the masked ones, too": (
        [("comm.compute(mask.sum())", "comm.compute(mask.size)")],
        {"overlapped_forward"},
        "the masks allow",
    ),
    "waits for the message before it computes": (
        [
            (
                "        comm.compute(mask.sum())\n",
                "        came = [finish() for finish in finishes]\n        comm.compute(mask.sum())\n",
            ),
            ("            block = [finish() for finish in finishes]\n", "            block = came\n"),
        ],
        {"overlapped_forward"},
        "which it takes without any overlap",
    ),
    "the ring turns the other way": (
        [
            (STARTS, STARTS.replace("+ 1", "+ 0").replace("- 1", "+ 1").replace("+ 0", "- 1")),
            (
                MASK + "        comm.compute",
                MASK.replace("comm.rank - t", "comm.rank + t") + "        comm.compute",
            ),
        ],
        {"overlapped_forward"},
        "the results are right, but rank 0 sent messages to others than rank 1",
    ),
    "no ring: each rank sends its own keys to all others": (
        [
            (
                STARTS,
                STARTS.replace("- 1)", "- t - 1)")
                .replace("+ 1)", "+ t + 1)")
                .replace("x in block]", "x in (k, v)]"),
            )
        ],
        {"overlapped_forward"},
        "the results are right, but rank 0 sent messages to others than rank 1",
    ),
    "keys and values in one message of the overlapped ring": (
        [
            (
                STARTS,
                STARTS.replace(" for _ in block", "").replace(
                    "(x, (comm.rank + 1) % comm.size) for x in block",
                    "(np.stack(block), (comm.rank + 1) % comm.size)",
                ),
            ),
            (
                "            block = [finish() for finish in finishes]\n",
                "            block = list(finishes[0]())\n",
            ),
        ],
        {"overlapped_forward"},
        "the results are right, but rank",
    ),
    "sends wait while one computes": (
        [
            (STARTS, STARTS.replace("start_send", "send")),
            ("            for finish in sends:\n                finish()\n", ""),
        ],
        {"overlapped_forward"},
        "comm has no send here",
    ),
    "each send is finished before a receive is begun": (
        [
            (
                STARTS,
                "".join(reversed(STARTS.splitlines(keepends=True))).replace(
                    "for x in block]\n", "for x in block]\n            [finish() for finish in sends]\n"
                ),
            ),
            ("            for finish in sends:\n                finish()\n", ""),
        ],
        {"overlapped_forward"},
        "deadlock",
    ),
    "computes a mask instead of a number": (
        [("comm.compute(mask.sum())", "comm.compute(mask)")],
        {"overlapped_forward"},
        "compute takes a number of pairs, got a ndarray",
    ),
}
