"""MPI processes that stay, and run one script after another: their start takes longer than most scripts.

A pool is for scripts that end well on all ranks, and leave MPI, the environment and minigrad's modules as
they were. A script that hangs, or whose ranks are killed, has a job of its own (``Processes.ranks``).
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from backends.launch.launch import environment, find_mpiexec
from backends.process.sweep import sweep_memory

if TYPE_CHECKING:
    from backends.comm.mpi import MPIComm

ROOT = Path(__file__).parents[2]
MODULES = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
VARIABLES = {"PYTHONPATH": MODULES, "OPENBLAS_NUM_THREADS": "1", "MINIGRAD_TIMEOUT": "60"}
GRACE = 5.0  # seconds after an error in which the other ranks may report theirs
LIMIT = 60.0  # seconds within which all processes have started, or ended; a bound, no measurement


class RankPool:
    """At least ``size`` ranks, which start with the first script and end with the process of the tests."""

    def __init__(self, size: int = 4):
        self.size = size
        self.ranks: list[tuple[Connection, int]] = []  # to each rank, and the number of its process

    def run(self, n: int, script: str, seconds: float = 120.0) -> str:
        """Run ``script`` on ``n`` ranks, each with a new communicator ``comm``; returns what they printed.

        Raises AssertionError, with the traceback of each rank, where one of them raises an error, ends,
        leaves a message that no rank has received, or takes more than ``seconds``. The next script then gets
        new processes.
        """
        if n > len(self.ranks):
            self.close()
            self.start(max(n, self.size))
        folder = Path(tempfile.mkdtemp(dir=self.folder.name))
        (folder / "script.py").write_text(script, encoding="utf-8")
        try:
            for connection, _ in self.ranks[:n]:
                connection.send((str(folder), n, seconds))
            reports = self.reports(n, seconds)
            output = "".join(out for out, _ in reports)
            errors = "".join(f"rank {rank}: {error}\n" for rank, (_, error) in enumerate(reports) if error)
            assert not errors, "\n".join(
                [errors, output, (Path(self.folder.name) / "output").read_text(encoding="utf-8")]
            )
        except BaseException:
            self.job.terminate()
            self.close()
            raise
        return output

    def reports(self, n: int, seconds: float) -> list[tuple[str, str]]:
        """What each of ``n`` ranks printed, and its error; of a rank that is late this is its stack."""
        reports, end = dict[int, tuple[str, str]](), time.monotonic() + seconds
        waiting = {self.ranks[rank][0]: rank for rank in range(n)}
        while waiting and (ready := wait(list(waiting), max(0.0, end - time.monotonic()))):
            for connection in [one for one in waiting if one in ready]:
                rank = waiting.pop(connection)
                try:
                    reports[rank] = connection.recv()
                except (EOFError, OSError):
                    reports[rank] = "", "its process has ended"
                if reports[rank][1]:
                    end = min(end, time.monotonic() + GRACE)
        for rank in waiting.values():
            os.kill(self.ranks[rank][1], signal.SIGQUIT)
        late = "it still ran when its time was up or another rank failed"
        return [
            reports[rank] if rank in reports else ("", f"{late}\n{self.stack(rank)}") for rank in range(n)
        ]

    def stack(self, rank: int) -> str:
        """What a rank writes when it gets SIGQUIT; its last line is the program's outermost function."""
        file, end = Path(self.folder.name) / f"stack.{rank}", time.monotonic() + GRACE
        while (
            "in _run_module_as_main" not in (text := file.read_text(encoding="utf-8"))
            and time.monotonic() < end
        ):
            time.sleep(0.02)
        return text

    def start(self, size: int) -> None:
        self.began = time.time()
        self.folder = tempfile.TemporaryDirectory(prefix="minigrad-ranks-")
        address = f"{self.folder.name}/socket"
        with (
            socket.socket(socket.AF_UNIX) as listener,
            open(f"{self.folder.name}/output", "w", encoding="utf-8") as output,
        ):
            listener.bind(address)
            listener.listen(size)
            listener.settimeout(LIMIT)
            self.job = subprocess.Popen(
                [str(find_mpiexec()), "-n", str(size), sys.executable, "-m", "tests.mpi.rank_pool", address],
                cwd=self.folder.name,
                env={**environment(size), **VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            connections = [Connection(listener.accept()[0].detach()) for _ in range(size)]
        numbers = {connection.recv(): connection for connection in connections}
        self.ranks = [(connection, process) for (_, process), connection in sorted(numbers.items())]

    def close(self) -> None:
        """End the processes: without its connection a rank has nothing more to do."""
        if not self.ranks:
            return
        for connection, _ in self.ranks:
            connection.close()
        self.ranks = []
        self.job.wait(LIMIT)
        self.folder.cleanup()
        sweep_memory(self.began)


def main(address: str) -> None:
    """Be one rank of a pool, until the process of the tests closes the connection or ends."""
    from mpi4py import MPI

    gc.set_threshold(10_000)  # as in conftest
    rank = MPI.COMM_WORLD.Get_rank()
    with open(f"stack.{rank}", "w", encoding="utf-8") as stack, Client(address) as tests:
        faulthandler.register(signal.SIGQUIT, stack)
        tests.send((rank, os.getpid()))
        with suppress(EOFError, ConnectionError):
            while True:
                tests.send(report(*tests.recv()))
                gc.collect()
                gc.freeze()  # what is left, such as modules: the searches take less time
        faulthandler.unregister(signal.SIGQUIT)


def report(folder: str, n: int, seconds: float) -> tuple[str, str]:
    """Run the script in ``folder`` on this rank; what it printed, and its error."""
    from mpi4py import MPI

    from backends.comm.mpi import MPIComm

    os.chdir(folder)
    faulthandler.dump_traceback_later(seconds + LIMIT, exit=True)  # where the tests have ended meanwhile
    group = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(range(n)))
    comm, output = MPIComm(group, own=True), io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output), warnings.catch_warnings():
            runpy.run_path("script.py", {"comm": comm}, "__main__")
        comm.barrier_with("for all ranks to end the script")
        assert not has_message(comm), "the script left a message to this rank"
        comm.close()
    except BaseException:
        return output.getvalue(), traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    return output.getvalue(), ""


def has_message(comm: MPIComm) -> bool:
    """Whether ``comm`` or a group of it has a message: MPI may give its number to a later communicator."""
    from mpi4py import MPI

    parts = [ref() or comm.parts.unused.get(number) for number, ref in comm.parts.all.items()]
    groups = [part for part in parts if isinstance(part, type(comm)) and not part.closed]
    return comm.mpi.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG) or any(map(has_message, groups))


if __name__ == "__main__":
    main(sys.argv[1])
