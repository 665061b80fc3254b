"""Laws of lessons/minigrad_course/explorables/ring_table.py and ring_steps.mjs: the page counts pairs and
steps as Python does, and Python as a loop over all pairs of tokens.
"""

import random
import shutil

import numpy as np
import pytest
from minigrad_course.explorables import ring_table
from minigrad_course.explorables.ring_table import ORDERS, RANKS, TOKENS, lengths, ring_data

from backends.sequence_parallel.token_order import pairs_of
from tests.minigrad_course.explorables import node
from tests.minigrad_course.explorables.ring_laws import counts_pairs, keeps_its_order, lasts_as_long

STEPS = """
    const { balanced, pairsOf, stepsOf } = await load("ring_steps.mjs");
    return data.map(([owners, ranks, message]) => ({
        pairs: pairsOf(owners, ranks),
        lengths: stepsOf(owners, ranks, message).map((step) => step.length),
        balanced: balanced(owners.length, ranks),
    }));
"""
WAITS = [
    ([36, 0, 0, 0], "Ranks 1, 2 and 3 wait most,"),
    ([3, 5, 3], "Ranks 0 and 2 wait most,"),
    ([3, 5, 4], "Rank 0 waits most,"),
    ([5, 5], "Each rank waits"),
]
BUGS = [
    ("before[owner] += 1;", ""),
    ("pairs[owner][rank] += before[rank]", "pairs[rank][owner] += before[rank]"),
    ("(rank - t + ranks) % ranks", "(rank + t) % ranks"),
    ("t < ranks - 1 ? message", "t < ranks ? message"),
    ("message * sizes[source]", "message * sizes[0]"),
    ("Math.max(...tiles, ...messages)", "Math.max(...tiles)"),
    ("(tokens + 1)) / 2 / ranks", "(tokens + 1)) / ranks"),
]


@pytest.fixture(scope="module")
def data():
    return ring_data()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", RANKS)
def test_pairs_and_time_are_those_of_a_loop(data, ranks, order):
    counts_pairs(data["orders"][ranks][order], ranks)
    lasts_as_long(data["orders"][ranks][order], ring_table.columns(order, ranks))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", RANKS)
def test_an_order_is_what_its_button_says(data, ranks, order):
    keeps_its_order(order, [int(digit) for digit in data["orders"][ranks][order]["owners"]])


def test_four_ranks_last_904_and_520_pairs(data):
    times = {order: data["orders"][4][order]["time"] for order in ORDERS}
    assert times == {"plain": 904, "zig-zag": 520, "striped": 544}


def drawn(number=300):
    """Owners of the tokens of a row, with as many ranks as there are digits, and a message's time."""
    draw = random.Random(0)
    cases = []
    for _ in range(number):
        ranks = draw.randint(1, 8)
        owners = [draw.randrange(ranks) for _ in range(draw.randint(0, TOKENS))]
        cases.append((owners, ranks, draw.choice([0, 1, 2.5, 24])))
    return cases


def javascript_agrees(folder=node.FOLDER):
    cases = drawn()
    for (owners, ranks, message), theirs in zip(cases, node.run(STEPS, cases, folder), strict=True):
        columns = [np.flatnonzero(np.array(owners) == rank) for rank in range(ranks)]
        pairs = pairs_of(columns, True)
        sizes = [len(places) for places in columns]
        assert theirs["pairs"] == pairs.tolist()
        assert theirs["lengths"] == lengths(pairs, sizes, message)
        assert theirs["balanced"] == pairs.sum() / ranks


@node.needs_node
def test_the_page_counts_as_python_does():
    javascript_agrees()


@node.needs_node
@pytest.mark.parametrize(("right", "wrong"), BUGS, ids=[right for right, _ in BUGS])
def test_a_seeded_bug_counts_otherwise(tmp_path, right, wrong):
    with pytest.raises(AssertionError):
        javascript_agrees(node.broken(tmp_path, "ring_steps.mjs", right, wrong))


@node.needs_node
def test_all_ranks_that_wait_most_are_named():
    said = node.run(
        'const { whoWaits } = await load("ring_steps.mjs"); return data.map(whoWaits);',
        [busy for busy, _ in WAITS],
    )
    assert said == [words for _, words in WAITS]


@node.needs_node
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_the_copied_command_proves_a_ring(tmp_path):
    [command] = node.run(
        'const { ringCommand } = await load("ring_steps.mjs"); return data.map(ringCommand);', [2]
    )
    done = node.pasted(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PROVED: all ranks equal the serial run" in done.stdout
