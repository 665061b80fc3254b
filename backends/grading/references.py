"""Objects that stay where they are: the other side has a ``Remote`` and asks for what is done with them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from .frame import Malformed
from .offered import absent

if TYPE_CHECKING:
    from .channel import Channel

BATCH = 32  # items of an iterator that are fetched at once
MOST_TYPES = 1000


class Remote:
    """An object of the other side. Its class is called as the object's own is."""

    def __init__(self, channel: Channel, number: int):
        self._channel, self._number, self._count = channel, number, 0

    def __del__(self) -> None:
        self._channel.references.gone.append([self._number, self._count])

    def at_home(self, channel: Channel) -> int:
        """Its number where it comes from."""
        if self._channel is not channel:
            raise TypeError("an object of one rank's program cannot go to another's")
        return self._number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and NumPy look for by themselves
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._channel.request("attribute", self._number, name)

    def __repr__(self) -> str:
        return str(self._channel.request("repr", self._number))


class RemoteFunction(Remote):
    """It can be called."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return self._channel.request("call", self._number, arguments, settings)


class RemoteIterable(Remote):
    """It can be iterated over; what an iterator has is fetched some items at a time."""

    def __iter__(self) -> Iterator[Any]:
        iterator = self._channel.request("iterator", self._number)
        while True:
            items, again = self._channel.request("items", iterator._number, BATCH)
            yield from items
            if isinstance(again, RemoteFunction):
                again()  # it raises what ended them
            if len(items) < BATCH:
                return


class RemoteOffer(Remote):
    """What the judge offers: its names are known here."""

    def of(self, what: str, fixed: dict[str, int], calls: list[str], live: list[str]) -> RemoteOffer:
        self._what, self._fixed, self._calls, self._live = what, fixed, calls, live
        return self

    def charge_reduction(self, nbytes: int) -> None:
        """Collectives call this for a virtual clock; there is none here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__("__" + name)
        if name in self._fixed:
            return self._fixed[name]
        if name in self._calls:
            return partial(self._call, name)
        if name in self._live:
            return self._channel.request("attribute", self._number, name)
        raise AttributeError(absent(self._what, name, [*self._fixed, *self._calls, *self._live]))

    def _call(self, name: str, /, *arguments: Any, **settings: Any) -> Any:
        return self._channel.request("method", self._number, name, arguments, settings)


KINDS = {"object": Remote, "function": RemoteFunction, "iterable": RemoteIterable, "offer": RemoteOffer}


class References:
    """The objects that the other side may name by number, and what this side has of the other's."""

    def __init__(self, channel: Channel):
        self.channel, self.next = channel, 0
        self.lent: dict[int, list[Any]] = {}  # the object, and how often it was sent
        self.numbers: dict[int, int] = {}  # by the object's id
        self.borrowed: weakref.WeakValueDictionary[int, Remote] = weakref.WeakValueDictionary()
        self.gone: list[list[int]] = []  # of which the other side does not know yet
        self.types: dict[tuple[str, str], type[Remote]] = {}

    def lend(self, x: Any) -> int:
        number = self.numbers.get(id(x))
        if number is None:
            number, self.next = self.next, self.next + 1
            self.numbers[id(x)], self.lent[number] = number, [x, 0]
        self.lent[number][1] += 1
        return number

    def own(self, number: Any) -> Any:
        """The object of this side that the other names; raises Malformed where it was not sent."""
        if type(number) is not int or number not in self.lent:
            raise Malformed(f"no object has the number {number!r:.20}")
        return self.lent[number][0]

    def borrow(self, number: Any, name: Any, kind: Any) -> Remote:
        """The other side's object ``number``, an instance of a class ``name``."""
        if type(number) is not int or type(name) is not str or kind not in KINDS:
            raise Malformed("a reference to nothing")
        found = self.borrowed.get(number)
        if found is None:
            key = (name if name.isidentifier() and len(name) < 100 else "object", kind)
            if key not in self.types and len(self.types) < MOST_TYPES:
                self.types[key] = type(key[0], (KINDS[kind],), {})
            made = self.types.get(key) or KINDS[kind]
            found = made(self.channel, number)
            self.borrowed[number] = found
        found._count += 1
        return found

    def returned(self) -> list[list[int]]:
        """What this side has no more, to be told."""
        return [self.gone.pop() for _ in range(len(self.gone))]

    def forget(self, gone: Any) -> None:
        """Let go of what the other side has no more."""
        for number, count in gone:
            if type(count) is not int or count < 0:
                raise Malformed("a count that is none")
            entry = self.lent.get(number)
            if entry is not None:
                entry[1] -= count
                if entry[1] <= 0:
                    del self.lent[number], self.numbers[id(entry[0])]
