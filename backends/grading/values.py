"""What crosses between the judge and a player, as JSON: plain values, arrays, and references to the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .frame import MOST, Malformed
from .memory import DTYPE, Memory
from .offered import Offer
from .references import References, Remote, RemoteOffer

DEEPEST = 50
LARGEST = 2**64  # whole numbers beyond it are sent as text
HEX = re.compile(r"-?0x[0-9a-f]{1,4000}")


class Remembered:
    """Where a tuple or a list of a class of its own came from: it goes home as what it is there."""

    origin: Remote | None = None


class Values:
    """Turns values into JSON and back; ``lend`` says what may cross as a reference, and as what kind.

    Tuples, lists and dictionaries are copied. ``records`` are classes whose instances both sides make of
    the same fields.
    """

    def __init__(
        self,
        memory: Memory,
        references: References,
        lend: Callable[[Any], str],
        records: Mapping[str, type[Any]],
    ):
        self.memory, self.references, self.lend, self.records = memory, references, lend, records

    # To JSON

    def encode(self, x: Any, depth: int = 0) -> Any:
        """Raises TypeError or ValueError for what does not cross."""
        kind = type(x)
        if x is None or kind is bool or kind is float or (kind is int and -LARGEST < x < LARGEST):
            return x
        if kind is str:
            return x
        if depth > DEEPEST:
            raise ValueError(f"a value that is nested more than {DEEPEST} deep, or holds itself")
        if kind is tuple or kind is list:
            return ["t" if kind is tuple else "l", *(self.encode(item, depth + 1) for item in x)]
        if kind is np.ndarray:
            if x.dtype.hasobject:
                return ["objects", *x.shape]
            return ["a", *self.memory.describe(x)]
        if isinstance(x, np.str_ | np.bytes_):
            return ["n", "U", str(x)] if isinstance(x, np.str_) else ["n", "S", x.hex()]
        if isinstance(x, np.generic) and not x.dtype.hasobject and DTYPE.fullmatch(x.dtype.str):
            return ["n", x.dtype.str, x.tobytes().hex()]
        if isinstance(x, Offer):
            names = [[name, x.fixed[name]] for name in x.fixed], [*x.calls], [*x.live]
            return ["offer", self.references.lend(x), x.what, *names]
        if isinstance(x, Remote):
            return ["home", x.at_home(self.references.channel)]
        return self.encode_rare(x, depth + 1)

    def encode_rare(self, x: Any, depth: int) -> Any:
        kind = type(x)
        if kind is slice:
            return ["slice", *(self.encode(part, depth) for part in (x.start, x.stop, x.step))]
        if kind in (bytes, complex):
            return ["b", x.hex()] if kind is bytes else ["c", x.real, x.imag]
        if isinstance(x, np.dtype) and DTYPE.fullmatch(x.str):
            return ["dtype", x.str]
        if self.records.get(kind.__name__) is kind:
            names = [field.name for field in fields(self.records[kind.__name__])]
            return ["record", kind.__name__, *(self.encode(getattr(x, name), depth) for name in names)]
        if isinstance(x, dict):
            return ["d", *([self.encode(key, depth), self.encode(x[key], depth)] for key in x)]
        if isinstance(x, Remembered) and x.origin is not None:
            return ["home", x.origin.at_home(self.references.channel)]
        if isinstance(x, tuple | list):
            items = [self.encode(item, depth) for item in x]
            return ["of", "t" if isinstance(x, tuple) else "l", self.reference(x, "object"), *items]
        if isinstance(x, int):
            return ["int", hex(x)]
        for plain in (float, str):
            if isinstance(x, plain):
                return self.encode(plain(x), depth)
        return self.reference(x, self.lend(x))

    def reference(self, x: Any, kind: str) -> list[Any]:
        return ["r", self.references.lend(x), type(x).__name__, kind]

    # From JSON

    def decode(self, x: Any) -> Any:
        """Raises Malformed, or what Python raises for nonsense; the channel makes Malformed of it."""
        if type(x) is not list:
            if type(x) is dict:
                raise Malformed("an object of JSON's")
            return x
        kind, *parts = x
        return self.DECODERS[kind](self, *parts)

    def offer(self, number: Any, what: Any, fixed: Any, calls: Any, live: Any) -> Any:
        found = self.references.borrow(number, what, "offer")
        assert isinstance(found, RemoteOffer)
        return found.of(what, dict(fixed), calls, live)

    def sequence(self, kind: str, items: Any) -> Any:
        return tuple(map(self.decode, items)) if kind == "t" else list(map(self.decode, items))

    def home(self, number: Any) -> Any:
        return self.references.own(number)

    def subclass(self, kind: Any, reference: Any, *items: Any) -> Any:
        plain = {"t": tuple, "l": list}[kind]
        origin = self.decode(reference)
        if not isinstance(origin, Remote):
            raise Malformed("a sequence from nowhere")
        made: Any = type(type(origin).__name__, (Remembered, plain), {"origin": origin})
        return made(map(self.decode, items))

    def scalar(self, dtype: Any, text: Any) -> Any:
        if dtype == "U":
            return np.str_(text)
        data = bytes.fromhex(text)
        if dtype == "S":
            return np.bytes_(data)
        kind = checked(dtype)
        if kind.itemsize != len(data):
            raise Malformed("a number of another size")
        return np.frombuffer(data, kind)[0]

    def record(self, name: Any, *parts: Any) -> Any:
        return self.records[name](*map(self.decode, parts))

    def big(self, text: Any) -> int:
        if not HEX.fullmatch(text):
            raise Malformed("a whole number that is none")
        return int(text, 16)

    def objects(self, *shape: Any) -> np.ndarray:
        """An array of objects: there is nothing in it, so that it is refused for what it is."""
        elements = 8
        for n in shape:
            elements *= n
        if elements > MOST:
            raise Malformed("an array too large")
        return np.full(shape, None, object)

    DECODERS: Mapping[str, Callable[..., Any]] = {
        "t": lambda self, *items: self.sequence("t", items),
        "l": lambda self, *items: self.sequence("l", items),
        "d": lambda self, *pairs: {self.decode(key): self.decode(value) for key, value in pairs},
        "a": lambda self, *place: self.memory.array(place),
        "n": scalar,
        "b": lambda self, text: bytes.fromhex(text),
        "c": lambda self, real, imag: complex(real, imag),
        "slice": lambda self, *parts: slice(*map(self.decode, parts)),
        "dtype": lambda self, text: checked(text),
        "record": record,
        "of": subclass,
        "int": big,
        "objects": objects,
        "r": lambda self, *what: self.references.borrow(*what),
        "offer": offer,
        "home": lambda self, number: self.home(number),
    }


def checked(dtype: Any) -> np.dtype[Any]:
    if not DTYPE.fullmatch(dtype):
        raise Malformed("no dtype")
    return np.dtype(dtype)
