"""CUDA graphs: what is called while a stream is captured is recorded, and runs when the graph is launched.

A call is recorded with its arguments: numbers of the host stay what they were, arrays are memory, which the
graph reads and writes when it is launched, whoever has that memory by then. A recorded call runs once on
garbage, to learn the shapes of its results; what it writes is dropped.
"""

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from . import _array, _memory, cuda
from ._counts import note


class _Thread(threading.local):
    inside = False  # of a recorded call, whose own calls are part of it


_thread = _Thread()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose calls are recorded where the current stream is captured."""

    @wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        stream = cuda.captured_stream()
        if stream is None or _thread.inside:
            return function(*args, **settings)
        node = Node(function, args, settings)
        _thread.inside = True
        try:
            results = function(*args, **settings)
        finally:
            _thread.inside = False
        node.write_to(results)
        if stream._nodes is not None:
            stream._nodes.append(node)
        return results

    return call


def check_recorded() -> None:
    """Raise where a function of the double that nobody records is called in a capture."""
    if not _thread.inside:
        raise NotImplementedError("the double does not record this function in a graph")


class Node:
    """A recorded call. It has the addresses of its arrays; their blocks may be given to others meanwhile."""

    def __init__(self, function: Callable[..., Any], args: Any, settings: Any) -> None:
        self.function, self.blocks = function, []
        self.args, self.settings, self.results = self.addressed(args), self.addressed(settings), []

    def addressed(self, x: Any) -> Any:
        if isinstance(x, tuple | list):
            return type(x)(self.addressed(part) for part in x)
        if isinstance(x, dict):
            return {name: self.addressed(part) for name, part in x.items()}
        if not isinstance(x, _array.ndarray) or not x.size:
            return x
        memory, block = x._memory, cuda.block_at(x._memory.ctypes.data)
        if block is not None:
            self.blocks.append(block)
            low, high = _memory.byte_bounds(memory)
            buffer, offset = cuda._buffer_at(low, high - low), memory.ctypes.data - low
            memory = np.ndarray(memory.shape, memory.dtype, buffer, offset, memory.strides)
        addressed = _memory.array_of(memory, base=x)
        addressed.base = None
        return addressed

    def write_to(self, results: Any) -> None:
        self.results = list(arrays_in(self.addressed(results)))

    def run(self) -> None:
        if not all(block.mapped for block in self.blocks):
            raise cuda.runtime.CUDARuntimeError(
                "cudaErrorIllegalAddress: an illegal memory access was encountered"
            )
        results = self.function(*self.args, **self.settings)
        for new, old in zip(arrays_in(results), self.results, strict=True):
            if new.size and new._memory.ctypes.data != old._memory.ctypes.data:
                _memory.write(old, _memory.read(new))


def arrays_in(x: Any) -> Iterator[Any]:
    if isinstance(x, _array.ndarray):
        yield x
    elif isinstance(x, tuple | list):
        for part in x:
            yield from arrays_in(part)


class Graph:
    """What a stream was asked to do while it was captured."""

    _nodes: list[Node]

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise NotImplementedError(
            "currently this class cannot be initiated by the user and must be created via stream capture"
        )

    @classmethod
    def _of(cls, nodes: list[Node]) -> "Graph":
        graph = object.__new__(cls)
        graph._nodes = nodes
        return graph

    def launch(self, stream: Any = None) -> None:
        stream = cuda.get_current_stream() if stream is None else stream
        if stream._nodes is not None:
            raise NotImplementedError("the double has no graphs inside of graphs")
        note("graph launch")
        with stream, cuda.launching():
            for node in self._nodes:
                node.run()

    def upload(self, stream: Any = None) -> None:
        pass
