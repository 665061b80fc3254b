"""Communicators: one protocol, several transports, and the collectives written over them."""

from .collectives import allreduce, broadcast, gather
from .protocol import Comm
from .threads import ThreadComm, run_ranks

__all__ = ["Comm", "ThreadComm", "allreduce", "broadcast", "gather", "run_ranks"]
