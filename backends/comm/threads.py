"""Ranks as threads of one process: the default transport, which needs nothing installed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from minigrad.device import Array, array_module

from .protocol import check_peer, wait_limit

Result = TypeVar("Result")
Address = tuple[Any, int, int, int]  # (group, source, destination, tag)


class RankFailed(RuntimeError):
    """Another rank raised; this one cannot go on."""


class Post:
    """The letter boxes that the ranks of one world share."""

    def __init__(self) -> None:
        self.boxes: dict[Address, deque[Array]] = {}
        self.news = threading.Condition()
        self.failed: int | None = None

    def put(self, address: Address, x: Array) -> None:
        with self.news:
            self.boxes.setdefault(address, deque()).append(x)
            self.news.notify_all()

    def take(self, address: Address) -> Array:
        group, source, rank, tag = address
        limit = wait_limit()
        deadline = time.monotonic() + limit
        with self.news:
            while not (box := self.boxes.get(address)):
                if self.failed is not None:
                    raise RankFailed(f"rank {rank} cannot go on: rank {self.failed} failed")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"rank {rank} waited {limit:g} s for a message from rank {source} with tag {tag} "
                        "that nobody sent; check that the sends match, or raise MINIGRAD_TIMEOUT"
                    )
                self.news.wait(left)
            x = box.popleft()
            if not box:
                del self.boxes[address]
            return x

    def fail(self, rank: int) -> None:
        with self.news:
            if self.failed is None:
                self.failed = rank
            self.news.notify_all()


class ThreadComm:
    """One thread's end of a communicator; ``run_ranks`` makes them."""

    def __init__(self, post: Post, rank: int, size: int, group: Any = ()):
        self.post, self.rank, self.size, self.group = post, rank, size, group
        self.splits = 0

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        check_peer(self, to)
        self.post.put((self.group, self.rank, to, tag), private_copy(x))

    def recv(self, source: int, tag: int = 0) -> Array:
        check_peer(self, source)
        return self.post.take((self.group, source, self.rank, tag))

    def start_recv(self, source: int, tag: int = 0) -> Callable[[], Array]:
        check_peer(self, source)
        return lambda: self.recv(source, tag)

    def split(self, color: int, key: int | None = None) -> ThreadComm:
        # Everyone tells everyone, so that all know the group; the counter tells one split from the next.
        self.splits += 1
        wish = np.array([color, self.rank if key is None else key, self.rank])
        for to in range(self.size):
            self.send(wish, to, tag=-self.splits)
        wishes = [self.recv(source, tag=-self.splits) for source in range(self.size)]
        members = sorted((int(k), int(r)) for c, k, r in wishes if c == color)
        rank = [r for _, r in members].index(self.rank)
        return ThreadComm(self.post, rank, len(members), (self.group, self.splits, color))


def run_ranks(n: int, fn: Callable[[ThreadComm], Result]) -> list[Result]:
    """Run ``fn(comm)`` on ``n`` ranks, each a thread, and return what they returned, by rank.

    An exception in one rank ends the others at their next receive, and is the one the caller sees.
    Raises RuntimeError for messages that were sent and never received.
    """
    if n < 1:
        raise ValueError(f"there must be at least 1 rank, got {n}")
    post = Post()
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n

    def work(rank: int) -> None:
        try:
            results[rank] = fn(ThreadComm(post, rank, n))
        except BaseException as error:
            errors[rank] = error
            post.fail(rank)

    threads = [threading.Thread(target=work, args=(r,), name=f"rank {r}", daemon=True) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if post.failed is not None:
        first = errors[post.failed]
        assert first is not None
        raise first
    if post.boxes:
        lost = ", ".join(f"{s} to {d} (tag {t})" for _, s, d, t in post.boxes)
        raise RuntimeError(f"messages were sent but never received: {lost}; add the missing recv")
    return results


def private_copy(x: Array) -> Array:
    """A copy of ``x`` in its own memory order, on its own device."""
    return array_module(x).array(x)
