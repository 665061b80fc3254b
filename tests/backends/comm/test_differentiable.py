"""Laws of backends/comm/differentiable.py: each op is what it says, and its pullback is its
adjoint, for any shards and ranks.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import laws
from backends.comm import differentiable, run_ranks
from minigrad import Tape, Tensor
from tests.backends.comm.sending_laws import is_adjoint
from tests.bugs.mutant import mutant


@st.composite
def worlds(draw):
    """A number of ranks, a root, an axis, and how the length along it is shared: uneven, empty shares too."""
    p = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(0, 3), min_size=p, max_size=p))
    return (
        p,
        draw(st.integers(0, p - 1)),
        draw(st.sampled_from([0, 1, -1])),
        sizes,
        draw(st.integers(0, 2**16)),
    )


def shape(n, axis):
    return (n, 2) if axis == 0 else (2, n)


SETTINGS = {
    "fan_out": lambda comm, root, axis, sizes: {},
    "fan_in": lambda comm, root, axis, sizes: {},
    "all_reduce": lambda comm, root, axis, sizes: {},
    "broadcast": lambda comm, root, axis, sizes: {"root": root},
    "sum_to": lambda comm, root, axis, sizes: {"root": root},
    "scatter": lambda comm, root, axis, sizes: {"root": root, "axis": axis, "sizes": sizes},
    "gather": lambda comm, root, axis, sizes: {"root": root, "axis": axis},
    "all_gather": lambda comm, root, axis, sizes: {"axis": axis},
    "reduce_scatter": lambda comm, root, axis, sizes: {"axis": axis, "sizes": sizes},
    "all_to_all": lambda comm, root, axis, sizes: {"axis": axis, "sizes": sizes},
    "share_out": lambda comm, root, axis, sizes: {"axis": axis, "sizes": sizes},
    "join_in": lambda comm, root, axis, sizes: {"axis": axis},
}  # fmt: skip
REPLICATED = {
    "fan_out": {"replicated_in": True},
    "share_out": {"replicated_in": True},
    "fan_in": {"replicated_out": True},
    "join_in": {"replicated_out": True},
}
WHOLE = {*SETTINGS} - {"gather", "all_gather", "join_in"}  # ops on an array of one shape on all ranks


def obeys(module, name, world, **forced):
    p, root, axis, sizes, seed = world

    def work(comm):
        given_settings = SETTINGS[name](comm, root, axis, sizes)
        length = sum(sizes) if name in WHOLE else sizes[comm.rank]
        replicated = REPLICATED.get(name, {}) | forced
        mine = seed if replicated.get("replicated_in") else seed + 1000 + comm.rank
        x = laws.integers(shape(length, axis), mine)
        before = x.copy()
        op = getattr(module, name)
        is_adjoint(lambda t: op(t, comm=comm, **given_settings), comm, x, seed=seed, **replicated)
        np.testing.assert_array_equal(x, before)

    run_ranks(p, work, rendezvous=seed % 2 == 1)


@pytest.mark.parametrize("name", SETTINGS)
@given(world=worlds())
def test_the_pullback_is_the_adjoint(name, world):
    obeys(differentiable, name, world)


@given(world=worlds())
def test_all_to_all_from_one_axis_to_another(world):
    p, _, _, rows, seed = world
    columns = np.random.default_rng(seed).integers(0, 4, p).tolist()

    def work(comm):
        x = laws.integers((rows[comm.rank], sum(columns)), seed + comm.rank)
        swap = lambda t: differentiable.all_to_all(t, comm=comm, axis=1, to_axis=0, sizes=columns)  # noqa: E731
        whole = np.concatenate([laws.integers((n, sum(columns)), seed + r) for r, n in enumerate(rows)])
        first = sum(columns[: comm.rank])
        mine = whole[:, first : first + columns[comm.rank]]
        np.testing.assert_array_equal(swap(x).data, mine)
        is_adjoint(swap, comm, x, seed=seed)

    run_ranks(p, work)


@given(world=worlds())
def test_send_and_receive_are_adjoint(world):
    p, root, axis, sizes, seed = world

    def work(comm):
        target = (root + 1) % comm.size

        def op(x):
            if comm.rank == root:
                sent = differentiable.send(x, comm=comm, to=target)
                return differentiable.receive(sent, comm=comm, source=root) if target == root else sent
            return differentiable.receive(x, comm=comm, source=root) if comm.rank == target else x * 0

        x = laws.integers(shape(sum(sizes), axis) if comm.rank == root else (), seed + comm.rank)
        is_adjoint(op, comm, x, seed=seed)

    run_ranks(p, work)


# What they compute


def values(op, p, inputs, **settings):
    return [t.data for t in run_ranks(p, lambda comm: op(Tensor(inputs[comm.rank]), comm=comm, **settings))]


def test_forward_is_what_the_name_says():
    xs = [laws.integers((4, 3), r) for r in range(3)]
    total, whole = np.sum(xs, axis=0), np.concatenate(xs, axis=1)
    rows = [slice(0, 1), slice(1, 2), slice(2, 4)]  # as even as they can be
    np.testing.assert_array_equal(values(differentiable.fan_out, 3, xs), xs)
    np.testing.assert_array_equal(values(differentiable.fan_in, 3, xs), [total] * 3)
    np.testing.assert_array_equal(values(differentiable.all_reduce, 3, xs), [total] * 3)
    np.testing.assert_array_equal(values(differentiable.broadcast, 3, xs, root=1), [xs[1]] * 3)
    np.testing.assert_array_equal(values(differentiable.all_gather, 3, xs, axis=1), [whole] * 3)
    np.testing.assert_array_equal(values(differentiable.join_in, 3, xs, axis=1), [whole] * 3)
    for actual, share in zip(values(differentiable.share_out, 3, [total] * 3), rows, strict=True):
        np.testing.assert_array_equal(actual, total[share])
    for actual, share in zip(values(differentiable.scatter, 3, xs, root=2), rows, strict=True):
        np.testing.assert_array_equal(actual, xs[2][share])
    for actual, share in zip(values(differentiable.reduce_scatter, 3, xs), rows, strict=True):
        np.testing.assert_array_equal(actual, total[share])
    for op, expected in ((differentiable.sum_to, total), (differentiable.gather, np.concatenate(xs))):
        actual = values(op, 3, xs, root=1)
        np.testing.assert_array_equal(actual[1], expected)
        assert [actual[0], actual[2]] == [0, 0]
    parts = values(differentiable.all_to_all, 3, xs)
    for actual, share in zip(parts, rows, strict=True):
        np.testing.assert_array_equal(actual, np.concatenate([x[share] for x in xs]))


def test_a_loss_after_fan_in_is_that_of_one_machine():
    """A row-parallel product behind a column-parallel one: one fan_out, one fan_in, serial gradients."""
    x, w, v = laws.integers((5, 4), 0) % 5, laws.integers((4, 6), 1) % 5, laws.integers((6, 3), 2) % 5
    whole = [Tensor(a, requires_grad=True) for a in (x, w, v)]
    with Tape() as tape:
        loss = (((whole[0] @ whole[1]) @ whole[2]) ** 2).sum()
    tape.backward(loss)
    dx, dw, dv = (np.asarray(t.grad) for t in whole)

    def work(comm):
        mine = slice(2 * comm.rank, 2 * comm.rank + 2)
        parts = [Tensor(a, requires_grad=True) for a in (x, w[:, mine], v[mine])]
        with Tape() as tape:
            hidden = differentiable.fan_out(parts[0], comm=comm) @ parts[1]
            out = differentiable.fan_in(hidden @ parts[2], comm=comm)
            actual = (out**2).sum()
        tape.backward(actual)
        assert actual.data == loss.data
        for part, expected in zip(parts, (dx, dw[:, mine], dv[mine]), strict=True):
            np.testing.assert_array_equal(part.grad, expected)

    run_ranks(3, work)


def test_what_a_rank_sends_away_is_its_loss():
    """Two stages of a pipeline: the first calls backward on the token, and waits for the gradient."""
    x = laws.integers((2, 3), 0)

    def work(comm):
        leaf = Tensor(x if comm.rank == 0 else np.zeros(()), requires_grad=True)
        with Tape() as tape:
            if comm.rank == 0:
                loss = differentiable.send(leaf * 3, comm=comm, to=1)
            else:
                loss = (differentiable.receive(leaf, comm=comm, source=0) ** 2).sum()
        tape.backward(loss)
        return leaf.grad

    first, second = run_ranks(2, work, rendezvous=True)
    np.testing.assert_array_equal(first, 2 * 9 * x)
    assert second == 0


def test_nothing_is_held_for_backward():
    def work(comm):
        with Tape() as tape:
            x = Tensor(np.ones((3, 2)), requires_grad=True) * 1
            before = tape.nbytes
            for name in ("fan_out", "fan_in", "all_reduce", "broadcast", "all_gather", "reduce_scatter"):
                getattr(differentiable, name)(x, comm=comm)
            assert tape.nbytes == before

    run_ranks(2, work)


def test_parts_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match=r"parts of \[1, 1\] do not make the 3 of axis 0 of \(3,\)"):
        run_ranks(2, lambda comm: differentiable.reduce_scatter(np.ones(3), comm=comm, sizes=[1, 1]))


# Bugs: each turns the law red.

BUGS = {
    "fan_out forgets to sum": (
        "fan_out", ("return x, (lambda g: collectives.allreduce(comm, g),)", "return x, (lambda g: g,)"),
    ),
    "fan_in sums twice": (
        "fan_in",
        ("return collectives.allreduce(comm, x), (lambda g: g,)",
         "return collectives.allreduce(comm, x), (lambda g: collectives.allreduce(comm, g),)"),
    ),
    "all_reduce is fan_in": (
        "all_reduce",
        ("return collectives.allreduce(comm, x), (lambda g: collectives.allreduce(comm, g),)",
         "return collectives.allreduce(comm, x), (lambda g: g,)"),
    ),
    "the root of a broadcast takes its own gradient only": (
        "broadcast",
        ("total = collectives.reduce(comm, g, root=root)",
         "total = g if collectives.reduce(comm, g, root=root) is not None else None"),
    ),
    "a broadcast's gradient stays on the other ranks": (
        "broadcast", ("return zeros(g) if total is None else total", "return g if total is None else total"),
    ),
    "sum_to keeps the gradient on the root": (
        "sum_to",
        ("(lambda g: collectives.broadcast(comm, g, root),)",
         "(lambda g: g if comm.rank == root else array_module(g).zeros(x.shape),)"),
    ),
    "all_gather takes its own slice only": (
        "all_gather",
        ("collectives.reduce_scatter(comm, cut(g, axis, sizes)),)", "cut(g, axis, sizes)[comm.rank],)"),
    ),
    "join_in is all_gather": (
        "join_in", ("cut(g, axis, sizes)[rank],)", "collectives.reduce_scatter(comm, cut(g, axis, sizes)),)"),
    ),
    "share_out pads its own gradient": (
        "share_out",
        ("    return part, (lambda g: concatenate(collectives.allgather(comm, g), axis),)\n\n\n@typed_op\n"
         "def join_in",
         "    return part, (lambda g: concatenate([q * (r == comm.rank) for r, q in"
         " enumerate(collectives.allgather(comm, g))], axis),)\n\n\n@typed_op\ndef join_in"),
    ),
    "gather cuts evenly": (
        "gather",
        ("cut(g, axis, sizes) if sizes else None",
         "cut(g, axis, even(g.shape[axis], comm)) if sizes else None"),
    ),
    "scatter joins in the wrong order": (
        "scatter", ("return concatenate(gs, axis) if gs", "return concatenate(gs[::-1], axis) if gs"),
    ),
    "all_to_all does not go back": (
        "all_to_all",
        ("lambda g: concatenate(collectives.alltoall(comm, cut(g, joint, lengths)), axis)", "lambda g: g"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_sees_the_bug(bug):
    name, change = BUGS[bug]
    broken = mutant("backends.comm.differentiable", change)
    with pytest.raises((AssertionError, ValueError)):
        obeys(broken, name, (3, 0, 0, [2, 1, 3], 4))


@pytest.mark.parametrize(("name", "taken_for"), [("fan_in", {}), ("all_reduce", {"replicated_out": True})])
def test_the_law_tells_partial_from_replicated(name, taken_for):
    with pytest.raises(AssertionError, match="<F x, y> is"):
        obeys(differentiable, name, (3, 0, 0, [2, 1, 3], 4), **({"replicated_out": False} | taken_for))
