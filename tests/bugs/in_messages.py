"""Bugs of messages, collectives, communication ops; their oracles: sums of integers, adjoints, formulas."""

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends import laws
from backends.comm import collectives, differentiable, run_ranks, wire
from backends.comm.collectives.link import Link
from backends.data_parallel.bucketed import Bucketed
from minigrad import nn
from tests.backends.comm import conformance
from tests.backends.comm.sending_laws import is_adjoint, messages_are
from tests.bugs.bug import Bug

# Laws


def all_reduces_sum_exactly() -> None:
    """For ranks that are and are not powers of two, and fewer elements than ranks."""
    for ranks in (1, 3, 4, 6):
        for name in ("ring", "doubling", "rabenseifner", "reduce_broadcast"):
            allreduce = getattr(collectives, f"{name}_allreduce")
            for n in (2, 7):
                run_ranks(ranks, lambda comm, f=allreduce, n=n: laws.allreduce_sums(f, comm, n))


def operands_stand_in_the_order_of_the_ranks() -> None:
    """Products of matrices, which do not commute."""
    factors = [laws.integers((2, 2), rank) for rank in range(5)]
    for ranks in (4, 5):
        product = np.linalg.multi_dot(factors[:ranks])
        for f in (collectives.doubling_allreduce, collectives.reduce_broadcast_allreduce):
            for results in run_ranks(ranks, lambda comm, f=f: f(comm, factors[comm.rank], np.matmul)):
                assert np.array_equal(results, product), f"the product is {product}, got {results}"


def rings_do_not_wait_for_themselves() -> None:
    run_ranks(3, lambda comm: collectives.ring_allreduce(comm, np.ones(5)), rendezvous=True)


def rings_cost_what_their_formula_says() -> None:
    """2 (p - 1) messages of a p-th; powers of two, so that times are exact."""
    p, alpha, bandwidth, gamma = 4, 2.0**-10, 2.0**20, 2.0**-22
    cluster = VirtualCluster(p, Link(alpha, bandwidth), reduction=gamma)
    x = np.zeros(64 * p)
    expected = 2 * (p - 1) * (alpha + 512 / bandwidth) + (p - 1) * 512 * gamma
    for _ in range(2):
        cluster.run(lambda comm: collectives.ring_allreduce(comm, x))
        assert cluster.seconds == expected, f"a ring took {cluster.seconds} s, by the formula {expected} s"
    send = 2 * (p - 1), 2 * (p - 1) * 512
    run_ranks(p, lambda comm: messages_are(lambda c: collectives.ring_allreduce(c, x), comm, *send))


def one_server_hears_one_after_the_other() -> None:
    def work(comm):
        if comm.rank:
            comm.send(np.zeros(64), 0)
        else:
            for source in range(1, comm.size):
                comm.recv(source)

    cluster = VirtualCluster(5, Link(0.25, 512.0))
    cluster.run(work)
    assert cluster.seconds == 4 * 1.25, f"four messages of 1.25 seconds took {cluster.seconds} seconds"


def gathered_parts_stand_in_the_order_of_the_ranks() -> None:
    for ranks in (3, 4):
        for parts in run_ranks(ranks, lambda comm: collectives.allgather(comm, np.full(2, comm.rank))):
            assert [int(x[0]) for x in parts] == list(range(ranks)), f"gathered {parts}"


def a_transport_keeps_its_promises() -> None:
    for promise in conformance.PROMISES[:10]:
        run_ranks(3, promise)


def half_of_the_ranks_are_a_group() -> None:
    run_ranks(5, conformance.groups_do_not_hear_each_other, seed=1)  # without, a bug may hang


def a_pullback_is_the_adjoint() -> None:
    def work(comm):
        same, own = laws.integers((6, 2), 0), laws.integers((6, 2), 10 + comm.rank)
        sizes = [3, 1, 2]
        for op, x, how in (
            (differentiable.fan_out, same, {"replicated_in": True}),
            (differentiable.fan_in, own, {"replicated_out": True}),
            (
                lambda t, comm: differentiable.share_out(t, comm=comm, sizes=sizes),
                same,
                {"replicated_in": True},
            ),
            (differentiable.join_in, own, {"replicated_out": True}),
            (differentiable.all_gather, own, {}),
            (differentiable.broadcast, own, {}),
            (lambda t, comm: differentiable.all_to_all(t, comm=comm, sizes=sizes), own, {}),
        ):
            is_adjoint(lambda t, op=op: op(t, comm=comm), comm, x, **how)

    run_ranks(3, work)


def what_ranks_drop_is_freed() -> None:
    def work(comm):
        for _ in range(4):
            backend = Bucketed(comm)
            backend.place(nn.Linear(2, 2, rng=np.random.default_rng(0)))
            group, _ = comm.split(0), comm.split(0)
            assert group.size == comm.size
        comm.split(0)
        count = len(comm.parts.all)
        assert count <= 5, f"{count} groups and threads are left"

    run_ranks(2, work)


def a_header_is_looked_at() -> None:
    n, first = wire.START.size, wire.pack(np.zeros((2, 3)))[0]
    for broken in (
        first[: n + 16] + bytes([1, 1]) + first[n + 18 :],
        first[:n] + bytes(16) + first[n + 16 :],
        first[:6] + b"|O8" + first[9:],
    ):
        try:
            result = wire.unpack(broken)
        except ValueError as error:
            assert str(error).startswith(wire.NO_ARRAY), f"the words are others: {error}"
        else:
            raise AssertionError(f"a broken header was taken: {result}")


# Bugs

SUM = "the sum is|make both sides agree"

BUGS = [
    Bug("what a rank drops stays", "Part.__del__", "whole.parts.unused[self.number] = self  #", "pass  #",
        what_ranks_drop_is_freed, "are left"),
    Bug("the order of a message's axes is not looked at", "Header.read",
        " or sorted(header.order) != list(range(n)):", ":", a_header_is_looked_at, "was taken|are others"),
    Bug("bytes behind an array are not looked at", "check_length", "if nbytes != needed:",
        "if nbytes < needed:", a_header_is_looked_at, "was taken"),
    Bug("a ring adds the piece after the one that came", "reduce_around", "mine = pieces[(own - 2 - t) % p]",
        "mine = pieces[(own - 1 - t) % p]", all_reduces_sum_exactly, SUM),
    Bug("a ring ends one step early", "reduce_around", "    for t in range(p - 1):\n        mine",
        "    for t in range(p - 2):\n        mine", all_reduces_sum_exactly, SUM),
    Bug("a ring's pieces are gathered from one too far", "pass_around", "sent = pieces[(own - t) % p]",
        "sent = pieces[(own - t - 1) % p]", gathered_parts_stand_in_the_order_of_the_ranks, "gathered"),
    Bug("the sum of one rank is its own array", "copy_of", "return array_module(x).array(x)", "return x",
        all_reduces_sum_exactly, "is the input's memory"),
    Bug("a sum is written into the input", "send_recv.combine",
        "return array_module(first).asarray(operator(first, second))",
        "second[...] = operator(first, second)\n    return second", all_reduces_sum_exactly,
        "the input was changed|the sum is"),
    Bug("the leaves of a tree are not asked", "Place.children", "reversed(distances)",
        "reversed(distances[1:])", all_reduces_sum_exactly, "the sum is|Deadlock|never received"),
    Bug("each side puts its own operand first", "doubling.doubling_allreduce",
        "(received, total) if peer < comm.rank else (total, received)", "(total, received)",
        operands_stand_in_the_order_of_the_ranks, "the product is"),
    Bug("a rank spoken for is not added", "doubling.doubling_allreduce",
        "total = combine(comm, operator, comm.recv(comm.rank - 1, Tag.FOLD, expect=x), total)",
        "comm.recv(comm.rank - 1, Tag.FOLD, expect=x)", all_reduces_sum_exactly, "the sum is"),
    Bug("everybody sends before anybody receives", "collectives.send_recv.send_recv",
        "    finish = comm.start_send(x, to, tag)\n",
        "    finish = comm.start_send(x, to, tag)\n    finish()\n    finish = lambda: None\n",
        rings_do_not_wait_for_themselves, "Deadlock.*circle"),
    Bug("what is sent is not copied", "ThreadComm.deliver", "copy = array_module(x).array(x)", "copy = x",
        a_transport_keeps_its_promises, "Arrays are not equal"),
    Bug("the last message of a source comes first", "World.post",
        "next((m for m in messages if m.source == source), None)",
        "next((m for m in reversed(messages) if m.source == source), None)", a_transport_keeps_its_promises,
        "Arrays are not equal"),
    Bug("the declared shape is not looked at", "check_expected",
        "(x.shape, x.dtype) != (expect.shape, expect.dtype)", "x.size != expect.size",
        a_transport_keeps_its_promises, "no ValueError was raised"),
    Bug("groups share their letter boxes", "ThreadComm.split", "members, (*name, color))", "members, ())",
        half_of_the_ranks_are_a_group, "AssertionError|Deadlock|never received"),
    Bug("gradients of a fan-out are not summed", "fan_out",
        "return x, (lambda g: collectives.allreduce(comm, g),)", "return x, (lambda g: g,)",
        a_pullback_is_the_adjoint, "should be the same on all ranks|<x, F\\* y>"),
    Bug("gradients of a fan-in are summed", "fan_in", "return collectives.allreduce(comm, x), (lambda g: g,)",
        "return collectives.allreduce(comm, x), (lambda g: collectives.allreduce(comm, g),)",
        a_pullback_is_the_adjoint, "<x, F\\* y>"),
    Bug("gathered parts get their own gradient only", "differentiable.all_gather",
        "(lambda g: collectives.reduce_scatter(comm, cut(g, axis, sizes)),)",
        "(lambda g: cut(g, axis, sizes)[comm.rank].copy(),)", a_pullback_is_the_adjoint, "<x, F\\* y>"),
    Bug("a port carries two messages at a time", "VirtualCluster.transfer",
        "start = max(start, self._out.get(out, 0.0), self._in.get(into, 0.0))", "pass",
        one_server_hears_one_after_the_other, "seconds"),
    Bug("who waits keeps its clock", "VirtualComm.advance_clock",
        "clocks[self.world_rank] = max(clocks[self.world_rank], to)", "pass",
        rings_cost_what_their_formula_says, "by the formula"),
    Bug("the work of a sum is not charged", "send_recv.combine", "    comm.charge_reduction(second.nbytes)\n",
        "", rings_cost_what_their_formula_says, "by the formula"),
    Bug("started sends are not counted", "Traced.start_send",
        "    self.record.message(i, x.nbytes)\n    return finish\n", "    return finish\n",
        rings_cost_what_their_formula_says, r"sent \(messages, bytes\)"),
]  # fmt: skip
