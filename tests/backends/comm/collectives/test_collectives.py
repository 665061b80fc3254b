"""Laws of backends/comm/collectives/doubling.py, halving.py, hierarchical.py, naive.py, pairwise.py,
ring.py, tree.py and blocks.py: sums are exact on small integers for up to 17 ranks and any size, and
have the same bits on every rank.
"""

from functools import partial, reduce
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import laws
from backends.comm import collectives, run_ranks
from backends.comm.mailboxes import Deadlock
from backends.comm.trace import Traced
from minigrad import lookup
from minigrad.data import shares
from tests.backends.comm.collectives.allreduces import ALLREDUCES, BY_NAME, IN_ORDER
from tests.backends.comm.collectives.collective_laws import LAWS, cases
from tests.backends.lanes import RANKS
from tests.backends.strict import Strict
from tests.bugs.mutant import mutant
from tests.minigrad.ops.op_inputs import arrays, shapes

every_allreduce = pytest.mark.parametrize("name", ALLREDUCES)


def sizes_for(p):
    """Fewer elements than ranks, as many, and more, which p divides or not."""
    return sorted({0, 1, p - 1, p, p + 1, 2 * p, 3 * p - 1})


# The table of names


@pytest.mark.parametrize("name", BY_NAME)
def test_an_allreduce_found_by_name_sums(name):
    for p in (1, 2, 3, 5):
        run_ranks(p, lambda comm: laws.allreduce_sums(collectives.find_allreduce(name), comm, 7))


def test_an_unknown_allreduce_is_refused_with_the_choices():
    with pytest.raises(
        ValueError, match="unknown all-reduce 'star'; choose one of default, .*naive, .*, ring"
    ):
        collectives.find_allreduce("star")


def test_threads_refuse_the_allreduce_of_mpi_with_the_choices():
    with pytest.raises(
        ValueError, match=r"only MPI has .*--transport mpi.* choose another .*: default, naive"
    ):
        run_ranks(2, lambda comm: collectives.own_allreduce(comm, np.ones(3)))


def test_another_package_adds_an_allreduce(monkeypatch):
    star = EntryPoint(
        "star", "backends.comm.collectives.tree:reduce_broadcast_allreduce", "minigrad.allreduces"
    )
    monkeypatch.setattr(lookup, "entry_points", EntryPoints([star]).select)
    assert collectives.find_allreduce("star") is collectives.reduce_broadcast_allreduce
    choices = collectives.ALLREDUCE.choices
    assert choices is not None and [*choices()] == [*collectives.ALLREDUCES, "star", "auto"]


# All-reduce


@every_allreduce
@pytest.mark.parametrize("rendezvous", [False, True], ids=["buffered", "rendezvous"])
def test_allreduce_sums_for_any_ranks_and_sizes(name, rendezvous):
    for p in RANKS:

        def work(comm):
            for n in sizes_for(comm.size):
                laws.allreduce_sums(ALLREDUCES[name], Strict(comm), n)

        run_ranks(p, work, rendezvous=rendezvous)


@every_allreduce
@given(p=st.integers(1, 6), dtype=st.sampled_from(["float32", "float64", "int64"]), data=st.data())
def test_allreduce_takes_any_shape_and_layout(name, p, dtype, data):
    shape = data.draw(shapes())
    xs = [
        data.draw(arrays(shape, lambda rng, s: rng.integers(-9, 9, s))).astype(dtype, order="K")
        for _ in range(p)
    ]
    before = [x.copy() for x in xs]
    for total in run_ranks(p, lambda comm: ALLREDUCES[name](comm, xs[comm.rank])):
        assert isinstance(total, np.ndarray) and total.dtype == dtype
        np.testing.assert_array_equal(total, np.sum(before, axis=0).astype(dtype))
    for x, b in zip(xs, before, strict=True):
        np.testing.assert_array_equal(x, b)


@every_allreduce
def test_images_stay_channels_last(name):
    images = laws.integers((2, 4, 3, 5), 0).transpose(0, 3, 1, 2)
    for total in run_ranks(3, lambda comm: ALLREDUCES[name](comm, images)):
        assert total.strides == images.strides


@every_allreduce
@pytest.mark.parametrize("operator", [np.maximum, np.minimum, np.multiply, np.bitwise_xor])
def test_other_operators(name, operator):
    for p in (1, 2, 5, 8):
        xs = [laws.integers(7, seed, int) % 3 for seed in range(p)]
        for results in run_ranks(p, lambda comm, xs=xs: ALLREDUCES[name](comm, xs[comm.rank], operator)):
            np.testing.assert_array_equal(results, reduce(operator, xs))


def then(f, g):
    """First f, then g, for affine maps t -> a t + b kept as a + bi: associative, not commutative."""
    return f.real * g.real + 1j * (g.real * f.imag + g.imag)


@pytest.mark.parametrize("name", IN_ORDER)
def test_rank_order_is_kept_where_it_is_promised(name):
    for p in RANKS:
        xs = [laws.integers(5, r) % 2 + 1 + 1j * (laws.integers(5, p + r) % 7) for r in range(p)]
        for results in run_ranks(p, lambda comm, xs=xs: IN_ORDER[name](comm, xs[comm.rank], then)):
            np.testing.assert_array_equal(results, reduce(then, xs))


@pytest.mark.parametrize("name", [n for n in IN_ORDER if n != "halving"])
def test_what_is_not_cut_takes_operators_on_whole_arrays(name):
    for p in (1, 3, 6, 8):
        xs = [laws.integers((2, 2), r) % 3 for r in range(p)]
        for results in run_ranks(p, lambda comm, xs=xs: IN_ORDER[name](comm, xs[comm.rank], np.matmul)):
            np.testing.assert_array_equal(results, reduce(np.matmul, xs))


# Floats


def normal(p, n):
    return [np.random.default_rng(r).normal(size=n).astype("float32") for r in range(p)]


@every_allreduce
def test_all_ranks_get_the_same_bits(name):
    for p in RANKS:
        xs = normal(p, 41)
        totals = run_ranks(p, lambda comm, xs=xs: ALLREDUCES[name](comm, xs[comm.rank]))
        assert len({total.tobytes() for total in totals}) == 1, p


@pytest.mark.parametrize("name", ["naive", "gather-broadcast"])
def test_the_naive_ones_give_the_bits_of_the_serial_sum(name):
    for p in RANKS:
        xs = normal(p, 41)
        np.testing.assert_array_equal(
            run_ranks(p, lambda comm, xs=xs: ALLREDUCES[name](comm, xs[comm.rank]))[-1], reduce(np.add, xs)
        )


def test_the_ring_adds_chunk_c_from_rank_c_on():
    for p in RANKS:
        xs = normal(p, 41)
        total = run_ranks(p, lambda comm, xs=xs: collectives.ring_allreduce(comm, xs[comm.rank]))[0]
        for c, share in enumerate(shares(41, p)):
            in_order = [xs[(c + i) % p][share] for i in range(p)]
            np.testing.assert_array_equal(total[share], reduce(np.add, in_order))


@every_allreduce
def test_floats_differ_from_the_serial_sum_by_rounding_only(name):
    # A sum of p terms in any order makes p - 1 additions, each off by a factor 1 + d with |d| <= u = 2^-24:
    # it is within g = (p - 1) u / (1 - (p - 1) u) times sum |x_i| of the exact sum (Higham, Accuracy and
    # Stability, 4.2). Two orders therefore differ by at most twice that.
    for p in RANKS:
        xs = normal(p, 1000)
        g = (p - 1) * 2.0**-24 / (1 - (p - 1) * 2.0**-24)
        allowed = 2 * g * np.sum(np.abs(xs), axis=0, dtype=float)
        total = run_ranks(p, lambda comm, xs=xs: ALLREDUCES[name](comm, xs[comm.rank]))[0]
        assert (np.abs(total.astype(float) - reduce(np.add, xs)) <= allowed).all()


# The collectives that a transport may have of its own, here made of messages


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@given(p=st.integers(1, 6), rendezvous=st.booleans(), case=cases())
def test_those_that_mpi_has_too(law, p, rendezvous, case):
    run_ranks(p, lambda comm: law(Traced(comm), case), rendezvous=rendezvous)


# The others


def roots(p):
    return sorted({0, p // 2, p - 1})


@pytest.mark.parametrize(
    "broadcast", [collectives.naive_broadcast, collectives.broadcast, collectives.scatter_allgather_broadcast]
)
def test_broadcast_brings_the_roots_array(broadcast):
    for p in RANKS:

        def work(comm):
            for root in roots(comm.size):
                for shape in [(), *sizes_for(comm.size), (3, 5), (2, 0)]:
                    x = laws.integers(shape, comm.rank)
                    result = broadcast(Strict(comm), x, root)
                    np.testing.assert_array_equal(result, laws.integers(shape, root))
                    np.testing.assert_array_equal(x, laws.integers(shape, comm.rank))
                    assert comm.rank == root or not np.shares_memory(result, x)

        run_ranks(p, work, rendezvous=p % 2 == 1)


def test_reduce_sums_on_the_root_only():
    for p in RANKS:

        def work(comm):
            for root in roots(comm.size):
                total = collectives.reduce(Strict(comm), laws.integers(4, comm.rank), root=root)
                if comm.rank == root:
                    np.testing.assert_array_equal(total, sum(laws.integers(4, r) for r in range(comm.size)))
                else:
                    assert total is None

        run_ranks(p, work, rendezvous=p % 2 == 1)


def test_reduce_keeps_the_order_counted_from_the_root():
    for p in RANKS:
        xs = [laws.integers(5, r) % 2 + 1 + 1j * (laws.integers(5, p + r) % 7) for r in range(p)]
        for root in roots(p):
            results = run_ranks(p, lambda c, xs=xs, root=root: collectives.reduce(c, xs[c.rank], then, root))
            np.testing.assert_array_equal(results[root], reduce(then, xs[root:] + xs[:root]))


def uneven(p, seed=0):
    """Rows for each rank, 0 to 4."""
    return [int(n) for n in np.random.default_rng(seed).integers(0, 5, p)]


def blocks(sizes, seed=0):
    return [laws.integers((n, 2), seed + r) for r, n in enumerate(sizes)]


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sized", [True, False])
def test_scatter_and_gather_undo_each_other(sized):
    for p in RANKS:
        sizes = uneven(p) if sized else None
        parts = blocks(sizes or [3] * p)

        def work(comm, sizes=sizes, parts=parts):
            for root in roots(comm.size):
                parts_of_root = parts if comm.rank == root else None
                for scatter, gather in (
                    (collectives.scatter, collectives.gather),
                    (
                        partial(collectives.tree_scatter, sizes=sizes),
                        partial(collectives.tree_gather, sizes=sizes),
                    ),
                ):
                    part = scatter(Strict(comm), parts_of_root, root=root)
                    np.testing.assert_array_equal(part, parts[comm.rank])
                    back = gather(Strict(comm), part, root=root)
                    assert_same(back, parts if comm.rank == root else [])

        run_ranks(p, work, rendezvous=p % 2 == 1)


@pytest.mark.parametrize("sized", [True, False])
def test_allgather_brings_everything_to_everyone(sized):
    for p in RANKS:
        sizes = uneven(p) if sized else None
        parts = blocks(sizes or [3] * p)

        def work(comm, sizes=sizes, parts=parts):
            assert_same(collectives.allgather(Strict(comm), parts[comm.rank]), parts)
            assert_same(collectives.doubling_allgather(Strict(comm), parts[comm.rank], sizes), parts)

        run_ranks(p, work, rendezvous=p % 2 == 1)


def test_blocks_may_have_any_shapes_where_no_two_share_a_message():
    parts = [np.array(3.0), np.zeros((0, 2)), np.arange(6).reshape(2, 3).T, np.ones(1, "float32")]

    def work(comm):
        assert_same(collectives.allgather(comm, parts[comm.rank]), parts)
        assert_same(collectives.gather(comm, parts[comm.rank]), [parts, []][comm.rank > 0])
        assert collectives.scatter(comm, parts).dtype == parts[comm.rank].dtype
        assert_same(collectives.alltoall(comm, parts), [parts[comm.rank]] * 4)

    run_ranks(4, work)


def test_numbers_are_gathered_too():
    def work(comm):
        x = np.array(float(comm.rank))
        results = [collectives.allgather(comm, x), collectives.doubling_allgather(comm, x)]
        results += [collectives.tree_gather(comm, x) or results[0]]
        assert all(isinstance(y, np.ndarray) and y.shape == () for ys in results for y in ys)
        return [[float(y) for y in ys] for ys in results]

    for p in (1, 2, 3, 5):
        assert run_ranks(p, work) == [[list(range(p))] * 3] * p


def test_reduce_scatter_leaves_each_rank_its_part_of_the_sum():
    for p in RANKS:
        sizes = uneven(p, 1)

        def work(comm, sizes=sizes):
            mine = blocks(sizes, 100 * comm.rank)
            part = collectives.reduce_scatter(Strict(comm), mine)
            expected = sum(blocks(sizes, 100 * r)[comm.rank] for r in range(comm.size))
            np.testing.assert_array_equal(part, expected)
            assert_same(mine, blocks(sizes, 100 * comm.rank))
            assert not any(np.shares_memory(part, x) for x in mine)

        run_ranks(p, work, rendezvous=p % 2 == 1)


def test_all_to_all_is_a_transpose():
    for p in RANKS:

        def work(comm):
            result = collectives.alltoall(Strict(comm), [np.full(to, comm.rank) for to in range(comm.size)])
            assert_same(result, [np.full(comm.rank, source) for source in range(comm.size)])

        run_ranks(p, work, rendezvous=p % 2 == 1)


def test_nobody_leaves_a_barrier_before_all_have_come():
    for p in RANKS:
        for seed in range(3):
            come = []

            def work(comm, come=come):
                come.append(comm.rank)
                collectives.barrier(comm)
                assert len(come) == comm.size

            run_ranks(p, work, seed=seed)


def test_collectives_leave_a_programs_messages_alone():
    def work(comm):
        comm.send(np.array(comm.rank), (comm.rank + 1) % comm.size)
        for allreduce in ALLREDUCES.values():
            allreduce(comm, np.ones(5))
        collectives.broadcast(comm, np.ones(3))
        return int(comm.recv((comm.rank - 1) % comm.size))

    assert run_ranks(3, work) == [2, 0, 1]


# Mistakes


@every_allreduce
def test_shapes_that_differ_are_refused_naming_both_sides(name):
    with pytest.raises(
        ValueError, match=r"rank \d sent float64\(.*\) with tag \d+, rank \d expected float64\("
    ):
        run_ranks(4, lambda comm: ALLREDUCES[name](comm, np.ones(8 if comm.rank == 2 else 1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: collectives.scatter(c, [np.ones(1)]), "a scatter among 3 ranks needs 3 parts, got 1"),
        (lambda c: collectives.tree_scatter(c, None), "a scatter among 3 ranks needs 3 parts, got 0"),
        (
            lambda c: collectives.alltoall(c, [np.ones(1)] * 4),
            "an all-to-all among 3 ranks needs 3 parts, got 4",
        ),
        (lambda c: collectives.reduce_scatter(c, []), "a reduce-scatter among 3 ranks needs 3 parts, got 0"),
        (lambda c: collectives.broadcast(c, np.ones(1), root=3), "rank 3 does not exist"),
        (lambda c: collectives.gather(c, np.ones(1), root=-1), "rank -1 does not exist"),
        (
            lambda c: collectives.doubling_allgather(c, np.ones(2), [1, 2, 3]),
            r"blocks of \[2\] rows were announced as \[[13]\] rows",
        ),
        (
            lambda c: collectives.hierarchical_allreduce(c, np.ones(1), nodes=[0, 1]),
            "2 nodes were passed for 3 ranks; pass the number of each rank's node",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(3, call)


# Bugs: each turns the law red.

PACKAGE = "backends.comm.collectives."
BUGS = {
    "ring: chunks off by one in the reduction": (
        *("ring", "ring_allreduce"),
        ("mine = pieces[(own - 2 - t) % p]", "mine = pieces[(own - 1 - t) % p]"),
    ),
    "ring: a rank thinks that it owns another chunk": (
        *("ring", "ring_allreduce"),
        ("own = (comm.rank + 1) % comm.size", "own = comm.rank"),
        ("pieces[own] = reduce_around(comm, pieces, own, operator)",
         "pieces[own] = reduce_around(comm, pieces, own + 1, operator)"),
    ),
    "ring: one step too few": (
        *("ring", "ring_allreduce"),
        ("    total = pieces[(own - 1) % p]\n    for t in range(p - 1):",
         "    total = pieces[(own - 1) % p]\n    for t in range(p - 2):"),
    ),
    "ring: an array is changed while it is sent": (
        *("ring", "ring_allreduce"),
        ("        received = send_recv(comm, total, after, before, Tag.RING_REDUCE, expect=mine)\n",
         "        finish = comm.start_send(total, after, Tag.RING_REDUCE)\n"
         "        received = comm.recv(before, Tag.RING_REDUCE)\n"
         "        if t:\n"
         "            total += 1\n"
         "        finish()\n"),
    ),
    "ring: both directions go to the rank after": (
        *("ring", "ring_allreduce"),
        ("send_recv(comm, sent, after, before, Tag.RING_GATHER)",
         "send_recv(comm, sent, before, after, Tag.RING_GATHER)"),
    ),
    "ring: sent with one tag, received with another": (
        *("ring", "ring_allreduce"),
        ("pieces[(own - t - 1) % p] = send_recv(comm, sent, after, before, Tag.RING_GATHER)",
         "comm.send(sent, after, Tag.RING_REDUCE)\n"
         "        pieces[(own - t - 1) % p] = comm.recv(before, Tag.RING_GATHER)"),
    ),
    "ring: chunk sizes rounded down": (
        *("blocks", "chunks"),
        ("return [flat[share] for share in shares(flat.size, parts)]",
         "return [flat[i * (flat.size // parts) : (i + 1) * (flat.size // parts)] for i in range(parts)]"),
    ),
    "tree: the last rank is dropped": (
        *("tree", "reduce_broadcast_allreduce"),
        ("for n in range(number, end)]", "for n in range(number, end) if n + 1 < comm.size or n == number]"),
    ),
    "tree: a child's sum is replaced, not added": (
        *("tree", "reduce_broadcast_allreduce"),
        ("combine(comm, operator, total, comm.recv(", "combine(comm, operator, x, comm.recv("),
    ),
    "doubling: the wrong neighbour": (
        *("doubling", "doubling_allreduce"),
        ("number ^ 1 << i for i", "number ^ 1 for i"),
    ),
    "doubling: the rank spoken for is forgotten": (
        *("doubling", "doubling_allreduce"),
        ("total = combine(comm, operator, comm.recv(comm.rank - 1, Tag.FOLD, expect=x), total)",
         "comm.recv(comm.rank - 1, Tag.FOLD, expect=x)"),
    ),
    "Rabenseifner: the halves change places": (
        *("halving", "rabenseifner_allreduce"),
        ("concatenate([other, mine] if upper else [mine, other])", "concatenate([mine, other])"),
    ),
    "Rabenseifner: halves rounded up by one and down by the other": (
        *("halving", "rabenseifner_allreduce"),
        ("halves = x[: x.size // 2], x[x.size // 2 :]",
         "cut = (x.size + comm.rank % 2) // 2\n    halves = x[:cut], x[cut:]"),
    ),
    "hierarchical: the last ranks of the nodes speak for them": (
        *("hierarchical", "hierarchical_allreduce"),
        ("nodes[rank] not in nodes[:rank]", "nodes[rank] not in nodes[rank + 1 :]"),
    ),
    "hierarchical: what a node has added up is dropped": (
        *("hierarchical", "hierarchical_allreduce"),
        ("total = between(comm.subgroup(leaders), total, operator)",
         "total = between(comm.subgroup(leaders), x, operator)"),
    ),
    "naive: the input is changed": (
        *("naive", "naive_allreduce"),
        ("if not others else fold(lambda a, b: combine(comm, operator, a, b), parts)",
         "if not others else fold(lambda a, b: a.__iadd__(b), parts)"),
    ),
    "a single rank gets its own array back": (
        *("doubling", "doubling_allreduce"),
        ("return copy_of(x) if total is x else total", "return total"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_sees_the_bug(bug):
    module, name, *changes = BUGS[bug]
    broken = mutant(PACKAGE + module, *changes)
    if module == "blocks":
        ring = mutant(PACKAGE + "ring")
        ring.__dict__["chunks"] = broken.chunks
        broken, name = ring, "ring_allreduce"

    def check(comm):
        for n in (1, 7, 12):
            laws.allreduce_sums(getattr(broken, name), Strict(comm), n)

    with pytest.raises((AssertionError, ValueError, Deadlock)):
        for p in (1, 3, 4, 6):
            run_ranks(p, check)
