"""Communicators: one contract, several transports, and the collectives written over them."""

from .collectives import allreduce, broadcast, gather
from .communicator import Communicator, WithAllreduce, Wrapper
from .thread_ranks import run_ranks
from .threads import ThreadComm

__all__ = [
    "Communicator",
    "ThreadComm",
    "WithAllreduce",
    "Wrapper",
    "allreduce",
    "broadcast",
    "gather",
    "run_ranks",
]
