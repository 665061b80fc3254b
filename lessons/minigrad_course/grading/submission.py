"""The submission as a check sees it: names of objects that stay in worker processes, one for each rank."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from typing import Any

from backends.comm.mailboxes import elsewhere
from backends.launch.launch import THREAD_VARIABLES
from backends.process.sweep import MARK

from . import sandbox
from .assignment import Wrong
from .starter_imports import StarterImports
from .static_check import ALLOWED
from .worker.messages import ChannelClosed, MalformedMessage, causes_of, decode_errors, text_of
from .worker.restricted_object import RestrictedObject
from .worker.rpc import Channel
from .worker.worker import ALIVE, COMMAND, START, STATUS, WorkerSettings
from .worker_output import WorkerOutput

FUNCTIONS = (types.FunctionType, types.MethodType, partial)
BREAKS_PROTOCOL = "the process that runs it does not answer as it should"
LINE_SECONDS = 1.0  # in which a worker has to say at which line it is
VARIABLES = {  # Python and NumPy need these to start; other variables may hold secrets
    *(MARK, *THREAD_VARIABLES, "PATH", "LD_LIBRARY_PATH", "PYTHONHASHSEED", "SYSTEMROOT"),
    *("PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "HOME", "TMPDIR", "MPLCONFIGDIR", "MPLBACKEND"),
    "VIRTUAL_ENV",
}


class MissingName(Wrong, AttributeError):
    """The submission has no such name."""


class WorkerEnded(Wrong):
    """A rank's worker process has ended, or breaks the protocol."""


class Submission:
    """The names of a submission; a name that the starter defines must be a function or a class.

    The functions ``supplied`` take the place of the submission's own, and run in this process.
    Each rank has its own program, even where ranks are threads, so ranks do not share globals.
    """

    def __init__(
        self,
        workers: WorkerPool,
        source: str,
        file: str,
        required: set[str],
        supplied: Mapping[str, types.FunctionType],
        rank: int = 0,
    ):
        self.__file__, self._program = file, (workers, source, file, required, supplied)
        self._worker = workers.start(rank, file)
        for (module, function), called in workers.imports.functions.items():
            self._worker.request("provide", module, function, called)
        self._worker.request("load", source, file)
        for name, function in supplied.items():
            self._worker.request("replace", name, function)
        self._ranks: dict[int, Submission] = {rank: self}

    def _on(self, rank: int) -> Submission:
        if rank not in self._ranks:
            self._ranks[rank] = Submission(*self._program, rank)
        return self._ranks[rank]

    def _ended(self) -> bool:
        """Whether one of its worker processes has ended."""
        return any(submission._worker.ended for submission in self._ranks.values())

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._worker.request("name", name)
        except AttributeError:
            near = get_close_matches(name, self._worker.request("names"), 1)
            hint = f"; it has {near[0]}: is that the one?" if near else ""
            raise MissingName(f"the submission does not define {name}{hint}") from None
        if name in self._program[3] and not callable(value):
            raise Wrong(f"{name} is {value!r:.40}, not a function or a class")
        return value


def on_rank(submission: Any, rank: int) -> Any:
    """The submission as that rank has it."""
    return submission._on(rank) if isinstance(submission, Submission) else submission


class WorkerConnection(Channel):
    """The judge's end of the connection to one rank's worker, which runs the program ``file``.

    The program may call functions that a check passes to it, and the methods of a RestrictedObject, and print
    both; it can request nothing else. If such a call raises Wrong, that is raised again when the program has
    returned, even if the program caught it.
    """

    def __init__(
        self, connection: socket.socket, rank: int, workers: WorkerPool, file: str, printed: int = -1
    ):
        super().__init__(connection, 0, workers.imports.record_classes())
        self.rank, self.workers, self.file, self.printed = rank, workers, file, printed
        self.depth, self.ended = 0, ""
        self.originals: list[BaseException] = []  # raised here, in calls of the program
        self.wrong: Wrong | None = None

    def request(self, action: str, *parts: Any) -> Any:
        if self.ended:
            raise WorkerEnded(self.ended)
        if self.depth == 0:
            self.originals, self.wrong = [], None
        self.depth += 1
        result = error = None
        try:
            result = super().request(action, *parts)
        except (ChannelClosed, MalformedMessage) as problem:
            if not self.ended:
                closed = isinstance(problem, ChannelClosed)
                self.ended = self.workers.reason_of_end(self.rank) if closed else BREAKS_PROTOCOL
            raise WorkerEnded(self.ended) from None
        except BaseException as problem:
            error = problem
        finally:
            self.depth -= 1
        if self.depth == 0 and self.wrong is not None:
            raise self.wrong  # not while the error is handled: the Wrong is among its causes
        if error is not None:
            raise error
        return result

    def receive(self) -> tuple[str, Any, int | None]:
        message = super().receive()
        self.workers.output.copy_available(self.printed)  # before another rank goes on: lines stay in order
        return message

    def is_fatal(self, error: BaseException) -> bool:
        return super().is_fatal(error) or isinstance(error, WorkerEnded)

    def reference_kind(self, x: Any) -> str:
        if isinstance(x, FUNCTIONS):
            return "function"
        raise TypeError(f"a check passes a {type(x).__name__}: it should be a RestrictedObject")

    def answer(self, line: int | None, action: str, *parts: Any) -> Any:
        number, *rest = parts
        x = self.objects.lookup(number)
        with elsewhere(f"{os.path.basename(self.file)}:{line}" if line else ""):
            if action == "call" and isinstance(x, FUNCTIONS):
                arguments, settings = rest
                return x(*arguments, **settings)
            if action == "method" and isinstance(x, RestrictedObject):
                name, arguments, settings = rest
                if name in x.methods:
                    return x.methods[name](*arguments, **settings)
            if action == "attribute" and isinstance(x, RestrictedObject) and rest[0] in x.properties:
                return x.properties[rest[0]]()
            if action == "repr":  # printing is allowed, and tells nothing but the kind
                return f"<{x.name if isinstance(x, RestrictedObject) else 'function'} of the grader>"
        raise MalformedMessage(f"nothing to {action:.20}")

    def encode_error(self, error: BaseException) -> Any:
        wrong = next((e for e in causes_of(error) if isinstance(e, Wrong)), None)
        if self.wrong is None:
            self.wrong = wrong
        names = [kind.__name__ for kind in type(error).__mro__]
        text = text_of(error) if wrong is None else "see the report"
        self.originals.append(error)
        return [[names, text, None, None, len(self.originals) - 1, False]]

    def decode_error(self, encoded: Any) -> BaseException:
        errors = decode_errors(encoded)
        for error in errors:
            if error.origin is not None and 0 <= error.origin < len(self.originals):
                error.__cause__ = self.originals[error.origin]
        return errors[0]


class WorkerPool:
    """The worker processes of all ranks; a rank's process is started when it is first needed.

    They inherit only this process's folder, a few of its variables, and a pipe each for their output.
    ``trusted`` ones can import the library: they run its own answers.
    """

    def __init__(self, mebibytes: int, seconds: float, imports: StarterImports, *, trusted: bool = False):
        self.imports, self.seconds, self.lock = imports, seconds, threading.Lock()
        settings = WorkerSettings(
            mebibytes, seconds, [*ALLOWED, *imports.modules], imports.described_records(), trusted
        )
        self.line_requests: dict[int, socket.socket] = {}
        self.output = WorkerOutput()
        (self.control, far), (_, output) = socket.socketpair(), self.output.open_pipe()
        arguments = [sandbox.worker_paths(), str(far.fileno()), json.dumps(asdict(settings))]
        self.process = subprocess.Popen(
            [*sandbox.prefix(), *sandbox.ISOLATED, START, *arguments],
            env={name: value for name, value in os.environ.items() if name in VARIABLES},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[far.fileno()],
        )
        far.close()
        os.close(output)

    def start(self, rank: int, file: str) -> WorkerConnection:
        """The connection to a new process for that rank; raises WorkerEnded where there can be none."""
        (connection, far), (self.line_requests[rank], far_lines) = socket.socketpair(), socket.socketpair()
        printed, output = self.output.open_pipe()
        with far, far_lines, os.fdopen(output, "wb"), self.lock:
            try:
                descriptors = [far.fileno(), far_lines.fileno(), output]
                socket.send_fds(self.control, [COMMAND.pack(b"f", rank)], descriptors)
                if len(self.control.recv(STATUS.size)) < STATUS.size:
                    raise WorkerEnded("the process that runs the submission could not be started")
            except OSError:
                raise WorkerEnded("the process that runs the submission was ended") from None
        return WorkerConnection(connection, rank, self, file, printed)

    def close(self) -> None:
        """End all processes; all of their output is copied by then."""
        self.control.close()
        self.process.kill()
        self.output.join()

    def reason_of_end(self, rank: int) -> str:
        """The reason, in words, why a rank's process does not answer."""
        with self.lock, suppress(OSError):
            self.control.sendall(COMMAND.pack(b"s", rank))
            data = self.control.recv(STATUS.size)
            if len(data) == STATUS.size and (status := STATUS.unpack(data)[0]) != ALIVE:
                return sandbox.describe_exit(status, self.seconds)
        return BREAKS_PROTOCOL

    def current_lines(self, file: str) -> list[str]:
        """``rank 1 was at line 12`` for every rank that runs ``file``, as its own process says."""
        lines = []
        for rank, line_requests in sorted(self.line_requests.items()):
            with suppress(OSError):
                line_requests.settimeout(LINE_SECONDS)
                line_requests.sendall(b"?")
                answer = line_requests.recv(STATUS.size)
                if len(answer) == STATUS.size and (line := STATUS.unpack(answer)[0]) > 0:
                    lines.append(f"rank {rank} was at line {line} of {os.path.basename(file)}")
        return lines
