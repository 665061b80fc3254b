"""Laws of lessons/minigrad_course/grading/worker/messages.py, rpc.py, restricted_object.py,
shared_arrays.py, lessons/minigrad_course/grading/worker_output.py and submission.py: what crosses between
the judge and a submission's process arrives as it was; nothing else gets through.
"""

import io
import math
import socket
import struct
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from minigrad_course.grading import Wrong
from minigrad_course.grading.restricted_comm import RestrictedComm, RestrictedObject
from minigrad_course.grading.starter_imports import StarterImports
from minigrad_course.grading.submission import WorkerConnection, WorkerEnded, WorkerPool
from minigrad_course.grading.worker import messages, rpc
from minigrad_course.grading.worker.messages import ChannelClosed, MalformedMessage, pack, read, to_json
from minigrad_course.grading.worker.rpc import Channel, RemoteObject
from minigrad_course.grading.worker_output import WorkerOutput

from backends.pipeline import Forward, Weight

RECORDS = {"Forward": Forward, "Weight": Weight}


class Side(Channel):
    """An end that lends whatever it has, and says what it raised by its name."""

    def reference_kind(self, x):
        return "function" if callable(x) else "object"

    def tell(self, value):
        self.send("return", self.encode(value))

    def hear(self):
        return self.receive()[1]


def sides():
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(10)
    return [Side(end, first, RECORDS) for first, end in enumerate(ends)]


# Values

DTYPES = st.one_of(
    hnp.scalar_dtypes(), hnp.byte_string_dtypes(min_len=1), hnp.unicode_string_dtypes(min_len=1)
).filter(lambda dtype: dtype.kind in "biufcSUmM" and dtype.itemsize)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def arrays(draw):
    """An array in some order, with gaps, reversed, repeated, locked, or a view of bytes."""
    x = draw(hnp.arrays(draw(DTYPES), draw(SHAPES)))
    if x.ndim and draw(st.booleans()):
        x = x.transpose(draw(st.permutations(range(x.ndim))))
    if draw(st.booleans()):
        x = np.asfortranarray(x) if draw(st.booleans()) else x.copy("K")
    if x.ndim:
        x = x[tuple(slice(None, None, draw(st.sampled_from([1, -1, 2, -2]))) for _ in range(x.ndim))]
    if draw(st.integers(0, 5)) == 0:
        x = np.broadcast_to(x, (2, *x.shape))
    if draw(st.integers(0, 5)) == 0:
        x.flags.writeable = False
    return np.frombuffer(x.tobytes(), np.uint8) if draw(st.integers(0, 5)) == 0 else x


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(),
    st.binary(),
    st.complex_numbers(),
    DTYPES,
    DTYPES.flatmap(hnp.from_dtype),
    st.slices(9),
    st.sampled_from([np.add, np.maximum, np.matmul]),
    st.builds(Forward, st.integers()),
    st.builds(Weight, st.tuples(st.integers())),
)
KEYS = st.integers() | st.text() | st.tuples(st.booleans())
VALUES = st.recursive(
    SCALARS | arrays(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)


def same(x, y):
    assert type(x) is type(y), (x, y)
    if isinstance(x, np.ndarray):
        assert (x.dtype, x.shape, x.flags.writeable) == (y.dtype, y.shape, y.flags.writeable)
        assert x.tobytes() == y.tobytes() and (x.strides == y.strides or not x.size)
    elif isinstance(x, list | tuple):
        assert len(x) == len(y)
        for a, b in zip(x, y, strict=True):
            same(a, b)
    elif isinstance(x, dict):
        same(list(x.items()), list(y.items()))
    elif isinstance(x, np.generic):
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes()
    elif isinstance(x, float):
        assert x == y and math.copysign(1, x) == math.copysign(1, y) or x != x and y != y
    elif isinstance(x, complex):
        same((x.real, x.imag), (y.real, y.imag))
    else:
        assert x == y


@given(VALUES)
def test_a_value_arrives_as_it_was_and_comes_home(value):
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        here.tell(value)
        message = there.hear()
        same(message, value)
        there.tell(message)
        same(here.hear(), value)


@given(st.lists(arrays(), min_size=1, max_size=3), st.data())
def test_arrays_keep_what_they_share_and_both_sides_see_what_is_written(owners, data):
    views = st.sampled_from(owners).flatmap(
        lambda x: st.sampled_from([x, x[...], x.T, x[::-1] if x.ndim else x])
    )
    sent = [*owners, *data.draw(st.lists(views, max_size=4))]
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        here.tell(sent)
        message = there.hear()
        for i, x in enumerate(sent):
            for j, y in enumerate(sent):
                assert x is not y or message[i] is message[j] or not x.size
                assert np.may_share_memory(x, y) == np.may_share_memory(message[i], message[j])
        for side, mine in ((there, message), (here, sent), (there, message)):
            x = mine[data.draw(st.integers(0, len(mine) - 1))]
            if x.flags.writeable and x.size:
                x[...] = np.zeros((), x.dtype)
            other = here if side is there else there
            side.tell(None)
            other.hear()
            same(sent, message)
        there.tell(message)
        for x, y in zip(here.hear(), sent, strict=True):  # where two arrays are alike, either may come home
            assert any(x is z for z in sent) or not x.size
            same(x, y)


def test_objects_keep_who_they_are_and_are_let_go():
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        thing, other = object(), {1, 2}
        here.tell([thing, other, thing])
        a, b, c = there.hear()
        assert isinstance(a, RemoteObject) and a is c and type(b).__name__ == "set"
        there.tell((b, a))
        assert [x is y for x, y in zip(here.hear(), (other, thing), strict=True)] == [True, True]
        assert len(here.objects.exports) == 2
        del a, b, c
        there.tell(None)
        here.hear()
        assert not here.objects.exports and not here.objects.numbers


def test_memory_is_let_go():
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        for _ in range(50):
            here.tell([np.ones(9), np.zeros(3)])
            there.tell(there.hear()[0])
            here.hear()
        here.tell(None)
        there.hear()
        assert len(here.arrays.blocks) <= 2 and len(there.arrays.blocks) <= 2


def holds_itself():
    x = []
    x.append(x)
    return x


@pytest.mark.parametrize(
    "made", [holds_itself, lambda: np.zeros(2**18), lambda: "x" * 2**21], ids=["deep", "array", "text"]
)
def test_what_is_too_much_is_refused_and_the_line_goes_on(made, monkeypatch):
    """The limit here is 1 MB: messages of the real one take half a gigabyte."""
    for module in (messages, rpc):
        monkeypatch.setattr(module, "MAX_BYTES", 2**20)
    value = made()
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        with pytest.raises(ValueError, match="nested|too many"):
            here.tell(value)
        here.tell(3)
        assert there.hear() == 3


# Messages that somebody made up


def message(value):
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        here.tell(value)
        there.connection.setblocking(False)
        return there.connection.recv(2**20)


def heard(data):
    """What a side makes of these bytes: a value, or MalformedMessage or ChannelClosed."""
    side: Any
    side, far = sides()
    with closing(side.connection), closing(far.connection):
        side.stream = io.BytesIO(data)
        try:
            return side.hear()
        except (MalformedMessage, ChannelClosed):
            return None


@given(VALUES.map(message), st.data())
def test_what_is_cut_or_changed_is_refused_and_raises_nothing_else(data, draws):
    cut = draws.draw(st.integers(0, len(data) - 1))
    with pytest.raises((MalformedMessage, ChannelClosed)):
        raise ChannelClosed if heard(data[:cut]) is None else AssertionError
    for _ in range(5):
        at = draws.draw(st.integers(0, len(data) - 1))
        heard(data[:at] + draws.draw(st.binary(max_size=4)) + data[at + 1 :])


NAMES = ["t", "l", "d", "a", "n", "b", "c", "slice", "dtype", "ufunc", "record", "of", "objects", "r", "own"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5)
    | st.sampled_from([*NAMES, "restricted", "<f8", "|O8", "Forward", "function", "object"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)  # fmt: skip
TAGGED = st.builds(
    lambda name, rest: [name, *rest], st.sampled_from([*NAMES, "restricted"]), st.lists(JSON, max_size=7)
)
SYNC = st.tuples(
    st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 20)), max_size=2), st.lists(JSON, max_size=1)
)


@settings(max_examples=300)
@given(SYNC | JSON, JSON | st.just([]), TAGGED | JSON, st.binary(max_size=24))
def test_nonsense_is_refused_and_raises_nothing_else(sync, gone, body, content):
    heard(pack(["return", sync, gone, None], to_json(body), content))


@given(st.binary(max_size=40), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_bytes_are_no_message(data, text, content):
    with pytest.raises((MalformedMessage, ChannelClosed)):
        read(io.BytesIO(struct.pack(">II", text, content) + data))


# What a submission's process may ask


class Company(WorkerPool):
    """Stands for the processes of a task."""

    def __init__(self):
        self.imports, self.output = StarterImports(), WorkerOutput()

    def reason_of_end(self, rank):
        return "it does not answer as it should"


def judged(asks):
    """What the judge's request comes to, when the other side asks for these things instead of returning."""
    near, far = socket.socketpair()
    near.settimeout(10)
    player, other = WorkerConnection(near, 0, Company(), "mine.py"), Side(far, 1, {})
    with closing(near), closing(far):
        secret = {"wanted": 5}
        offer = RestrictedObject("comm", {"rank": 0}, {"send": lambda x: x}, {"residual": lambda: 7})
        player.send("call", player.encode(("call", 0, (offer, lambda: secret["wanted"]), {})))
        lent = other.hear()
        for ask in asks:
            other.send("call", other.encode(ask))
        other.tell(None)
        answer = player.request("call", 0, (), {})
        assert lent  # until then
        return answer


def reaches_no_channel():
    """From the objects that a submission holds no attribute leads to what its process holds beside it.

    Names with two underscores lead anywhere in Python: the static check refuses them.
    """
    here, there = sides()
    with closing(here.connection), closing(there.connection):
        offer = RestrictedObject("comm", {"rank": 0}, {"send": lambda x: x}, {"residual": lambda: 7})
        here.tell((offer, lambda: 0))
        comm, function = there.hear()
        todo: list[Any] = [comm, function, comm.send]
        visited: set[int] = set()
        while todo:
            x = todo.pop()
            if id(x) in visited or isinstance(x, int | str):
                continue
            visited.add(id(x))
            assert type(x).__module__ != Channel.__module__ or isinstance(x, RemoteObject), x
            names = [n for n in {*dir(x), *dir(type(x))} if not n.startswith("__") and n != "residual"]
            todo += [getattr(x, name) for name in names]


def test_from_what_a_submission_holds_no_attribute_leads_to_the_channel():
    reaches_no_channel()


@pytest.mark.parametrize(
    "ask",
    [
        ("method", 0, "send", (1,), {}),
        ("attribute", 0, "residual"),
        ("call", 1, (), {}),
        ("repr", 0),
        ("repr", 1),
    ],
)
def test_what_is_offered_may_be_used(ask):
    assert judged([ask]) is None


@pytest.mark.parametrize(
    "ask",
    [
        ("attribute", 0, "calls"),
        ("attribute", 0, "__class__"),
        ("attribute", 0, "rank"),
        ("attribute", 1, "__closure__"),
        ("attribute", 1, "__globals__"),
        ("method", 0, "__init__", (), {}),
        ("method", 1, "__call__", (), {}),
        ("call", 0, (), {}),
        ("call", 2, (), {}),
        ("call", True, (), {}),
        ("name", "secret"),
        ("iterator", 1),
        ("load", "1", "2"),
        (),
        None,
        "call",
    ],
)
def test_what_is_not_offered_cannot_be_had(ask):
    with pytest.raises((WorkerEnded, Exception)) as caught:
        judged([ask])
    assert isinstance(caught.value, WorkerEnded), caught.value


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_a_process_that_talks_nonsense_has_ended_for_the_judge(data):
    near, far = socket.socketpair()
    with closing(near):
        player = WorkerConnection(near, 0, Company(), "mine.py")
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with closing(far):
            for _ in range(2):
                with pytest.raises(WorkerEnded):
                    player.request("name", "total")


def test_a_remote_answers_no_question_that_numpy_asks_by_itself():
    """``__array_interface__`` would be an address in the judge's own memory."""
    near, far = socket.socketpair()
    with closing(near), closing(far):
        remote = WorkerConnection(near, 0, Company(), "mine.py").objects.proxy(3, "Thing", "object")
        for name in ("__array__", "__array_interface__", "__array_struct__", "__float__", "__len__"):
            assert not hasattr(remote, name)
        assert np.asarray(remote).shape == ()


def test_a_message_to_oneself_and_what_is_no_array_are_refused():
    sent = []
    comm = SimpleNamespace(rank=1, size=2, send=lambda x, to, tag: sent.append(to), start_send=None)
    offered = RestrictedComm(comm, ("send", "start_send"))
    offered.send(np.ones(1), 0)
    for name in ("send", "start_send"):
        with pytest.raises(Wrong, match="rank 1 sends itself a message"):
            getattr(offered, name)(np.ones(1), 1)
        with pytest.raises(TypeError, match="rank 1 sends a list; send arrays"):
            getattr(offered, name)([1.0], 0)
    assert sent == [0]
