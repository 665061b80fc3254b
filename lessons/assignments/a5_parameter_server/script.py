"""The cases of assignment a5, and partners whose messages are written down beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.assignment import load_file

from backends.comm import Communicator

watched = load_file(Path(__file__).parent / "watched.py", "watched_of_a5")
check_message = watched.check_message


@dataclass(frozen=True)
class Vector:
    """A vector to be cut; nothing is sent."""

    elements: int
    servers: int
    ranks = 1

    def __str__(self) -> str:
        return f"{counted(self.elements, 'element')}, {counted(self.servers, 'server')}"


@dataclass(frozen=True)
class Job:
    """Workers, each with its number of steps, and servers."""

    steps: tuple[int, ...]
    servers: int
    elements: int
    bound: int
    seed: int

    @property
    def workers(self) -> int:
        return len(self.steps)

    @property
    def ranks(self) -> int:
        return self.workers + self.servers

    def places(self) -> list[slice]:
        return cuts(self.elements, self.servers)

    def start(self) -> np.ndarray:
        return numbers(self.elements, self.seed, 0)

    def gradient(self, worker: int, step: int) -> np.ndarray:
        return numbers(self.elements, self.seed, 1, worker, step)

    def answer(self, worker: int, step: int) -> np.ndarray:
        """All parameters, as the scripted servers answer a push."""
        return numbers(self.elements, self.seed, 2, worker, step)

    def __str__(self) -> str:
        steps = " and ".join(str(n) for n in self.steps) + (" step" if self.steps == (1,) else " steps")
        text = f"{counted(self.workers, 'worker')} of {steps}, {counted(self.servers, 'server')}"
        return f"{text}, {counted(self.elements, 'element')}{self.rule()}"

    def rule(self) -> str:
        return ""


class BoundedJob(Job):
    def rule(self) -> str:
        return f", bound {self.bound}"


def answer_by_script(comm: Communicator, case: Job) -> None:
    """A server that holds each push against what it should be, and answers what the case says."""
    server = comm.rank - case.workers
    place = case.places()[server]
    pushes, there = [0] * case.workers, set(range(case.workers))
    while there:
        worker, message = comm.recv_any()
        step = pushes[worker]
        what = f"worker {worker}'s push number {step + 1} to server {server}"
        if worker not in there:
            raise Wrong(f"{what} comes after it has told that it ends")
        if not message.size:
            if step < case.steps[worker]:
                raise Wrong(f"worker {worker} told server {server} after {step} pushes that it ends")
            there.remove(worker)
            continue
        if step == case.steps[worker]:
            raise Wrong(f"{what} is one too many")
        check_message(message, place.stop - place.start, what, "gradient")
        version = version_after(server, worker, step - 1)
        if message[0] != version:
            raise Wrong(f"{what} names version {message[0]:g}; the last answer was of version {version}")
        if not np.array_equal(message[1:], part := case.gradient(worker, step)[place]):
            raise Wrong(f"{what} holds {list(message[1:])}, its part of the gradient is {list(part)}")
        answer = np.concatenate([[version_after(server, worker, step)], case.answer(worker, step)[place]])
        comm.send(answer, worker)
        pushes[worker] += 1


def version_after(server: int, worker: int, step: int) -> int:
    return 0 if step < 0 else 10 * step + 3 * server + worker + 1


def push_by_script(comm: Communicator, case: Job) -> None:
    servers = dict(enumerate(case.places(), case.workers))
    versions = dict.fromkeys(servers, 0.0)
    for step in range(case.steps[comm.rank]):
        g = case.gradient(comm.rank, step)
        going = [
            comm.start_send(np.concatenate([[versions[server]], g[place]]), server)
            for server, place in servers.items()
        ]
        for server in servers:
            versions[server] = comm.recv(server)[0]
        for finish in going:
            finish()
    for server in servers:
        comm.send(np.empty(0), server)


def numbers(n: int, *seed: int) -> np.ndarray:
    """Whole numbers, never 0, so that what is left out shows."""
    return np.random.default_rng(seed).integers(1, 100, n).astype(np.float64)


def cuts(elements: int, servers: int) -> list[slice]:
    return [slice(elements * s // servers, elements * (s + 1) // servers) for s in range(servers)]


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
