"""Laws of backends/comm/mailboxes.py and backends/comm/collectives/send_recv.py: each way to write a
deadlock ends at once and names every waiting rank, its tag and its line.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import allreduce, broadcast, gather, run_ranks
from backends.comm.collectives.send_recv import Tag
from backends.comm.mailboxes import Deadlock

X = np.ones(2)
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def both_receive_first(comm):
    comm.recv(1 - comm.rank)
    comm.send(X, 1 - comm.rank)


def tags_differ(comm):
    comm.send(X, 1 - comm.rank, tag=comm.rank)
    comm.recv(1 - comm.rank, tag=comm.rank)


def one_rank_leaves_out_the_collective(comm):
    if comm.rank != 2:
        allreduce(comm, X)


def one_rank_returns_early(comm):
    for step in range(3):
        if comm.rank == 1 and step == 2:
            return
        comm.send(X, (comm.rank + 1) % 2)
        comm.recv((comm.rank + 1) % 2)


def collectives_in_another_order(comm):
    if comm.rank == 0:
        broadcast(comm, X, root=1)
        comm.split(0)
    else:
        comm.split(0)
        broadcast(comm, X, root=1)


def both_send_first(comm):
    comm.send(X, 1 - comm.rank)
    comm.recv(1 - comm.rank)


def a_ring_where_all_receive_first(comm):
    comm.recv((comm.rank - 1) % comm.size)
    comm.send(X, (comm.rank + 1) % comm.size)


def nobody_sends_to_whoever_listens(comm):
    comm.recv_any(tag=4) if comm.rank == 0 else comm.recv(0)


def one_receive_too_many(comm):
    if comm.rank == 0:
        for _ in range(4):
            comm.recv(1, tag=2)
    else:
        for _ in range(3):
            comm.send(X, 0, tag=2)


def a_rank_waits_for_itself(comm):
    comm.recv(comm.rank)


def different_roots(comm):
    gather(comm, X, root=comm.rank)


def a_started_receive_that_nothing_fills(comm):
    finish = comm.start_recv(1 - comm.rank, tag=9)
    finish()


def a_rank_of_another_group(comm):
    half = comm.split(comm.rank // 2)
    half.recv(1 - half.rank, tag=5) if comm.rank < 2 else comm.recv(0, tag=5)


WAYS = [  # program, ranks, rendezvous; for each waiting rank: peer, tag, what stands on its line
    (both_receive_first, 2, False, {0: (1, 0, "recv"), 1: (0, 0, "recv")}),
    (tags_differ, 2, False, {0: (1, 0, "recv"), 1: (0, 1, "recv")}),
    (one_rank_leaves_out_the_collective, 3, False, {r: (2, Tag.NAIVE, "allreduce") for r in (0, 1)}),
    (one_rank_returns_early, 2, False, {0: (1, 0, "recv")}),
    (collectives_in_another_order, 2, False, {0: (1, Tag.BROADCAST, "broadcast"), 1: (None, None, "split")}),
    (both_send_first, 2, True, {0: (1, 0, "send"), 1: (0, 0, "send")}),
    (a_ring_where_all_receive_first, 4, False, {r: ((r - 1) % 4, 0, "recv") for r in range(4)}),
    (nobody_sends_to_whoever_listens, 3, False, {0: (None, 4, "recv_any"), 1: (0, 0, "recv")}),
    (one_receive_too_many, 2, False, {0: (1, 2, "recv")}),
    (a_rank_waits_for_itself, 1, False, {0: (0, 0, "recv")}),
    (different_roots, 2, True, {r: (1 - r, Tag.GATHER, "gather") for r in (0, 1)}),
    (a_started_receive_that_nothing_fills, 2, False, {0: (1, 9, "finish"), 1: (0, 9, "finish")}),
    (a_rank_of_another_group, 4, False, {0: (1, 5, "half.recv"), 2: (0, 5, "comm.recv")}),
]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    ("program", "ranks", "rendezvous", "waits"), WAYS, ids=lambda w: getattr(w, "__name__", "")
)
@pytest.mark.timeout(60)
def test_ends_at_once_and_names_who_waits_where(program, ranks, rendezvous, waits, seed):
    with pytest.raises(Deadlock) as error:
        run_ranks(ranks, program, rendezvous=rendezvous, seed=seed)
    text = str(error.value)
    for rank, (peer, tag, call) in waits.items():
        (line,) = re.findall(rf"^  rank {rank} waits (.*)$", text, re.MULTILINE)
        assert peer is None or f"rank {peer} " in line
        assert tag is None or f"(tag {tag})" in line
        file, number = re.findall(r" at (\S+):(\d+)$", line)[0]
        assert file == Path(__file__).name and call in SOURCE[int(number) - 1]


def test_a_circle_is_drawn():
    with pytest.raises(Deadlock, match=r"circle: 0 -> 2 -> 1 -> 0"):
        run_ranks(3, a_ring_where_all_receive_first)


def test_who_has_returned_is_said():
    with pytest.raises(Deadlock, match="rank 1 has returned"):
        run_ranks(2, one_rank_returns_early)


def test_every_rank_gets_the_same_picture():
    texts = []

    def program(comm):
        try:
            both_receive_first(comm)
        except Deadlock as error:
            texts.append(str(error))
            raise

    with pytest.raises(Deadlock):
        run_ranks(2, program)
    assert len(texts) == 2 and texts[0] == texts[1]


@pytest.mark.timeout(60)
def test_a_virtual_cluster_sees_it_too():
    with pytest.raises(Deadlock, match="rank 0 waits to receive from rank 1"):
        VirtualCluster(2).run(both_receive_first)


messages = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), max_size=25)


@given(messages=messages, rendezvous=st.booleans(), seed=st.none() | st.integers(0, 9))
def test_what_can_finish_does(messages, rendezvous, seed):
    """Messages in one order that all ranks keep never deadlock, whatever the interleaving."""

    def program(comm):
        results = []
        for i, (source, to, tag) in enumerate(messages):
            if comm.rank == source == to:
                finish = comm.start_send(np.array(i), to, tag)
                results.append(int(comm.recv(source, tag)))
                finish()
            elif comm.rank == source:
                comm.send(np.array(i), to, tag)
            elif comm.rank == to:
                results.append(int(comm.recv(source, tag)))
        return results

    results = run_ranks(5, program, rendezvous=rendezvous, seed=seed)
    for rank in range(5):
        assert results[rank] == [i for i, (_, to, _) in enumerate(messages) if to == rank]


def test_a_seed_gives_one_interleaving_and_another_seed_another():
    def order(seed):
        heard = []

        def program(comm):
            if comm.rank:
                for _ in range(5):
                    comm.send(X, 0)
            else:
                heard.extend(comm.recv_any()[0] for _ in range(15))

        run_ranks(4, program, seed=seed)
        return heard

    orders = [order(seed) for seed in range(6)]
    assert orders == [order(seed) for seed in range(6)]
    assert len(set(map(tuple, orders))) > 1


@pytest.mark.parametrize("start", ["start_send", "start_recv"])
def test_a_started_communication_that_is_never_finished_is_reported(start):
    def program(comm):
        if start == "start_send":
            comm.start_send(X, 0, 6)
            comm.recv(0, 6)
        else:
            comm.send(X, 0, 6)
            comm.start_recv(0, 6)

    words = rf"rank 0 never finished the .* rank 0 \(tag 6\) that it started at {Path(__file__).name}:\d+"
    with pytest.raises(RuntimeError, match=words):
        run_ranks(1, program)
