"""Laws of backends/comm/collectives/doubling.py, halving.py, hierarchical.py, naive.py,
pairwise.py, ring.py and tree.py: messages, bytes and seconds of collectives equal the closed
forms, for up to 17 ranks and any size.

An empty chunk is a message of 0 bytes and counts. L = ceil(log2 p), q = 2^l the largest power of two
in p, r = p - q; n bytes on each rank.
"""

from functools import partial

import numpy as np
import pytest
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import collectives, run_ranks
from backends.comm.collectives.link import Link
from minigrad.data import shares
from tests.backends.comm.sending_laws import messages_are
from tests.backends.lanes import RANKS

ITEM = 4  # bytes of a float32


def logs(p):
    """L, l, q, r."""
    low = p.bit_length() - 1
    return (p - 1).bit_length(), low, 1 << low, p - (1 << low)


def even(n, p):
    return [share.stop - share.start for share in shares(n, p)]


def sizes_for(p):
    return sorted({0, 1, p - 1, p, p + 1, 2 * p, 3 * p - 1, 16 * p})


def children(k, p):
    """The subtrees below rank k of the binomial tree with root 0: (first rank, one past the last)."""
    span = k & -k or 1 << logs(p)[0]
    spans = [1 << i for i in range(span.bit_length() - 1)]
    return [(k + s, min(k + 2 * s, p)) for s in spans if k + s < p]


def folded(p, k):
    """MPICH's fold: "spoken for", "speaker" or "alone"."""
    r = logs(p)[3]
    return "alone" if k >= 2 * r else "speaker" if k % 2 else "spoken for"


# Each gives what rank k of p sends, (messages, elements), for n elements; totals are below.


def naive(p, n, k):
    return p - 1, (p - 1) * n


def gather_and_broadcast(p, n, k):
    return (p - 1, (p - 1) * n) if k == 0 else (1, n)


def tree_broadcast(p, n, k):
    return len(children(k, p)), len(children(k, p)) * n


def tree_reduce(p, n, k):
    return (0, 0) if k == 0 else (1, n)


def reduce_and_broadcast(p, n, k):
    (a, b), (c, d) = tree_reduce(p, n, k), tree_broadcast(p, n, k)
    return a + c, b + d


def ring(p, n, k):
    c = even(n, p)
    return 2 * (p - 1), 2 * n - c[(k + 1) % p] - c[(k + 2) % p] if p > 1 else 0


def ring_reduce_scatter(p, n, k):
    return p - 1, n - even(n, p)[k]


def ring_allgather(p, n, k):
    return p - 1, n - even(n, p)[(k + 1) % p]


def doubling(p, n, k):
    low = logs(p)[1]
    messages = {"spoken for": 1, "speaker": low + 1, "alone": low}[folded(p, k)]
    return messages, messages * n


def rabenseifner(p, n, k):
    _, low, _, r = logs(p)
    number = k // 2 if k < 2 * r else k - r
    swapped, length = 0, n  # at each halving a rank gives one half, and later sends the other back
    for i in range(low):
        swapped += length
        length = length - length // 2 if number >> i & 1 else length // 2
    return {"spoken for": (1, n), "speaker": (2 * low + 1, swapped + n), "alone": (2 * low, swapped)}[
        folded(p, k)
    ]


def tree_scatter(p, n, k):
    c = even(n, p)
    return len(children(k, p)), sum(sum(c[a:b]) for a, b in children(k, p))


def tree_gather(p, n, k):
    span = k & -k
    return (1, sum(even(n, p)[k : k + span])) if k else (0, 0)


def long_broadcast(p, n, k):
    (a, b), (c, d) = tree_scatter(p, n, k), ring_allgather(p, n, k)
    return a + c, b + d


def doubling_allgather(p, n, k):
    _, low, _, r = logs(p)
    c = even(n, p)
    if folded(p, k) == "spoken for":
        return 1, c[k]
    number = k // 2 if k < 2 * r else k - r
    sizes = [sum(c[2 * i : 2 * i + 2]) if i < r else c[i + r] for i in range(1 << low)]
    groups = [sizes[(number >> i) << i : ((number >> i) + 1) << i] for i in range(low)]
    paired = folded(p, k) == "speaker"
    return low + paired, sum(map(sum, groups)) + paired * n


def one_way(p, n, k):
    return (0, 0) if k else (p - 1, n - even(n, p)[0])


def other_way(p, n, k):
    return (1, even(n, p)[k]) if k else (0, 0)


def all_to_all(p, n, k):
    return p - 1, n - even(n, p)[k]


def dissemination(p, n, k):
    return logs(p)[0], 0


def hierarchical(per_node, p, n, k):
    """Reduce in a node, ring between the first ranks of the nodes, broadcast in the node."""
    node, place = divmod(k, per_node)
    nodes, here = -(-p // per_node), min(per_node, p - node * per_node)
    messages, sent = reduce_and_broadcast(here, n, place)
    among = ring(nodes, n, node) if place == 0 else (0, 0)
    return messages + among[0], sent + among[1]


def vector(collective):
    return lambda comm, n: collective(comm, np.zeros(n, "float32"))


def share(collective, sized=True):
    def call(comm, n):
        mine = np.zeros(even(n, comm.size)[comm.rank], "float32")
        return collective(comm, mine, sizes=even(n, comm.size)) if sized else collective(comm, mine)

    return call


def cut(collective, sized=False):
    def call(comm, n):
        parts = [np.zeros(m, "float32") for m in even(n, comm.size)]
        return collective(comm, parts, sizes=even(n, comm.size)) if sized else collective(comm, parts)

    return call


def in_nodes(per_node, comm, n):
    nodes = [rank // per_node for rank in range(comm.size)]
    collectives.hierarchical_allreduce(comm, np.zeros(n, "float32"), nodes=nodes)


def everything(p, n):
    return 2 * (p - 1) * n


# name: (call, per rank, messages in all, elements in all); None where only the ranks' sum is known
CASES = {
    "naive": (
        vector(collectives.naive_allreduce), naive, lambda p: p * (p - 1), lambda p, n: p * (p - 1) * n,
    ),
    "gather-broadcast": (
        vector(collectives.gather_broadcast_allreduce), gather_and_broadcast,
        lambda p: 2 * (p - 1), everything,
    ),
    "tree": (
        vector(collectives.reduce_broadcast_allreduce), reduce_and_broadcast,
        lambda p: 2 * (p - 1), everything,
    ),
    "ring": (vector(collectives.ring_allreduce), ring, lambda p: 2 * p * (p - 1), everything),
    "doubling": (
        vector(collectives.doubling_allreduce), doubling,
        lambda p: 2 * logs(p)[3] + logs(p)[2] * logs(p)[1],
        lambda p, n: n * (2 * logs(p)[3] + logs(p)[2] * logs(p)[1]),
    ),
    "halving": (
        vector(collectives.rabenseifner_allreduce), rabenseifner,
        lambda p: 2 * logs(p)[3] + 2 * logs(p)[2] * logs(p)[1], everything,
    ),
    "hierarchical": (
        partial(in_nodes, 4), partial(hierarchical, 4),
        lambda p: 2 * (p - -(-p // 4)) + 2 * -(-p // 4) * (-(-p // 4) - 1), everything,
    ),
    "broadcast": (vector(collectives.broadcast), tree_broadcast, lambda p: p - 1, lambda p, n: (p - 1) * n),
    "naive broadcast": (
        vector(collectives.naive_broadcast), lambda p, n, k: (0, 0) if k else (p - 1, (p - 1) * n),
        lambda p: p - 1, lambda p, n: (p - 1) * n,
    ),
    "scatter and all-gather": (
        vector(collectives.scatter_allgather_broadcast), long_broadcast, lambda p: (p - 1) * (p + 1), None,
    ),
    "reduce": (vector(collectives.reduce), tree_reduce, lambda p: p - 1, lambda p, n: (p - 1) * n),
    "reduce-scatter": (
        cut(collectives.reduce_scatter), ring_reduce_scatter, lambda p: p * (p - 1), lambda p, n: (p - 1) * n,
    ),
    "all-gather": (
        share(collectives.allgather, sized=False), ring_allgather,
        lambda p: p * (p - 1), lambda p, n: (p - 1) * n,
    ),
    "doubling all-gather": (
        share(collectives.doubling_allgather), doubling_allgather,
        lambda p: 2 * logs(p)[3] + logs(p)[2] * logs(p)[1], None,
    ),
    "scatter": (cut(collectives.scatter), one_way, lambda p: p - 1, lambda p, n: n - even(n, p)[0]),
    "gather": (
        share(collectives.gather, sized=False), other_way, lambda p: p - 1, lambda p, n: n - even(n, p)[0],
    ),
    "tree scatter": (cut(collectives.tree_scatter, sized=True), tree_scatter, lambda p: p - 1, None),
    "tree gather": (share(collectives.tree_gather), tree_gather, lambda p: p - 1, None),
    "all-to-all": (cut(collectives.alltoall), all_to_all, lambda p: p * (p - 1), lambda p, n: (p - 1) * n),
    "barrier": (
        lambda comm, n: collectives.barrier(comm), dissemination, lambda p: p * logs(p)[0], lambda p, n: 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in collectives.ALLREDUCES if name not in ("default", "mpi")])
def test_every_allreduce_has_a_closed_form(name):
    assert name in CASES, f"CASES needs the messages and elements of {name!r}"


@pytest.mark.parametrize("name", CASES)
def test_messages_and_bytes_are_the_closed_forms(name):
    call, per_rank, messages, elements = CASES[name]
    for p in RANKS:

        def work(comm):
            for n in sizes_for(comm.size):
                sent, size = per_rank(comm.size, n, comm.rank)
                messages_are(lambda c, n=n: call(c, n), comm, sent, size * ITEM)

        run_ranks(p, work)
        for n in sizes_for(p):
            totals = np.sum([per_rank(p, n, k) for k in range(p)], axis=0)
            assert totals[0] == messages(p)
            assert elements is None or totals[1] == elements(p, n)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_closed_forms_for_a_power_of_two(p):
    n, low = 16 * p, logs(p)[1]
    assert all(ring(p, n, k)[1] == 2 * n * (p - 1) / p for k in range(p))
    assert all(rabenseifner(p, n, k) == (2 * low, 2 * n * (p - 1) / p) for k in range(p))
    assert all(doubling_allgather(p, n, k) == (low, n * (p - 1) / p) for k in range(p))
    for form in (tree_scatter, tree_gather):
        assert sum(form(p, n, k)[1] for k in range(p)) == n / 2 * low


def wastes_a_message(comm, n):
    collectives.ring_allreduce(comm, np.zeros(n, "float32"))
    collectives.barrier(comm)


def skips_empty_chunks(comm, n):
    if n:
        collectives.ring_allreduce(comm, np.zeros(n, "float32"))


def sends_everything_round(comm, n):
    collectives.allgather(comm, np.zeros(n, "float32"))
    collectives.allgather(comm, np.zeros(0, "float32"))


@pytest.mark.parametrize("broken", [wastes_a_message, skips_empty_chunks, sends_everything_round])
def test_the_law_sees_a_message_too_many_and_bytes_too_many(broken):
    def work(comm):
        for n in (0, 9):
            sent, size = ring(comm.size, n, comm.rank)
            messages_are(lambda c, n=n: broken(c, n), comm, sent, size * ITEM)

    with pytest.raises(AssertionError, match=r"sent \(messages, bytes\)"):
        run_ranks(3, work)


# Seconds: alpha per message, beta per byte, gamma per byte reduced, both directions of a link at once.

ALPHA, BETA, GAMMA = 2.0**-10, 2.0**-20, 2.0**-22


def seconds(call, p, n):
    cluster = VirtualCluster(p, Link(ALPHA, 1 / BETA), reduction=GAMMA)
    cluster.run(lambda comm: call(comm, n // ITEM))
    return cluster.seconds


def ring_seconds(p, n, rounds, reducing):
    return rounds * (p - 1) * ALPHA + n * (p - 1) / p * (rounds * BETA + reducing * GAMMA)


TIMES = {
    "ring": lambda p, n: ring_seconds(p, n, 2, True),
    "halving": lambda p, n: 2 * logs(p)[0] * ALPHA + n * (p - 1) / p * (2 * BETA + GAMMA),
    "doubling": lambda p, n: logs(p)[0] * (ALPHA + n * BETA + n * GAMMA),
    "tree": lambda p, n: 2 * logs(p)[0] * (ALPHA + n * BETA) + logs(p)[0] * n * GAMMA,
    "broadcast": lambda p, n: logs(p)[0] * (ALPHA + n * BETA),
    "reduce": lambda p, n: logs(p)[0] * (ALPHA + n * BETA + n * GAMMA),
    "reduce-scatter": lambda p, n: ring_seconds(p, n, 1, True),
    "all-gather": lambda p, n: ring_seconds(p, n, 1, False),
    "doubling all-gather": lambda p, n: logs(p)[0] * ALPHA + n * (p - 1) / p * BETA,
    "tree scatter": lambda p, n: logs(p)[0] * ALPHA + n * (p - 1) / p * BETA,
    "tree gather": lambda p, n: logs(p)[0] * ALPHA + n * (p - 1) / p * BETA,
    "scatter and all-gather": lambda p, n: (logs(p)[0] + p - 1) * ALPHA + 2 * n * (p - 1) / p * BETA,
    "all-to-all": lambda p, n: (p - 1) * (ALPHA + n / p * BETA),
    "barrier": lambda p, n: logs(p)[0] * ALPHA,
}
ANY_RANKS = ("ring", "reduce-scatter", "all-gather", "all-to-all", "barrier")


@pytest.mark.parametrize("name", TIMES)
def test_seconds_are_the_closed_forms(name):
    for p in range(1, 10) if name in ANY_RANKS else (1, 2, 4, 8, 16):
        n = 64 * p * ITEM
        assert seconds(CASES[name][0], p, n) == pytest.approx(TIMES[name](p, n), rel=1e-12), p


def test_small_arrays_want_few_messages_and_large_ones_few_bytes():
    p = 8
    crossover = (
        logs(p)[0] * ALPHA / (BETA * (logs(p)[0] - 2 * (p - 1) / p) + GAMMA * (logs(p)[0] - (p - 1) / p))
    )
    for n, first, second in (
        (int(crossover / 2) // 32 * 32, "doubling", "halving"),
        (int(crossover * 2) // 32 * 32, "halving", "doubling"),
    ):
        assert seconds(CASES[first][0], p, n) < seconds(CASES[second][0], p, n)
