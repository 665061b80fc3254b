"""Laws of lessons/minigrad_course/explorables/allreduce_record.py: the all-reduce player shows what our
code did, its messages, the closed forms, and what a loss leads to.
"""

import pytest
from minigrad_course.explorables.allreduce_record import FORMULAS, SIZES, allreduce_data, recorded, value

from tests.minigrad_course.explorables import node

HOLDINGS = """
    const { atFirst, holdingsByRound } = await load("holdings.mjs");
    return data.map(([size, ...run]) => [atFirst(size), ...holdingsByRound(size, ...run)]);
"""
BUGS = [
    ("2 ** rank", "1"),
    ("own | ranks", "ranks"),
    ("(own & ranks) === own ? ranks : own", "own"),
    ("m[2] === round", "m[2] > round"),
    ("next[destination][part] = own", "next[0][part] = own"),
    ("round < rounds", "round < rounds - 1"),
]


@pytest.fixture(scope="module")
def data():
    return allreduce_data()


def runs(data):
    return [(*key.split(","), run) for key, run in data["runs"].items()]


def test_recording_again_gives_the_same(data):
    for name, size, run in runs(data):
        if int(size) == SIZES[0]:
            assert recorded(name, int(size)) == run


def test_messages_bytes_and_rounds_are_the_closed_forms(data):
    for _, size, run in runs(data):
        p, messages = int(size), run["messages"]
        assert len(messages) == run["formula"]["messages"][1]
        assert sum(nbytes for *_, nbytes, _ in messages) == run["formula"]["sent"][1]
        assert run["rounds"] == run["formula"]["rounds"][1]
        for rank, sent in enumerate(run["sent"]):  # the ledgers of ``Traced``
            mine = [nbytes for source, *_, nbytes, _ in messages if source == rank]
            assert sent == [len(mine), sum(mine)]
        assert run["sums"] == [[2**p - 1] * p] * p


def test_a_formula_is_read_as_it_is_written():
    assert value("2 p (p - 1) n", {"p": 4, "n": 3, "L": 2}) == 72
    assert {name: value(f.messages, {"p": 4, "n": 1, "L": 2}) for name, f in FORMULAS.items()} == {
        "naive": 12, "gather-broadcast": 6, "tree": 6, "doubling": 8, "ring": 24, "halving": 16
    }  # fmt: skip


def test_without_a_message_ranks_wait_and_with_zeros_a_sum_is_wrong(data):
    for name, size, run in runs(data):
        p = int(size)
        assert len(run["losses"]) == (len(run["messages"]) if p == SIZES[0] else 0)
        for (source, destination, *_, parts), loss in zip(run["messages"], run["losses"], strict=False):
            assert loss["waits"] and all(0 <= rank < p for wait in loss["waits"] for rank in wait)
            assert [destination, source] in loss["waits"], f"{name}: {loss['waits']}"
            lacking = [bits for sums in loss["sums"] for bits in sums if bits != 2**p - 1]
            lost = {bits for _, bits in parts}
            assert any(2**p - 1 - bits in lost or bits == 0 for bits in lacking), f"{name}: {loss}"


def holdings_are_those_of_the_run(data, folder=node.FOLDER):
    """A rank sends what the page says that it holds, or its own numbers, and ends with what it returned."""
    all_runs = runs(data)
    answers = node.run(HOLDINGS, [[int(p), run["messages"], run["rounds"]] for _, p, run in all_runs], folder)
    for (name, _, run), (own, *holdings) in zip(all_runs, answers, strict=True):
        assert len(holdings) == run["rounds"] + 1 and holdings[0] == own
        for source, _, at, _, parts in run["messages"]:
            for part, bits in parts:
                assert bits in (holdings[at][source][part], own[source][part]), (
                    f"{name}: rank {source} sends {bits}"
                )
        assert holdings[-1] == run["sums"]


@node.needs_node
def test_the_page_shows_what_the_ranks_held(data):
    holdings_are_those_of_the_run(data)


@node.needs_node
@pytest.mark.parametrize(("right", "wrong"), BUGS, ids=[right for right, _ in BUGS])
def test_a_seeded_bug_shows_something_else(data, tmp_path, right, wrong):
    with pytest.raises(AssertionError):
        holdings_are_those_of_the_run(data, node.broken(tmp_path, "holdings.mjs", right, wrong))
