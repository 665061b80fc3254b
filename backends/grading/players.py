"""The judge's end: a process for each rank's program, what it is asked, and what it may ask."""

from __future__ import annotations

import os
import socket
import threading
import types
from contextlib import suppress
from functools import partial
from typing import Any

from ..comm.mailboxes import elsewhere
from . import raised
from .channel import Channel
from .ending import ending
from .frame import Closed, Malformed
from .offered import Offer
from .player import ALIVE, COMMAND, STATUS
from .settings import Settings
from .start_player import start_player
from .task import Wrong

FUNCTIONS = (types.FunctionType, types.MethodType, partial)
ANSWERING = 1.0  # seconds that a program has to say where it is


class Ended(Wrong):
    """The process of a rank's program has ended, or does not do its part of the talk."""


class Player(Channel):
    """The judge's end of the line to one rank's program, whose text is of ``file``.

    The program may call the functions that a check hands over, and use what an Offer offers; there is nothing
    else that it can ask for. A Wrong that such a call raises is raised again when the program has returned,
    whatever it made of it.
    """

    def __init__(self, line: socket.socket, rank: int, players: Players, file: str):
        super().__init__(line, 0, players.settings.classes())
        self.rank, self.players, self.file = rank, players, file
        self.depth, self.ended = 0, ""
        self.originals: list[BaseException] = []  # what was raised on the program's behalf
        self.wrong: Wrong | None = None

    def request(self, what: str, *parts: Any) -> Any:
        if self.ended:
            raise Ended(self.ended)
        if self.depth == 0:
            self.originals, self.wrong = [], None
        self.depth += 1
        found = error = None
        try:
            found = super().request(what, *parts)
        except (Closed, Malformed):
            self.ended = self.ended or self.players.how_ended(self.rank)
            raise Ended(self.ended) from None
        except BaseException as problem:
            error = problem
        finally:
            self.depth -= 1
        if self.depth == 0 and self.wrong is not None:
            raise self.wrong  # not while the error is handled: the Wrong is among its causes
        if error is not None:
            raise error
        return found

    def broken(self, error: BaseException) -> bool:
        return super().broken(error) or isinstance(error, Ended)

    def kind(self, x: Any) -> str:
        if isinstance(x, FUNCTIONS):
            return "function"
        raise TypeError(f"a check hands over a {type(x).__name__}: it should be an Offer")

    def answer(self, line: int | None, what: str, *parts: Any) -> Any:
        number, *rest = parts
        x = self.references.own(number)
        with elsewhere(f"{os.path.basename(self.file)}:{line}" if line else ""):
            if what == "call" and isinstance(x, FUNCTIONS):
                arguments, settings = rest
                return x(*arguments, **settings)
            if what == "method" and isinstance(x, Offer):
                name, arguments, settings = rest
                if name in x.calls:
                    return x.calls[name](*arguments, **settings)
            if what == "attribute" and isinstance(x, Offer) and rest[0] in x.live:
                return x.live[rest[0]]()
        raise Malformed(f"nothing to {what:.20}")

    def described(self, error: BaseException) -> Any:
        wrong = next((e for e in raised.chain(error) if isinstance(e, Wrong)), None)
        if self.wrong is None:
            self.wrong = wrong
        names = [kind.__name__ for kind in type(error).__mro__]
        text = raised.words(error) if wrong is None else "see the report"
        self.originals.append(error)
        return [[names, text, None, None, len(self.originals) - 1, False]]

    def rebuilt(self, described: Any) -> BaseException:
        errors = raised.rebuild(described)
        for error in errors:
            if error.origin is not None and 0 <= error.origin < len(self.originals):
                error.__cause__ = self.originals[error.origin]
        return errors[0]


class Players:
    """The processes of all ranks' programs; none is there before it is asked for."""

    def __init__(self, settings: Settings):
        self.settings, self.lock = settings, threading.Lock()
        self.control, theirs = socket.socketpair()
        self.process = start_player(theirs, settings)
        theirs.close()
        self.asks: dict[int, socket.socket] = {}

    def start(self, rank: int, file: str) -> Player:
        """The line to a new process for that rank; raises Ended where there can be none."""
        (line, other), (self.asks[rank], far) = socket.socketpair(), socket.socketpair()
        with other, far, self.lock:
            try:
                command = COMMAND.pack(b"f", rank)
                socket.send_fds(self.control, [command], [other.fileno(), far.fileno()])
                if len(self.control.recv(STATUS.size)) < STATUS.size:
                    raise Ended("the process that runs the submission could not be started")
            except OSError:
                raise Ended("the process that runs the submission was ended") from None
        return Player(line, rank, self, file)

    def close(self) -> None:
        """End all processes; what they printed is passed on by then."""
        self.control.close()
        self.process.close()

    def how_ended(self, rank: int) -> str:
        """In words, why a rank's process says no more."""
        with self.lock, suppress(OSError):
            self.control.sendall(COMMAND.pack(b"s", rank))
            found = self.control.recv(STATUS.size)
            if len(found) == STATUS.size and (status := STATUS.unpack(found)[0]) != ALIVE:
                return ending(status, self.settings.seconds)
        return "the process that runs it does not answer as it should"

    def places(self, file: str) -> list[str]:
        """``rank 1 was at line 12`` for every rank that is in ``file``, as its own process says."""
        found = []
        for rank, asks in sorted(self.asks.items()):
            with suppress(OSError):
                asks.settimeout(ANSWERING)
                asks.sendall(b"?")
                answer = asks.recv(STATUS.size)
                if len(answer) == STATUS.size and (line := STATUS.unpack(answer)[0]) > 0:
                    found.append(f"rank {rank} was at line {line} of {os.path.basename(file)}")
        return found
