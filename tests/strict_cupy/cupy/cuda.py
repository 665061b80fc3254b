"""The part of cupy.cuda that the project uses: devices by thread, streams, events, pinned memory.

STRICT_CUPY_DEVICES is the number of devices (1). With STRICT_CUPY_PEER_ACCESS=0 none reads another's memory.
"""

import os
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np

from . import _counts
from ._late import Queue

DEVICES = int(os.environ.get("STRICT_CUPY_DEVICES", "1"))
PEER_ACCESS = os.environ.get("STRICT_CUPY_PEER_ACCESS", "1") not in ("", "0")


class _Thread(threading.local):
    """What CUDA and CuPy keep for each thread. A new thread begins on device 0, with the null stream."""

    def __init__(self) -> None:
        self.device = 0
        self.devices: list[int] = []
        self.streams: list[Stream] = []


_thread = _Thread()


class runtime:
    memcpyHostToDevice, memcpyDeviceToHost, is_hip = 1, 2, False

    class CUDARuntimeError(RuntimeError):
        pass

    @staticmethod
    def getDeviceCount() -> int:
        return DEVICES

    @staticmethod
    def getDevice() -> int:
        return _thread.device

    @staticmethod
    def setDevice(device: int) -> None:
        if not 0 <= int(device) < DEVICES:
            raise runtime.CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        _thread.device = int(device)

    @staticmethod
    def deviceSynchronize() -> None:
        Device().synchronize()

    @staticmethod
    def runtimeGetVersion() -> int:
        return 12090

    driverGetVersion = runtimeGetVersion

    @staticmethod
    def memGetInfo() -> tuple[int, int]:
        return 1 << 34, 1 << 35

    @staticmethod
    def getDeviceProperties(device: int) -> dict[str, Any]:
        return {"name": b"strict double", "totalGlobalMem": 1 << 35, "multiProcessorCount": 1}


def is_available() -> bool:
    return DEVICES > 0


get_device_id = runtime.getDevice


class Device:
    def __init__(self, device: "int | Device | None" = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> "Device":
        _thread.devices.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        runtime.setDevice(_thread.devices.pop())

    def use(self) -> None:
        runtime.setDevice(self.id)

    def synchronize(self) -> None:
        _counts.note("synchronize")
        for queue in (_null_queues[self.id], *(s._queue() for s in _streams if s.device_id == self.id)):
            queue.run()

    compute_capability = property(lambda self: "90")
    mem_info = property(lambda self: runtime.memGetInfo())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream:
    """A queue of kernels. The null stream waits for all other streams that are not ``non_blocking``."""

    null: "Stream"

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self.device_id, self.ptr = (-1, 0) if null else (runtime.getDevice(), id(self))
        self.non_blocking, self._own = non_blocking, Queue()
        if not null:
            _streams.append(self)

    def __enter__(self) -> "Stream":
        _thread.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _thread.streams.pop()

    def use(self) -> "Stream":
        _thread.streams[:] = [self]
        return self

    def _queue(self) -> Queue:
        return self._own if self.ptr else _null_queues[runtime.getDevice()]

    def _queues(self) -> list[Queue]:
        """The queues whose writes a kernel of this stream waits for."""
        if self.non_blocking:
            return [self._own]
        device = self.device_id if self.ptr else runtime.getDevice()
        if self.ptr:
            return [_null_queues[device], self._own]
        others = [s._own for s in _streams if s.device_id == device and not s.non_blocking]
        return [*others, _null_queues[device]]

    @property
    def done(self) -> bool:
        return not self._queue()._writes

    def synchronize(self) -> None:
        _counts.note("synchronize")
        for queue in self._queues():
            queue.run()

    def record(self, event: "Event | None" = None) -> "Event":
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        event.run()

    def begin_capture(self, mode: Any = None) -> None:
        raise NotImplementedError("the double has no graphs")


_streams: list[Stream] = []  # also those that nobody has any more: their kernels still run
_null_queues: defaultdict[int, Queue] = defaultdict(Queue)
Stream.null = Stream(null=True)


def get_current_stream(device_id: int = -1) -> Stream:
    return _thread.streams[-1] if _thread.streams else Stream.null


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.time, self._positions = 0.0, []

    def record(self, stream: Stream | None = None) -> None:
        queues = (get_current_stream() if stream is None else stream)._queues()
        self.time, self._positions = time.perf_counter(), [(queue, queue.position()) for queue in queues]

    def run(self) -> None:
        for queue, position in self._positions:
            queue.run(position)

    done = property(lambda self: True)

    def synchronize(self) -> None:
        _counts.note("synchronize")
        self.run()


def get_elapsed_time(start: Event, end: Event) -> float:
    return 1000 * (end.time - start.time)


class PinnedMemoryPointer(bytearray):
    """Pinned host memory: a buffer, as the real one."""

    mem = property(lambda self: self)
    ptr = property(lambda self: np.frombuffer(self, np.uint8).ctypes.data)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    _counts.note("pinned allocation")
    return PinnedMemoryPointer(max(512, -(-size // 512) * 512))  # the pool rounds up


class MemoryPool:
    def free_all_blocks(self, stream: Stream | None = None) -> None:
        pass

    def used_bytes(self) -> int:
        return 0

    total_bytes = used_bytes

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        pass


class MemoryPointer:
    """The address of an array's memory."""

    def __init__(self, memory: np.ndarray, device_id: int) -> None:
        self.device_id, self.ptr = device_id, memory.ctypes.data if memory.size else 0

    mem = property(lambda self: self)
    device = property(lambda self: Device(self.device_id))
