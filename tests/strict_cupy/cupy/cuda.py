"""The part of cupy.cuda that the project uses: devices by thread, streams, events, pinned memory.

STRICT_CUPY_DEVICES is the number of devices (1). With STRICT_CUPY_PEER_ACCESS=0 none reads another's memory.
"""

import ctypes
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self.pools: list[MemoryPool] = []
        self.launching = False


_thread = _Thread()


class runtime:
    memcpyHostToDevice, memcpyDeviceToHost, is_hip = 1, 2, False
    streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2

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
        check_wait(*_captured)
        _counts.note("synchronize")
        for queue in (_null_queues[self.id], *(s._queue() for s in _streams if s.device_id == self.id)):
            queue.run()

    compute_capability = property(lambda self: "90")
    mem_info = property(lambda self: runtime.memGetInfo())
    pci_bus_id = property(lambda self: f"0000:{self.id:02x}:00.0")

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
        self._nodes: list[Any] | None = None  # what is recorded, while the stream is captured
        self._mode, self._valid = runtime.streamCaptureModeRelaxed, True
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
        self._valid = False  # the question ends a capture
        return not self._queue()._writes

    def synchronize(self) -> None:
        check_wait(self)
        _counts.note("synchronize")
        for queue in self._queues():
            queue.run()

    def record(self, event: "Event | None" = None) -> "Event":
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        self._check_one_stream()
        event.run()

    def _check_one_stream(self) -> None:
        if self._nodes is not None:
            raise NotImplementedError("the double records one stream, without events")

    def begin_capture(self, mode: int | None = None) -> None:
        if not self.ptr:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self._nodes is not None:
            raise runtime.CUDARuntimeError(ILLEGAL_STATE)
        self._nodes, self._valid = [], True
        self._mode = runtime.streamCaptureModeRelaxed if mode is None else mode
        _captured.append(self)

    def end_capture(self) -> Any:
        from ._capture import Graph

        if self._nodes is None:
            raise runtime.CUDARuntimeError(ILLEGAL_STATE)
        nodes, self._nodes = self._nodes, None
        _captured.remove(self)
        if not self._valid:
            raise runtime.CUDARuntimeError(
                "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture"
            )
        return Graph._of(nodes)

    def is_capturing(self) -> bool:
        if not self.ptr:
            check_null_stream()
        return self._nodes is not None


ILLEGAL_STATE = "cudaErrorIllegalState: the operation cannot be performed in the present state"
_captured: list[Stream] = []


def captured_stream() -> Stream | None:
    """The current stream, if it is captured; None is most often the answer."""
    if not _captured:
        return None
    stream = get_current_stream()
    return None if stream._nodes is None else stream


def check_event(kind: str) -> None:
    """Raise what CuPy raises where the current stream is captured and cannot be asked for that."""
    if not _captured:
        return
    stream = get_current_stream()
    if not stream.ptr:
        check_null_stream()
    if stream._nodes is None:
        return
    if kind == "gemm":
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    for copy, direction in (("copy to device", "H2D"), ("copy to host", "D2H")):
        if kind == copy:
            raise RuntimeError(f"the current stream is capturing, so {direction} transfers are disallowed")


def check_null_stream() -> None:
    """Raise where the null stream would wait for a captured stream, as it does for all that are blocking."""
    for stream in _captured:
        if not stream.non_blocking:
            stream._valid = False
            raise runtime.CUDARuntimeError(
                "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a "
                "capturing blocking stream"
            )


def check_wait(*streams: Stream) -> None:
    for stream in streams:
        if stream._nodes is not None:
            stream._valid = False
            raise runtime.CUDARuntimeError(
                "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )


@contextmanager
def launching() -> Iterator[None]:
    """Inside, a graph runs: its kernels are not counted, and allocate nothing."""
    _thread.launching = True
    try:
        yield
    finally:
        _thread.launching = False


def in_launch() -> bool:
    return _thread.launching


_streams: list[Stream] = []  # also those that nobody has any more: their kernels still run
_null_queues: defaultdict[int, Queue] = defaultdict(Queue)
Stream.null = Stream(null=True)


def stream_at(address: int) -> Stream:
    """The stream of an address, as C functions take it."""
    return next((stream for stream in _streams if stream.ptr == address), Stream.null)


def get_current_stream(device_id: int = -1) -> Stream:
    return _thread.streams[-1] if _thread.streams else Stream.null


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.time, self._positions = 0.0, []

    def record(self, stream: Stream | None = None) -> None:
        stream = get_current_stream() if stream is None else stream
        stream._check_one_stream()
        queues = stream._queues()
        self.time, self._positions = time.perf_counter(), [(queue, queue.position()) for queue in queues]

    def run(self) -> None:
        for queue, position in self._positions:
            queue.run(position)

    @property
    def done(self) -> bool:
        """Asking takes as long as the device needs, but for what other devices compute."""
        if not all(queue.is_ready(position) for queue, position in self._positions):
            return False
        self.run()
        return True

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


def is_pinned(x: Any) -> bool:
    """Whether a host array lies in pinned memory, which an upload reads only when its stream comes there."""
    while isinstance(x, np.ndarray):
        x = x.base
    return isinstance(getattr(x, "obj", x), PinnedMemoryPointer)


class Block:
    """Memory that a pool gave out during a capture, and gives out again when nobody has it any more."""

    def __init__(self, size: int, stream: int) -> None:
        self.bytes, self.stream, self.mapped = np.empty(size, np.uint8), stream, True
        self.start = self.bytes.ctypes.data
        _blocks.add(self)


_blocks: weakref.WeakSet[Block] = weakref.WeakSet()


def _buffer_at(address: int, size: int, owner: Any = None) -> Any:
    """The bytes at an address as a buffer for ``np.ndarray``, which keeps ``owner`` alive."""
    kind: Any = type("Buffer", (ctypes.c_char * size,), {"owner": owner})
    return kind.from_address(address)


def block_at(address: int) -> Block | None:
    """The block in which an address lies."""
    for block in list(_blocks):
        if block.start <= address < block.start + block.bytes.size:
            return block
    return None


def placed(memory: np.ndarray) -> np.ndarray:
    """``memory``, or in a capture and after it the same in a block of the current pool."""
    pool = _thread.pools[-1] if _thread.pools else _default_pool
    if _thread.launching or not memory.size or not (pool._free or captured_stream()):
        return memory
    return pool._placed(memory)


def release(pool: "weakref.ref[MemoryPool]", block: Block) -> None:
    owner = pool()
    if owner is None:
        block.mapped = False
    else:
        owner._free.append(block)


class MemoryPool:
    """A pool gives what is freed to later arrays of the same stream; here only what a capture allocated."""

    def __init__(self, allocator: Any = None) -> None:
        self._free: list[Block] = []

    def malloc(self, size: int) -> Any:
        raise NotImplementedError("the double allocates arrays only, inside of using_allocator(pool.malloc)")

    def _placed(self, memory: np.ndarray) -> np.ndarray:
        stream, size = get_current_stream(), -(-memory.nbytes // 512) * 512
        blocks = [b for b in self._free if b.stream == stream.ptr and b.bytes.size >= size]
        if blocks:
            block = min(blocks, key=lambda block: block.bytes.size)
            self._free.remove(block)
        elif stream._nodes is None:
            return memory
        else:
            if stream._mode != runtime.streamCaptureModeRelaxed:
                check_wait(stream)  # cudaMalloc
            block = Block(size, stream.ptr)
        buffer = _buffer_at(block.start, memory.nbytes, block)
        new = np.ndarray(memory.shape, memory.dtype, buffer, 0, memory.strides)
        weakref.finalize(buffer, release, weakref.ref(self), block)
        new[...] = memory
        return new

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        for block in self._free:
            block.mapped = False
        self._free.clear()

    def __del__(self) -> None:
        self.free_all_blocks()

    def used_bytes(self) -> int:
        return 0

    total_bytes = used_bytes

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        pass


_default_pool = MemoryPool()


@contextmanager
def using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
    """Inside, this thread's arrays are allocated by ``pool.malloc``."""
    pool = getattr(allocator, "__self__", None)
    if not isinstance(pool, MemoryPool):
        raise NotImplementedError("an allocator that is no pool's malloc")
    _thread.pools.append(pool)
    try:
        yield
    finally:
        _thread.pools.pop()


def get_cublas_handle() -> int:
    """Load cuBLAS, as CuPy does at the first product."""
    from . import _cublas

    return _cublas.installed()


class MemoryPointer:
    """The address of an array's memory."""

    def __init__(self, memory: np.ndarray, device_id: int) -> None:
        self.device_id, self.ptr = device_id, memory.ctypes.data if memory.size else 0

    mem = property(lambda self: self)
    device = property(lambda self: Device(self.device_id))


from . import _nccl as nccl  # noqa: E402, F401  # at the end: it needs all of the above
