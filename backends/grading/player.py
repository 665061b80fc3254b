"""The process that runs a submission: ``python -m backends.grading.player CONTROL SETTINGS``.

It imports what every submission may import, then forks whenever the judge says so over the socket CONTROL: a
process for each rank, which loads the submission and does what the judge asks. None of them knows what is
right.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import FrameType, ModuleType
from typing import Any, NoReturn

from . import raised
from .channel import Channel, Closed, Malformed
from .fence import enter, prepare
from .settings import Settings

COMMAND, STATUS = struct.Struct(">cI"), struct.Struct(">i")
LONGEST = 200  # characters of a repr
ALIVE = 1000
REAPING = 2.0  # seconds in which a process whose line is closed should have ended


class Program(Channel):
    """The player's end of the line, with the submission as a module once it is loaded."""

    def __init__(self, line: socket.socket, records: Mapping[str, type[Any]]):
        super().__init__(line, 1, records)
        self.file, self.module = "", ModuleType("submission")
        self.thread = threading.get_ident()

    def answer(self, line: int | None, what: str, *parts: Any) -> Any:
        if what in ("load", "name", "names"):
            return getattr(self, what)(*parts)
        number, *rest = parts
        x = self.references.own(number)
        if what == "call":
            arguments, settings = rest
            return x(*arguments, **settings)
        if what == "items":
            return self.items(x, *rest)
        return {"attribute": getattr, "repr": shown, "iterator": iter}[what](x, *rest)

    def load(self, source: str, file: str) -> None:
        """The program as a module, made from the text that was read, whatever the file holds now."""
        self.file, self.module.__file__ = file, file
        sys.modules["submission"] = self.module
        exec(compile(source, file, "exec", dont_inherit=True), self.module.__dict__)

    def name(self, name: str) -> Any:
        return getattr(self.module, name)

    def names(self) -> list[str]:
        return [name for name in vars(self.module) if type(name) is str]

    def items(self, iterator: Iterator[Any], most: int) -> tuple[list[Any], Any]:
        """The next items and, where an error ended them, what raises it."""
        found: list[Any] = []
        try:
            found.extend(islice(iterator, most))
        except BaseException as error:
            return found, Again(error)
        return found, None

    def request(self, what: str, *parts: Any) -> Any:
        if threading.get_ident() != self.thread:
            raise RuntimeError("a submission calls what it is given in the thread that it was called in")
        return super().request(what, *parts)

    def kind(self, x: Any) -> str:
        return "function" if callable(x) else "iterable" if hasattr(type(x), "__iter__") else "object"

    def described(self, error: BaseException) -> Any:
        return raised.describe(error, self.file)

    def place(self) -> int | None:
        return line_of(sys._getframe(), self.file)


class Again:
    """Raises an error when it is called."""

    def __init__(self, error: BaseException):
        self.error = error

    def __call__(self) -> NoReturn:
        raise self.error


def shown(x: Any) -> str:
    return repr(x)[:LONGEST]


def line_of(frame: FrameType | None, file: str) -> int | None:
    """The innermost line of ``file`` that is running."""
    return next((line for f, line in traceback.walk_stack(frame) if f.f_code.co_filename == file), None)


def play(line: socket.socket, asks: socket.socket, settings: Settings) -> NoReturn:
    """The process of one rank: answer until the judge is gone."""
    with suppress(Exception):
        sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore  ranks' lines come as they are printed
    program = Program(line, settings.classes())
    enter(settings.mebibytes, settings.seconds, [line.fileno(), asks.fileno()])
    threading.Thread(target=tell_lines, args=(asks, program, threading.get_ident()), daemon=True).start()
    with suppress(Closed, Malformed):
        while True:
            kind, asked, at = program.receive()
            if kind != "ask":
                break
            program.serve(asked, at)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def tell_lines(asks: socket.socket, program: Program, thread: int) -> None:
    """Say at which line the program is, whenever that is asked."""
    with suppress(OSError):
        while asks.recv(1):
            asks.sendall(STATUS.pack(line_of(sys._current_frames().get(thread), program.file) or 0))


def main(control: socket.socket, settings: Settings) -> NoReturn:
    """Fork for each ``f`` that comes with two sockets, and say for each ``s`` how a rank's process ended."""
    prepare(settings.modules)
    children: dict[int, int] = {}
    while True:
        data, descriptors, *_ = socket.recv_fds(control, COMMAND.size, 2)
        if len(data) < COMMAND.size:
            os._exit(0)
        command, rank = COMMAND.unpack(data)
        if command == b"f":
            pid = os.fork()
            if pid == 0:
                control.close()
                line, asks = (socket.socket(fileno=descriptor) for descriptor in descriptors)
                play(line, asks, settings)
            children[rank] = pid
            for descriptor in descriptors:
                os.close(descriptor)
        control.sendall(STATUS.pack(0 if command == b"f" else how_ended(children[rank])))


def how_ended(pid: int) -> int:
    """The process's exit status, negative for a signal; ALIVE where it has not ended."""
    until = time.monotonic() + REAPING
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return ALIVE


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), Settings.read(sys.argv[2]))
