"""The processes that run a submission: ``python -P -s -S -c START PATHS CONTROL SETTINGS``.

The first process imports all modules that a submission may import, from the folders PATHS. On the judge's
commands over the socket CONTROL it forks one process for each rank, which enters the sandbox, loads the
submission and answers the judge's calls. No worker knows the correct results, nor holds the library: the
functions of it that a starter imports are the judge's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass
from itertools import islice
from types import FrameType, ModuleType
from typing import Any, NoReturn

from . import sandbox
from .messages import ChannelClosed, MalformedMessage, encode_error
from .rpc import Channel

COMMAND, STATUS = struct.Struct(">cI"), struct.Struct(">i")
MAX_REPR = 200  # characters
ALIVE = 1000
EXIT_SECONDS = 2.0  # a process whose connection is closed should have ended by then

START = """
import json, sys
sys.path += json.loads(sys.argv[1])
from worker.worker import main
main(*sys.argv[2:])
"""


@dataclass(frozen=True)
class WorkerSettings:
    """A process's limits, and the ``modules`` that it imports beforehand.

    ``records`` are dataclasses as [module, name, [[field, default], ...]]; a field without a default stands
    alone. A ``trusted`` worker may read and import what it likes: it runs the library's own answers. The
    submission can read the settings, so they contain no secret.
    """

    mebibytes: int
    seconds: float
    modules: list[str]
    records: list[Any]
    trusted: bool = False

    def record_classes(self) -> dict[str, type[Any]]:
        """The records' classes by their names: the library's own in a trusted worker, else their likes."""
        return {name: self.record_class(module, name, parts) for module, name, parts in self.records}

    def record_class(self, module: str, name: str, parts: list[Any]) -> type[Any]:
        if self.trusted:
            return getattr(importlib.import_module(module), name)
        described = [(part[0], Any, *(field(default=value) for value in part[1:])) for part in parts]
        record = make_dataclass(name, described, frozen=True)
        record.__module__ = module
        enter_name(module, name, record)
        return record


def enter_name(module: str, name: str, value: Any) -> None:
    """Let ``from module import name`` find the value; other names of that module are absent."""
    package, _, last = module.rpartition(".")
    if module not in sys.modules:
        sys.modules[module] = ModuleType(module)
        vars(sys.modules[module])["__path__"] = []
        if package:
            enter_name(package, last, sys.modules[module])
    vars(sys.modules[module])[name] = value


class Worker(Channel):
    """One rank's end of the connection to the judge, with the submission as a module once it is loaded."""

    def __init__(self, connection: socket.socket, records: Mapping[str, type[Any]]):
        super().__init__(connection, 1, records)
        self.file, self.module = "", ModuleType("submission")
        self.thread = threading.get_ident()

    def answer(self, line: int | None, action: str, *parts: Any) -> Any:
        if action in ("provide", "load", "replace", "name", "names"):
            return getattr(self, action)(*parts)
        number, *rest = parts
        x = self.objects.lookup(number)
        if action == "call":
            arguments, settings = rest
            return x(*arguments, **settings)
        if action == "items":
            return self.items(x, *rest)
        if action == "repr":
            return repr(x)[:MAX_REPR]
        return {"attribute": getattr, "iterator": iter}[action](x, *rest)

    def provide(self, module: str, name: str, function: Any) -> None:
        """Let the program import ``function``, which is the judge's, as the library's of that name."""
        enter_name(module, name, function)

    def load(self, source: str, file: str) -> None:
        """Make the program a module, from the text that the grader read, whatever the file holds now."""
        self.file, self.module.__file__ = file, file
        sys.modules["submission"] = self.module
        exec(compile(source, file, "exec", dont_inherit=True), self.module.__dict__)

    def replace(self, name: str, function: Any) -> None:
        """Let the program call ``function``, which is the judge's, in place of its own of that name."""
        setattr(self.module, name, function)

    def name(self, name: str) -> Any:
        return getattr(self.module, name)

    def names(self) -> list[str]:
        return [name for name in vars(self.module) if type(name) is str]

    def items(self, iterator: Iterator[Any], count: int) -> tuple[list[Any], Any]:
        """The next items and, where an error ended them, a function that raises it."""
        items: list[Any] = []
        problem: BaseException | None = None
        try:
            items.extend(islice(iterator, count))
        except BaseException as error:
            problem = error

        def reraise() -> NoReturn:
            assert problem is not None
            raise problem

        return items, None if problem is None else reraise

    def request(self, action: str, *parts: Any) -> Any:
        if threading.get_ident() != self.thread:
            raise RuntimeError("a submission may call the grader's functions only in its own main thread")
        return super().request(action, *parts)

    def reference_kind(self, x: Any) -> str:
        return "function" if callable(x) else "iterable" if hasattr(type(x), "__iter__") else "object"

    def encode_error(self, error: BaseException) -> Any:
        return encode_error(error, self.file)

    def current_line(self) -> int | None:
        return line_of(sys._getframe(), self.file)


def line_of(frame: FrameType | None, file: str) -> int | None:
    """The innermost line of ``file`` that is running."""
    return next((line for f, line in traceback.walk_stack(frame) if f.f_code.co_filename == file), None)


def serve_rank(connection: socket.socket, line_requests: socket.socket, settings: WorkerSettings) -> NoReturn:
    """The process of one rank: enter the sandbox, then answer calls until the judge has gone."""
    with suppress(Exception):
        sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore  lines of ranks come as they are printed
    worker = Worker(connection, settings.record_classes())
    descriptors = [connection.fileno(), line_requests.fileno()]
    sandbox.enter(settings.mebibytes, settings.seconds, descriptors, reading=settings.trusted)
    arguments = (line_requests, worker, threading.get_ident())
    threading.Thread(target=report_lines, args=arguments, daemon=True).start()
    with suppress(ChannelClosed, MalformedMessage):
        while True:
            kind, call, line = worker.receive()
            if kind != "call":
                break
            worker.serve(call, line)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def report_lines(line_requests: socket.socket, worker: Worker, thread: int) -> None:
    """Answer each request with the line at which the submission is."""
    with suppress(OSError):
        while line_requests.recv(1):
            line = line_of(frames_of_threads().get(thread), worker.file)
            line_requests.sendall(STATUS.pack(line or 0))


def frames_of_threads() -> dict[int, FrameType]:
    """``sys._current_frames()``, while no garbage is collected.

    In Python 3.11 that call waits for itself for ever where garbage is collected in it (CPython's issue
    106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def main(descriptor: str, text: str) -> NoReturn:
    """Import the modules; then fork a process for each rank that the judge asks for."""
    control, settings = socket.socket(fileno=int(descriptor)), WorkerSettings(**json.loads(text))
    sandbox.preload(settings.modules)
    serve_judge(control, settings)


def serve_judge(control: socket.socket, settings: WorkerSettings) -> NoReturn:
    """Fork for each ``f``, with two sockets and a pipe; answer each ``s`` with a rank's exit status."""
    children: dict[int, int] = {}
    while True:
        data, descriptors, *_ = socket.recv_fds(control, COMMAND.size, 3)
        if len(data) < COMMAND.size:
            os._exit(0)
        command, rank = COMMAND.unpack(data)
        if command == b"f":
            pid = os.fork()
            if pid == 0:
                control.close()
                connection, line_requests, output = descriptors
                for descriptor in (1, 2):
                    os.dup2(output, descriptor)
                serve_rank(socket.socket(fileno=connection), socket.socket(fileno=line_requests), settings)
            children[rank] = pid
            for descriptor in descriptors:
                os.close(descriptor)
        control.sendall(STATUS.pack(0 if command == b"f" else exit_status(children[rank])))


def exit_status(pid: int) -> int:
    """The process's exit status, negative for a signal; ALIVE where it runs, or was asked for before."""
    deadline = time.monotonic() + EXIT_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
    return ALIVE
