"""The part of cupy.cuda.nccl that the project uses: ranks are threads, each on another device.

A call returns at once. Its result is in memory once all ranks have made the call and somebody has waited for
its stream: before, the memory holds what it held. Sources are read by their address when the last rank
comes, so memory that was freed before is an error. Calls that do not fit together never end, and
``check_async_error`` raises.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import _counts, _memory, cuda
from ._late import Later

available = os.environ.get("STRICT_CUPY_NCCL", "1") not in ("", "0")

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 = 6, 7, 8
DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
OPERATORS: tuple[Any, ...] = (np.add, np.multiply, np.fmax, np.fmin)
CONNECTING = 20.0  # seconds


class NcclError(RuntimeError):
    pass


class Call(NamedTuple):
    name: str
    settings: tuple[Any, ...]  # the same on all ranks
    sent: Callable[[], np.ndarray]
    result: Later


class Clique:
    """The ranks with one unique id, and the calls that they have made, by number and rank."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.lock = size, threading.Barrier(size), threading.RLock()
        self.devices: dict[int, int] = {}
        self.calls: dict[int, dict[int, Call]] = {}
        self.error: str | None = None

    def post(self, number: int, rank: int, call: Call) -> None:
        with self.lock:
            calls = self.calls.setdefault(number, {})
            calls[rank] = call
            if len(calls) < self.size:
                return
            del self.calls[number]
            ordered = [calls[k] for k in range(self.size)]
            try:
                results = results_of(ordered)
            except cuda.runtime.CUDARuntimeError as error:
                self.error = f"NCCL_ERROR_UNHANDLED_CUDA_ERROR: {error}"
            except ValueError as error:
                self.error = f"NCCL_ERROR_INVALID_USAGE: {error}"
            else:
                for one, values in zip(ordered, results, strict=True):
                    one.result.set(values)


_cliques: dict[bytes, Clique] = {}
_cliques_lock = threading.Lock()


def results_of(calls: list[Call]) -> list[np.ndarray]:
    """What each rank gets; ValueError where the ranks' calls differ."""
    if len({call[:2] for call in calls}) > 1:
        raise ValueError(f"the ranks' calls differ: {[call[:2] for call in calls]}")
    (name, settings), size = calls[0][:2], len(calls)
    if name == "broadcast":
        return [calls[settings[2]].sent()] * size
    sent = [call.sent() for call in calls]
    if name == "allGather":
        return [np.concatenate(sent)] * size
    total = sent[0]
    with np.errstate(all="ignore"):
        for x in sent[1:]:
            total = OPERATORS[settings[2]](total, x)
    return [total] * size if name == "allReduce" else list(total.reshape(size, -1))


def get_unique_id() -> bytes:
    return os.urandom(128)


class NcclCommunicator:
    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise TypeError("Expected bytes of NCCL_UNIQUE_ID_BYTES")
        with _cliques_lock:
            clique = _cliques.setdefault(commId, Clique(ndev))
        clique.devices[rank] = cuda.get_device_id()
        clique.barrier.wait(CONNECTING)
        if len(set(clique.devices.values())) < ndev:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: invalid usage (Duplicate GPU detected)")
        self._clique: Clique | None = clique
        self._rank, self._number, self._device = rank, 0, cuda.get_device_id()
        self._waiting: list[Later] = []

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        self._call("allReduce", sendbuf, recvbuf, count, count, stream, (count, datatype, op))

    def reduceScatter(
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        sends = recvcount * self.size()
        self._call("reduceScatter", sendbuf, recvbuf, sends, recvcount, stream, (recvcount, datatype, op))

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        self._call("allGather", sendbuf, recvbuf, count, count * self.size(), stream, (count, datatype))

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        self._call("broadcast", sendbuff, recvbuff, count, count, stream, (count, datatype, root))

    def check_async_error(self) -> None:
        clique = self._open()
        if clique.error is not None:
            raise NcclError(clique.error)

    def size(self) -> int:
        return self._open().size

    def abort(self) -> None:
        """The calls end, and leave garbage."""
        for later in self._waiting:
            later.set(None)
        self._clique = None

    destroy = abort

    def _open(self) -> Clique:
        if self._clique is None:
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")
        return self._clique

    def _call(
        self, name: str, source: int, target: int, sends: int, receives: int, stream: int, settings: Any
    ) -> None:
        clique, dtype, device = self._open(), np.dtype(DTYPES[settings[1]]), cuda.get_device_id()
        if device != self._device:
            raise NcclError(f"NCCL_ERROR_INVALID_USAGE: device {device}, its communicator {self._device}")
        _counts.note("nccl")
        result = Later()
        memory = _memory.array_at(target, (receives,), dtype, (dtype.itemsize,))._memory
        cuda.stream_at(stream)._queue().write_later(memory, result)

        def sent() -> np.ndarray:
            return _memory.array_at(source, (sends,), dtype, (dtype.itemsize,))._memory.copy()

        self._waiting = [later for later in self._waiting if not later.ready.is_set()] + [result]
        clique.post(self._number, self._rank, Call(name, settings, sent, result))
        self._number += 1
