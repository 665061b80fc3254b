"""Laws of lessons/minigrad_course/explorables/ring_table.py: counted pairs and times are those of loops."""

import numpy as np
from minigrad_course.explorables.ring_table import lengths


def counts_pairs(order, ranks):
    """The owners' pairs, counted token by token; each token has one owner."""
    owners = [int(digit) for digit in order["owners"]]
    pairs = [[0] * ranks for _ in range(ranks)]
    for query, owner in enumerate(owners):
        for key in range(query + 1):
            pairs[owner][owners[key]] += 1
    assert order["pairs"] == pairs, f"{order['pairs']}, by a loop {pairs}"


def lasts_as_long(order, columns):
    """All ranks begin a step together, which ends with its slowest tile, or with its slowest message."""
    p, pairs = len(columns), order["pairs"]
    sizes = [len(places) for places in columns]
    for message in (0, 3, 17):
        clock, here = 0, list(range(p))  # whose keys each rank has
        for step in range(p):
            tiles = [pairs[rank][here[rank]] for rank in range(p)]
            sent = [message * sizes[here[rank]] for rank in range(p) if step < p - 1]
            clock += max(tiles + sent)
            here = here[-1:] + here[:-1]  # each rank has now what the one before it had
        took = sum(lengths(np.array(pairs), sizes, message))
        assert took == clock, f"messages of {message}: {took}, on a clock {clock}"
    assert order["time"] == sum(lengths(np.array(pairs), sizes, 0))


def keeps_its_order(name, owners):
    """Plain: consecutive tokens; zig-zag: the same from the front and from the back; striped: in turn."""
    ranks = 1 + max(owners)
    changes = [after - before for before, after in zip(owners, owners[1:], strict=False)]
    right = {
        "plain": set(changes) == {0, 1},
        "zig-zag": owners == owners[::-1] and set(changes[: len(owners) // 2 - 1]) == {0, 1},
        "striped": owners == [token % ranks for token in range(len(owners))],
    }
    assert right[name], f"{name} order of {ranks} ranks has the owners {owners}"
    counts = [owners.count(rank) for rank in range(ranks)]
    assert len(set(counts)) == 1, f"the ranks have {counts} tokens"
