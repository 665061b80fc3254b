"""What assignment a10 is held to: whole attention's numbers on every rank, by exactly so many messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.array_checks import check_equal, check_like, check_private, check_unchanged
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import RestrictedComm, RestrictedObject
from minigrad_course.grading.submission import on_rank
from minigrad_course.machines.virtual_cluster import VirtualCluster, VirtualComm

from backends.comm import Communicator
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced

cases = load_file(Path(__file__).parent / "cases.py", "cases_of_a10")
attention, counted = cases.attention, cases.counted

LIMIT = 1e-9  # of an error, where the numbers are of the size 1
OVERLAPPED = ("start_send", "start_recv", "recv")
RESULTS, GRADIENTS = ("o", "lse"), ("gradient of q", "gradient of k", "gradient of v")

# A counter-example shrinks to the first of a list: a usual size, where the unusual ones are not to blame.
RANKS, SEEDS = st.integers(1, 5), st.integers(0, 2**16)
WIDTHS, SIZES = st.sampled_from([2, 3, 1]), st.sampled_from([3, 2, 4, 1, 0])
MASKS = st.sampled_from(["some", "all", "the first query sees nothing", "none"])
LARGE = st.sampled_from([False, False, True])
TOKENS = st.sampled_from([8, 6, 12, 10, 4, 7, 5, 3, 2, 1, 0, 9])
ORDERS = st.sampled_from(["plain", "zig-zag", "drawn"])
DOCUMENTS = st.sampled_from(["one", "several", "several, padding"])
RINGS = st.builds(cases.Ring, RANKS, TOKENS, WIDTHS, ORDERS, DOCUMENTS, SEEDS)


def in_parts(sizes: Sequence[int], **settings: Any) -> Any:
    return cases.Pieces(keys=sum(sizes), sizes=tuple(sizes), **settings)


PARTS = st.lists(SIZES, min_size=2, max_size=4)
PIECES = st.builds(in_parts, PARTS, queries=SIZES, width=WIDTHS, mask=MASKS, large=LARGE, seed=SEEDS)
CLOCKS = st.builds(
    cases.Clock,
    st.sampled_from([3, 2, 4, 1]),
    st.sampled_from([1, 2]),
    WIDTHS,
    st.sampled_from([8.0, 32.0, 64.0, 1024.0]),
    SEEDS,
)

# What is checked of a result


def check_results(
    me: str,
    name: str,
    results: Any,
    expected: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    before: Sequence[np.ndarray],
) -> None:
    """``results`` are the arrays ``expected``, in new memory, and ``inputs`` are as ``before``."""
    check_form(me, name, results, expected, inputs, before)
    for x, (what, right) in zip(results, expected.items(), strict=True):
        check_array(f"{me}{what} of {name}", x, right)


def check_form(
    me: str,
    name: str,
    results: Any,
    like: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    before: Sequence[np.ndarray],
) -> None:
    """``results`` is a tuple of arrays as in ``like``, in new memory, and ``inputs`` are as ``before``."""
    if type(results) is not tuple or len(results) != len(like):
        raise Wrong(f"{me}{name} returned {kind_of(results)}, not a tuple of {', '.join(like)}")
    for x, (what, other) in zip(results, like.items(), strict=True):
        check_like(f"{me}{what} of {name}", x, other.shape, other.dtype)
        check_private(f"{me}{what} of {name}", x, inputs)
    check_unchanged({f"{me}{key}": x for key, x in inputs.items()}, before)


def check_array(label: str, x: Any, expected: np.ndarray) -> None:
    """``x`` is ``expected`` up to rounding, and -inf where that is."""
    finite = np.isfinite(expected)
    if not (x[~finite] == -np.inf).all():
        query = int(np.argmax(~finite & (x != -np.inf)))
        raise Wrong(f"{label} is {x[query]:g} at {query}, it should be -inf: that query sees no key")
    size = float(abs(expected[finite]).max(initial=1.0))
    check_equal(label, np.where(finite, x, 0.0), np.where(finite, expected, 0.0), LIMIT * size)


def copies(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [x.copy() for x in arrays.values()]


# Tasks 1 to 3


def check_tile(submission: Any, case: Any, comm: Communicator) -> None:
    q, k, v = case.arrays()
    inputs = {"q": q, "k": k, "v": v, "mask": case.allowed()}
    before, right = copies(inputs), attention(*inputs.values())
    results = submission.tile(*inputs.values())
    check_results("", "tile", results, dict(zip(RESULTS, right, strict=False)), inputs, before)


def check_merge(submission: Any, case: Any, comm: Communicator) -> None:
    """Parts of the keys in a drawn order, one after the other, and then in pairs."""
    q, k, v = case.arrays()
    expected = dict(zip(RESULTS, attention(q, k, v, case.allowed()), strict=False))
    cuts, parts = np.cumsum(case.sizes[:-1]), []
    for keys, values, mask in zip(np.split(k, cuts), np.split(v, cuts), case.masks(), strict=True):
        of_part = attention(q, keys, values, mask)
        parts.append((of_part.o, of_part.lse))
    order = np.random.default_rng([case.seed, 5]).permutation(len(parts))
    drawn = [parts[i] for i in order]

    def merged(one: Any, other: Any) -> Any:
        """What the submission makes of two, which is checked for its form."""
        names: list[str] = ["o", "lse", "other", "other_lse"]
        inputs = dict(zip(names, (*one, *other), strict=True))
        before = copies(inputs)
        results = submission.merge(*inputs.values())
        check_form("", "merge", results, dict(zip(RESULTS, one, strict=True)), inputs, before)
        return results

    rows = [reduce(merged, drawn)]
    while len(drawn) > 1:
        pairs = [merged(*drawn[i : i + 2]) for i in range(0, len(drawn) - 1, 2)]
        drawn = pairs + (drawn[-1:] if len(drawn) % 2 else [])
    for results in (*rows, drawn[0]):
        for x, (what, right) in zip(results, expected.items(), strict=True):
            words = " and ".join(str(i) for i in order)
            check_array(f"merged in the order {words}, {what}", x, right)


def check_zigzag(submission: Any, case: Any, comm: Communicator) -> None:
    tokens, p = case.tokens, case.of_ranks
    result = submission.zigzag(tokens, p)
    if type(result) is not list or len(result) != p:
        raise Wrong(f"zigzag returned {kind_of(result)}, not a list of {counted(p, 'array')}")
    for rank, columns in enumerate(result):
        is_integer = type(columns) is np.ndarray and columns.dtype.kind in "iu"  # of any size
        dtype = columns.dtype if is_integer else np.dtype(int)
        check_like(f"the array of rank {rank}", columns, np.shape(columns), dtype)
        if columns.ndim != 1:
            raise Wrong(f"the array of rank {rank} has the shape {columns.shape}, it should be (n,)")
    pairs = [sum(columns.tolist()) + len(columns) for columns in result]  # of any size, without overflow
    if tokens % (2 * p) == 0 and set(pairs) != {tokens * (tokens + 1) // (2 * p)}:
        raise Wrong(f"the ranks have {in_words(pairs)} pairs, not {tokens * (tokens + 1) // (2 * p)} each")
    blocks = np.array_split(np.arange(tokens), 2 * p)
    for rank, columns in enumerate(result):
        right = np.concatenate([blocks[rank], blocks[2 * p - 1 - rank]])
        if not np.array_equal(columns, right):
            raise Wrong(f"rank {rank} has the columns {in_words(columns)}, it should have {in_words(right)}")


def kind_of(x: Any) -> str:
    if type(x) in (list, tuple):
        return f"a {type(x).__name__} of {len(x)}"
    return "nothing" if x is None else f"a {type(x).__name__}"


def in_words(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


# Tasks 4 to 6


def named(columns: Sequence[np.ndarray], documents: np.ndarray) -> dict[str, np.ndarray]:
    """What all ranks are given, by name."""
    return {f"columns[{rank}]": x for rank, x in enumerate(columns)} | {"documents": documents}


def sent_sizes(case: Any, rank: int, steps: Sequence[int]) -> int:
    """How many tokens the blocks have that a rank passes on, where it has that of rank - t for each t."""
    sizes = [len(columns) for columns in case.columns()]
    return sum(sizes[(rank - t) % case.ranks] for t in steps)


def check_sent(case: Any, comm: Communicator, traced: Traced, messages: int, tokens: int) -> None:
    """Messages of this rank, all to the rank after it, in which ``tokens`` tokens have two arrays each."""
    me, ledger = f"the results are right, but rank {comm.rank}", traced.record.ledger
    sent, nbytes = ledger.sent(), 2 * 8 * case.width * tokens
    if sent.messages != messages:
        raise Wrong(f"{me} sent {counted(sent.messages, 'message')}, not {messages}")
    if messages and ledger.sent((comm.rank + 1) % comm.size) != sent:
        raise Wrong(f"{me} sent messages to others than rank {(comm.rank + 1) % comm.size}")
    if sent.bytes != nbytes:
        raise Wrong(f"{me} sent {counted(sent.bytes, 'byte')}, not {nbytes}")


def check_ring_forward(submission: Any, case: Any, comm: Communicator) -> None:
    comm.use_synchronous_sends()  # where ranks are threads, as MPI's with a large message
    mine, traced = case.columns()[comm.rank], Traced(comm)
    arrays = dict(zip("qkv", (x[mine] for x in case.arrays()), strict=False))
    settings = case.columns(), case.document_numbers()
    inputs = arrays | named(*settings)
    before = copies(inputs)
    results = submission.ring_forward(RestrictedComm(traced), *arrays.values(), *settings)
    right = {what: x[mine] for what, x in zip(RESULTS, cases.whole(case), strict=False)}
    check_results(f"rank {comm.rank}'s ", "ring_forward", results, right, inputs, before)
    p = comm.size
    check_sent(case, comm, traced, 2 * (p - 1), sent_sizes(case, comm.rank, range(p - 1)))


def check_ring_backward(submission: Any, case: Any, comm: Communicator) -> None:
    comm.use_synchronous_sends()
    mine, traced = case.columns()[comm.rank], Traced(comm)
    right = cases.whole(case)
    q, k, v, g = case.arrays()
    names: list[str] = ["q", "k", "v", "o", "lse", "g"]
    arrays = dict(zip(names, (x[mine] for x in (q, k, v, right.o, right.lse, g)), strict=True))
    settings = case.columns(), case.document_numbers()
    inputs = arrays | named(*settings)
    before = copies(inputs)
    results = submission.ring_backward(RestrictedComm(traced), *arrays.values(), *settings)
    gradients = dict(zip(GRADIENTS, (x[mine] for x in right[2:]), strict=True))
    check_results(f"rank {comm.rank}'s ", "ring_backward", results, gradients, inputs, before)
    p = comm.size
    tokens = sent_sizes(case, comm.rank, (*range(p - 1), *range(1, p)))
    check_sent(case, comm, traced, 4 * (p - 1), tokens)


def check_overlapped(submission: Any, case: Any, comm: Communicator) -> None:
    ring = case.ring()
    columns, right = ring.columns(), cases.whole(ring)
    cluster = VirtualCluster(case.of_ranks, Link(0.0, case.bandwidth))
    pairs = [0] * case.of_ranks

    def work(clocked: VirtualComm) -> None:
        clocked.use_synchronous_sends()
        rank, traced = clocked.rank, Traced(clocked)
        arrays = {name: x[columns[rank]] for name, x in zip("qkv", ring.arrays(), strict=False)}
        settings = ring.columns(), ring.document_numbers()
        inputs = arrays | named(*settings)
        before, offered = copies(inputs), on_the_clock(traced, pairs)
        results = on_rank(submission, rank).overlapped_forward(offered, *arrays.values(), *settings)
        expected = {what: x[columns[rank]] for what, x in zip(RESULTS, right, strict=False)}
        check_results(f"rank {rank}'s ", "overlapped_forward", results, expected, inputs, before)
        p = ring.ranks
        check_sent(ring, clocked, traced, 2 * (p - 1), sent_sizes(ring, rank, range(p - 1)))

    cluster.run(work)
    allowed = ring.allowed()
    for rank, count in enumerate(pairs):
        if count != (all_of := int(allowed[columns[rank]].sum())):
            raise Wrong(f"rank {rank} computed {counted(count, 'pair')}, the masks allow {all_of}")
    taken, expected, without = cluster.seconds, case.seconds(), case.seconds(overlap=False)
    if abs(taken - expected) > LIMIT * expected:
        hint = ", which it takes without any overlap" if abs(taken - without) <= LIMIT * taken else ""
        raise Wrong(f"the results are right, but it takes {taken:g}{hint}, not {expected:g}")


def on_the_clock(comm: Traced, pairs: list[int]) -> RestrictedObject:
    """``comm`` with the method ``compute``, which takes a time of 1 for each pair and counts them.

    There is no ``send``, which returns only when its message was received: nothing is hidden behind it.
    """
    restricted = RestrictedComm(comm, OVERLAPPED)

    def compute(count: Any) -> None:
        if not isinstance(count, int | float | np.integer | np.floating):
            raise TypeError(f"compute takes a number of pairs, got {kind_of(count)}")
        if not 0 <= count == count // 1:
            raise TypeError(f"compute takes a number of pairs, got {count!r:.40}")
        pairs[comm.rank] += int(count)
        comm.compute(int(count))

    methods = {name: getattr(restricted, name) for name in OVERLAPPED}
    return RestrictedObject("comm", {"rank": comm.rank, "size": comm.size}, {**methods, "compute": compute})


def wrong_answer(*arguments: Any) -> Any:
    """A wrong answer to each task: nothing is computed, nothing is sent."""
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    return tuple(x.copy() for x in arrays[:2]) or [np.arange(3)]


def task(
    name: str, points: int, title: str, drawn: Any, check: Any, *parts: Part, examples: int = 40
) -> Task:
    broken = SimpleNamespace(**{name: wrong_answer})
    return Task(name, points, title, drawn, check, broken, examples=examples, parts=parts)


def usual(case: Any) -> bool:
    """Whether no score is large, and each query sees a key of each part."""
    return not case.large and all(mask.any(axis=1).all() for mask in case.masks())


def on_one_rank(case: Any) -> bool:
    return case.ranks == 1


STEPS = ("tile", "merge")
SUPPLIED = Part("with tile and merge of the answers", 1.0, supplied=STEPS)
TILES = st.builds(cases.Keys, SIZES, SIZES, WIDTHS, MASKS, LARGE, SEEDS)
ROWS = st.builds(cases.Row, st.sampled_from([8, 12, 16, 20, *range(24)]), st.integers(1, 5))
USUAL = Part("where each query sees a key, and no score is large", 0.5, usual)
EACH_PART = Part("where each query sees a key of each part, and no score is large", 0.5, usual)
DIVIDES = Part(
    "where twice the ranks divide the tokens", 0.5, lambda case: case.tokens % (2 * case.of_ranks) == 0
)
ALONE = Part("on one rank", 0.2, on_one_rank)

TASKS = (
    task("tile", 15, "attention on some keys", TILES, check_tile, USUAL, examples=60),
    task("merge", 15, "two results become one", PIECES, check_merge, EACH_PART, examples=60),
    task("zigzag", 10, "the same work for each rank", ROWS, check_zigzag, DIVIDES, examples=60),
    task("ring_forward", 25, "keys and values go round", RINGS, check_ring_forward, SUPPLIED),
    task("ring_backward", 25, "their gradients go behind them", RINGS, check_ring_backward, ALONE),
    task(
        "overlapped_forward",
        10,
        "a message while one computes",
        CLOCKS,
        check_overlapped,
        SUPPLIED,
        examples=20,
    ),
)
