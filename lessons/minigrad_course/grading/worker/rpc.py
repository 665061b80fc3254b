"""Remote procedure calls between the judge and a worker, in both directions, one inside the other.

One side at a time is active. It sends a call, and answers calls of the other side until its own result
arrives. Plain values are sent as JSON, arrays as shared memory, all other objects as references by number.
"""

from __future__ import annotations

import math
import socket
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .messages import MAX_BYTES, ChannelClosed, MalformedMessage, decode_errors, pack, read, to_json
from .restricted_object import RestrictedObject
from .shared_arrays import DTYPE, SharedArrays

BATCH = 32  # items of an iterator that one call fetches
MAX_DEPTH = 50
MAX_CLASSES = 1000


class RemoteObject:
    """An object of the other side. Its class has the name of the object's own class.

    No attribute of it leads to the channel: a submission holds such objects.
    """

    __slots__ = ("__weakref__", "_count", "_number")

    def __init__(self, number: int):
        self._number, self._count = number, 0


Request = Callable[..., Any]


def remote_classes(request: Request, unused: list[list[int]]) -> dict[str, type[RemoteObject]]:
    """The classes of one channel's remote objects, by kind of reference.

    Their methods call ``request``; an object that is deleted is entered in ``unused``.
    """

    class Remote(RemoteObject):
        __slots__ = ()

        def __del__(self) -> None:
            unused.append([self._number, self._count])

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # Python and NumPy look these up on their own
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return request("attribute", self._number, name)

        def __repr__(self) -> str:
            return str(request("repr", self._number))

    class RemoteFunction(Remote):
        """A callable object of the other side."""

        __slots__ = ()

        def __call__(self, *arguments: Any, **settings: Any) -> Any:
            return request("call", self._number, arguments, settings)

    class RemoteIterable(Remote):
        """An iterable object of the other side; one call fetches several items."""

        __slots__ = ()

        def __iter__(self) -> Iterator[Any]:
            iterator = request("iterator", self._number)
            while True:
                items, reraise = request("items", iterator._number, BATCH)
                yield from items
                if isinstance(reraise, RemoteFunction):
                    reraise()  # the error that ended the items
                if len(items) < BATCH:
                    return

    return {"object": Remote, "function": RemoteFunction, "iterable": RemoteIterable}


def restricted_members(
    request: Request, name: str, constants: dict[str, int], methods: list[str], properties: list[str]
) -> dict[str, Any]:
    """The members of the class of a RestrictedObject of the other side: what it has, and no more."""
    names = [*constants, *methods, *properties]
    if not all(n.isidentifier() and not n.startswith("_") for n in names):
        raise MalformedMessage("a name that is not offered")

    def method(called: str) -> Any:
        return lambda self, /, *parts, **settings: request("method", self._number, called, parts, settings)

    def getter(read: str) -> Any:
        return property(lambda self: request("attribute", self._number, read))

    offered = {**constants, **{n: method(n) for n in methods}, **{n: getter(n) for n in properties}}

    def refuse(self: Any, absent: str) -> Any:
        raise AttributeError(f"{name} has no {absent} here, only {', '.join(names)}")

    own = {"charge_reduction": RestrictedObject.charge_reduction, "__getattr__": refuse}
    return {**own, **offered, "__slots__": ()}


class ObjectTable:
    """The objects that the other side may name by number, and this side's RemoteObjects."""

    def __init__(self, channel: Channel):
        self.request, self.next = channel.request, 0
        self.exports: dict[int, list[Any]] = {}  # the object, and how often it was sent
        self.numbers: dict[int, int] = {}  # by the object's id
        self.proxies: weakref.WeakValueDictionary[int, RemoteObject] = weakref.WeakValueDictionary()
        self.unused: list[list[int]] = []  # proxies that were deleted; the other side does not know it yet
        self.kinds = remote_classes(channel.request, self.unused)
        self.classes: dict[tuple[str, str], type[RemoteObject]] = {}

    def export(self, x: Any) -> int:
        """The number by which the other side may name the object."""
        number = self.numbers.get(id(x))
        if number is None:
            number, self.next = self.next, self.next + 1
            self.numbers[id(x)], self.exports[number] = number, [x, 0]
        self.exports[number][1] += 1
        return number

    def lookup(self, number: Any) -> Any:
        """This side's object of that number; raises MalformedMessage where it was not sent."""
        if type(number) is not int or number not in self.exports:
            raise MalformedMessage(f"no object has the number {number!r:.20}")
        return self.exports[number][0]

    def number_for(self, x: RemoteObject) -> int:
        """The object's number on the side that owns it; TypeError where that is another channel's."""
        if self.proxies.get(x._number) is not x:
            raise TypeError("an object of one rank's program cannot go to another's")
        return x._number

    def proxy(self, number: Any, name: Any, kind: Any) -> RemoteObject:
        """The other side's object ``number``, an instance of a class ``name``."""
        if type(name) is not str or kind not in self.kinds:
            raise MalformedMessage("a reference to nothing")
        name = name if name.isidentifier() and len(name) < 100 else "object"
        if (name, kind) not in self.classes:
            if len(self.classes) > MAX_CLASSES:
                self.classes.clear()
            self.classes[name, kind] = type(name, (self.kinds[kind],), {"__slots__": ()})
        return self.instance(number, lambda: self.classes[name, kind])

    def restricted(self, number: Any, name: Any, *names: Any) -> RemoteObject:
        """The other side's RestrictedObject ``number``: its constants, methods and properties."""
        bases = (self.kinds["object"],)
        return self.instance(
            number, lambda: type(name, bases, restricted_members(self.request, name, *names))
        )

    def instance(self, number: Any, remote_class: Callable[[], Any]) -> RemoteObject:
        if type(number) is not int:
            raise MalformedMessage("a reference to nothing")
        proxy = self.proxies.get(number)
        if proxy is None:
            proxy = self.proxies[number] = remote_class()(number)
        proxy._count += 1
        return proxy

    def release(self, unused: Any) -> None:
        """Drop the objects whose proxies the other side has deleted."""
        for number, count in unused:
            if type(count) is not int or count < 0:
                raise MalformedMessage("a count that is none")
            entry = self.exports.get(number)
            if entry is not None:
                entry[1] -= count
                if entry[1] <= 0:
                    del self.exports[number], self.numbers[id(entry[0])]


class RemoteSequence:
    """Base of the copies of the other side's subclasses of tuple and list, such as named tuples."""

    origin: RemoteObject | None = None  # returned in its place


class Serializer:
    """Turns values into JSON and back; tuples, lists and dictionaries are copied.

    ``reference_kind`` returns the kind of reference by which an object may be sent, or raises TypeError.
    ``records`` are dataclasses whose instances both sides create from the same fields.
    """

    def __init__(
        self,
        arrays: SharedArrays,
        objects: ObjectTable,
        reference_kind: Callable[[Any], str],
        records: Mapping[str, type[Any]],
    ):
        self.arrays, self.objects = arrays, objects
        self.reference_kind, self.records = reference_kind, records

    # To JSON

    def encode(self, x: Any, depth: int = 0) -> Any:
        """Raises TypeError or ValueError for a value that may not be sent."""
        kind = type(x)
        if x is None or kind in (bool, int, float, str):
            return x
        if depth > MAX_DEPTH:
            raise ValueError(f"a value that is nested more than {MAX_DEPTH} deep, or holds itself")
        if kind is tuple or kind is list:
            return ["t" if kind is tuple else "l", *(self.encode(item, depth + 1) for item in x)]
        if kind is np.ndarray:
            return ["objects", *x.shape] if x.dtype.hasobject else ["a", *self.arrays.encode(x)]
        if isinstance(x, np.str_ | np.bytes_):
            return ["n", "U", str(x)] if isinstance(x, np.str_) else ["n", "S", x.hex()]
        if isinstance(x, np.generic) and not x.dtype.hasobject and DTYPE.fullmatch(x.dtype.str):
            return ["n", x.dtype.str, x.tobytes().hex()]
        if isinstance(x, RestrictedObject):
            names = [[*pair] for pair in x.constants.items()], [*x.methods], [*x.properties]
            return ["restricted", self.objects.export(x), x.name, *names]
        if isinstance(x, RemoteObject):
            return ["own", self.objects.number_for(x)]
        return self.encode_rare(x, depth + 1)

    def encode_rare(self, x: Any, depth: int) -> Any:
        kind = type(x)
        if kind is slice:
            return ["slice", *(self.encode(part, depth) for part in (x.start, x.stop, x.step))]
        if kind in (bytes, complex):
            return ["b", x.hex()] if kind is bytes else ["c", x.real, x.imag]
        if isinstance(x, np.dtype) and DTYPE.fullmatch(x.str):
            return ["dtype", x.str]
        if isinstance(x, np.ufunc) and vars(np).get(x.__name__) is x:
            return ["ufunc", x.__name__]
        if self.records.get(kind.__name__) is kind:
            values = (self.encode(getattr(x, field.name), depth) for field in fields(kind))
            return ["record", kind.__name__, *values]
        if isinstance(x, dict):
            return ["d", *([self.encode(key, depth), self.encode(x[key], depth)] for key in x)]
        if isinstance(x, RemoteSequence) and x.origin is not None:
            return ["own", self.objects.number_for(x.origin)]
        if isinstance(x, tuple | list):
            items = [self.encode(item, depth) for item in x]
            return ["of", "t" if isinstance(x, tuple) else "l", self.reference(x, "object"), *items]
        for plain in (int, float, str):
            if isinstance(x, plain):
                return self.encode(plain(x), depth)
        return self.reference(x, self.reference_kind(x))

    def reference(self, x: Any, kind: str) -> list[Any]:
        return ["r", self.objects.export(x), type(x).__name__, kind]

    # From JSON

    def decode(self, x: Any) -> Any:
        """Raises MalformedMessage, or another error for malformed data, which the channel converts."""
        if type(x) is not list:
            if type(x) is dict:
                raise MalformedMessage("an object of JSON's")
            return x
        kind, *parts = x
        return self.DECODERS[kind](self, *parts)

    def subclass(self, kind: Any, reference: Any, *items: Any) -> Any:
        plain = {"t": tuple, "l": list}[kind]
        origin = self.decode(reference)
        if not isinstance(origin, RemoteObject):
            raise MalformedMessage("a sequence from nowhere")
        sequence: Any = type(type(origin).__name__, (RemoteSequence, plain), {"origin": origin})
        return sequence(map(self.decode, items))

    def scalar(self, dtype: Any, text: Any) -> Any:
        if dtype == "U":
            return np.str_(text)
        data = bytes.fromhex(text)
        if dtype == "S":
            return np.bytes_(data)
        kind = decode_dtype(dtype)
        if kind.itemsize != len(data):
            raise MalformedMessage("a number of another size")
        return np.frombuffer(data, kind)[0]

    def object_array(self, *shape: Any) -> np.ndarray:
        """An array of objects, without its elements: a check refuses it for its dtype."""
        if math.prod(shape, start=8) > MAX_BYTES:
            raise MalformedMessage("an array too large")
        return np.full(shape, None, object)

    DECODERS: Mapping[str, Callable[..., Any]] = {
        "t": lambda self, *items: tuple(map(self.decode, items)),
        "l": lambda self, *items: list(map(self.decode, items)),
        "d": lambda self, *pairs: {self.decode(key): self.decode(value) for key, value in pairs},
        "a": lambda self, *place: self.arrays.decode(place),
        "n": scalar,
        "b": lambda self, text: bytes.fromhex(text),
        "c": lambda self, real, imag: complex(real, imag),
        "slice": lambda self, *parts: slice(*map(self.decode, parts)),
        "dtype": lambda self, text: decode_dtype(text),
        "ufunc": lambda self, name: decode_ufunc(name),
        "record": lambda self, name, *parts: self.records[name](*map(self.decode, parts)),
        "of": subclass,
        "objects": object_array,
        "r": lambda self, *reference: self.objects.proxy(*reference),
        "restricted": lambda self, number, name, constants, *names: self.objects.restricted(
            number, name, dict(constants), *names
        ),
        "own": lambda self, number: self.objects.lookup(number),
    }


def decode_dtype(dtype: Any) -> np.dtype[Any]:
    if not DTYPE.fullmatch(dtype):
        raise MalformedMessage("no dtype")
    return np.dtype(dtype)


def decode_ufunc(name: Any) -> np.ufunc:
    function = vars(np).get(name)
    if not isinstance(function, np.ufunc):
        raise MalformedMessage("no function of NumPy's")
    return function


class Channel:
    """One end of the connection; the judge's end and the worker's end override the methods at the bottom."""

    def __init__(self, connection: socket.socket, parity: int, records: Mapping[str, type[Any]]):
        self.connection, self.stream = connection, connection.makefile("rb")
        self.arrays, self.objects = SharedArrays(parity), ObjectTable(self)
        self.serializer = Serializer(self.arrays, self.objects, self.reference_kind, records)

    def request(self, action: str, *parts: Any) -> Any:
        """Call the other side; its result, or the exception that it raised."""
        self.send("call", self.encode((action, *parts)))
        while True:
            kind, body, line = self.receive()
            if kind == "return":
                return body
            if kind == "raise":
                raise self.decode_error(body)
            self.serve(body, line)

    def serve(self, call: Any, line: int | None) -> None:
        """Answer a call of the other side with its result, or with the exception that it raises."""
        try:
            if type(call) is not tuple or not call or type(call[0]) is not str:
                raise MalformedMessage("no call")
            self.send("return", self.encode(self.answer(line, *call)))
        except BaseException as error:
            if self.is_fatal(error):
                raise
            self.send("raise", self.encode(self.encode_error(error)))

    def encode(self, value: Any) -> str:
        return to_json(self.serializer.encode(value))

    def send(self, kind: str, body: str) -> None:
        changes, content = self.arrays.changes()
        unused = [self.objects.unused.pop() for _ in range(len(self.objects.unused))]
        message = pack([kind, changes, unused, self.current_line()], body, content)
        try:
            self.connection.sendall(message)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self) -> tuple[str, Any, int | None]:
        """The next message's kind, value and line; raises MalformedMessage or ChannelClosed."""
        header, body, content = read(self.stream)
        try:
            kind, changes, unused, line = header
            self.arrays.apply(changes, content)
            value = self.serializer.decode(body)
            self.objects.release(unused)
        except MalformedMessage:
            raise
        except Exception as error:
            raise MalformedMessage(f"a message that is none: {type(error).__name__}: {error}"[:200]) from None
        finally:
            self.arrays.alive = []  # from now on an array lives only as long as it is used
        if kind not in ("call", "return", "raise") or (line is not None and type(line) is not int):
            raise MalformedMessage("a message of no kind")
        return kind, value, line

    # The two ends differ here

    def is_fatal(self, error: BaseException) -> bool:
        """Whether the connection itself failed, so that nothing more can be sent."""
        return isinstance(error, MalformedMessage | ChannelClosed)

    def reference_kind(self, x: Any) -> str:
        """The kind of reference by which the object may be sent; raises TypeError where it may not."""
        raise NotImplementedError

    def answer(self, line: int | None, action: str, *parts: Any) -> Any:
        """The result of the other side's call, made at ``line`` of its program."""
        raise NotImplementedError

    def encode_error(self, error: BaseException) -> Any:
        raise NotImplementedError

    def decode_error(self, encoded: Any) -> BaseException:
        return decode_errors(encoded)[0]

    def current_line(self) -> int | None:
        """The line of the submission that is running; the judge has none."""
        return None
