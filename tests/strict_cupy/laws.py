"""Laws of the double: late kernels, streams, devices and counts. ``python laws.py NAME`` runs one of them.

``test_double.py`` runs the file with the double in PYTHONPATH, so that no other test imports it by accident.
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy as cp
import numpy as np
from cupy import _counts, _late, _raw
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

HUNT = sys.argv[2:] == ["hunt"]  # for a seeded bug, whose example need not be the smallest
PHASES = [phase for phase in Phase if not (HUNT and phase is Phase.shrink)]
DRAWN = settings(deadline=None, derandomize=True, database=None, phases=PHASES)
BUFFER = np.arange(24.0).reshape(2, 3, 4)
# Statements on x and y, two arrays of shape (2, 3, 4), and i, indices of their first axis.
STATEMENTS = [
    "x = x + y",
    "x += y",
    "y = xp.exp(-abs(x) / 30)",
    "x[...] = 2 * y",
    "x[0] = y[1]",
    "y[:, 1:] *= 3",
    "x = y.transpose(1, 0, 2).copy(order='K').transpose(1, 0, 2)",
    "x[i] = y",
    "xp.add.at(x, i, y)",
    "xp.multiply(x, y, out=y)",
    "x = y.sum(axis=1, keepdims=True) + xp.zeros_like(x)",
    "y = xp.tanh(x @ y[0].T @ y)",
    "x.fill(0.5)",
    "y = xp.where(x > y, x, 1)",
    "y = xp.concatenate([x[1:], y[:1]])",
    "x[1, ::2] -= x[0, ::2]",
    "y.sort()",
    "x = xp.maximum(x, y)[::-1]",
    "x, y = y, x",
    "y[x > 1] = 0",
    "x = xp.ones_like(y)",
]


def at_address(x: Any) -> np.ndarray:
    """The memory of ``x``, found through its address as CUDA-aware MPI finds it."""
    address, _ = x.__cuda_array_interface__["data"]
    buffer = (ctypes.c_char * x.nbytes).from_address(address)
    return np.frombuffer(buffer, x.dtype).reshape(x.shape)


def kernels_of_cuda() -> None:
    """What was measured on a GPU: atomic extrema of doubles, and arrays without axes that share memory."""
    x = cp.ones(3)
    cp.maximum.at(x, cp.asarray([0, 1, 2]), cp.asarray([1 + 2.0**-40, np.nan, 2]))
    assert x.get().tolist() == [1, 1, 2], x
    number = x.sum()
    assert cp.shares_memory(number, cp.ones(())) and not cp.shares_memory(number, number.reshape(1))


def by_address() -> None:
    """Who looks at the memory sees a kernel's values when its stream was synchronized, and garbage before."""
    with _late.late():
        x, other = cp.ones(3), cp.ones(3)
        y = x + 1
        assert np.isnan(at_address(y)).all(), "a kernel that nobody waited for has written"
        assert at_address(x).tolist() == [1, 1, 1], "a kernel whose result a later one read has not written"
        assert np.isnan(at_address(other)).all(), "a kernel whose result nobody read has written"
        y += 1
        assert at_address(y).tolist() == [2, 2, 2], "an array that is changed in place shows no old values"
        cp.cuda.get_current_stream().synchronize()
        assert at_address(y).tolist() == [3, 3, 3], "a synchronized stream has not written"
        z, host = y * 2, y.get()
        assert host.tolist() == [3, 3, 3] and at_address(z).tolist() == [6, 6, 6], "get does not wait"


def upload_lands_late() -> None:
    """A message that is received by address during an upload is overwritten by it; after it, it stays."""
    for waits in (False, True):
        with _late.late():
            room = cp.asarray(np.full(3, 7.0))
            if waits:
                cp.cuda.get_current_stream().synchronize()
            at_address(room)[...] = 5
            assert (room + 0).get().tolist() == ([5, 5, 5] if waits else [7, 7, 7])


def pinned_memory_is_read_late() -> None:
    """An upload reads pinned memory when its stream comes there, and any other memory at once."""
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(24), np.float64)[:3]
    for host, value in ((pinned, 2), (np.empty(3), 1)):
        for waits in (False, True):
            with _late.late():
                host[...] = 1
                x = cp.asarray(host)
                if waits:
                    cp.cuda.get_current_stream().synchronize()
                host[...] = 2
                assert x.get().tolist() == [1 if waits else value] * 3


def streams_do_not_wait() -> None:
    """A kernel of another stream reads garbage, unless an event orders the two or one is the null stream."""
    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    for orders in (False, True):
        with _late.late():
            with first:
                x = cp.ones(3)
            if orders:
                second.wait_event(first.record())
            with second:
                assert np.isnan((x + 1).get()).all() != orders
    with _late.late():
        with cp.cuda.Stream():
            x = cp.ones(3)
        assert (x + 1).get().tolist() == [2, 2, 2]


def copies_to_host_may_be_late() -> None:
    """``get(blocking=False)`` gives garbage until the stream is synchronized."""
    with _late.late():
        host = cp.ones(3).get(blocking=False)
        assert np.isnan(host).all()
        cp.cuda.get_current_stream().synchronize()
        assert host.tolist() == [1, 1, 1]


@settings(DRAWN, max_examples=100)
@given(st.lists(st.sampled_from(STATEMENTS), max_size=8))
def programs(statements: list[str]) -> None:
    """A program has NumPy's values, whether its kernels are late or not."""
    results = []
    for xp, late in ((np, False), (cp, False), (cp, True)):
        names: dict[str, Any] = {"xp": xp, "i": xp.asarray([1, 0])}
        names |= {"x": xp.asarray(BUFFER.copy()), "y": xp.asarray(BUFFER[::-1] / 7 - 1)}
        with _late.late() if late else np.errstate():
            for statement in statements:
                exec(statement, names)
            results.append([cp.asnumpy(names[name]) for name in "xy"])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0], str(statements))


def devices() -> None:
    """Without peer access an array is used on its own device only; a thread begins on device 0."""
    x = cp.ones(3)
    with cp.cuda.Device(1):
        for use in (lambda: x + 1, lambda: x.sum(), lambda: x[0].item(), lambda: x @ x, lambda: x.fill(0)):
            try:
                use()
            except ValueError as error:
                assert "Peer access is unavailable" in str(error)
            else:
                raise AssertionError("an array of another device was used")
        y = cp.asarray(x)
        assert y.device.id == 1 and (y + 1).sum().get() == 6
    assert x.device.id == 0 and cp.cuda.runtime.getDevice() == 0


@settings(DRAWN, max_examples=30)
@given(st.integers(0, 99), st.booleans())
def elementwise_kernel(seed: int, late: bool) -> None:
    """A kernel computes its statements in order, reads its outputs, and writes views where they lie."""
    x, y, v = np.random.default_rng(seed).integers(-4, 5, (3, 2, 5)).astype(np.float32)
    step = cp.ElementwiseKernel(
        "T x, T y, T f",
        "T v, int8 n",
        "v = f * v + x + log(exp(0 * y)); n = choose((v > y) | (v != v), 1, 0)",
        preamble="#define choose(c, a, b) ((c) ? (a) : (b))",
    )
    wide = cp.zeros((2, 10), np.float32)
    wide[:, ::2] = cp.asarray(v)
    with _late.late() if late else np.errstate(), _counts.counted() as (calls, _):
        _, n = step(cp.asarray(x), cp.asarray(y), 2, wide[:, ::2], cp.empty((2, 5), np.int8))
        expected = 2 * v + x
        np.testing.assert_array_equal(wide.get()[:, ::2], expected)
        np.testing.assert_array_equal(n.get(), (expected > y).astype(np.int8))
    assert calls["launch"] == 1, calls
    for args, error in (
        ((cp.asarray(x), cp.zeros((2, 5)), 2), TypeError),
        ((cp.asarray(x), y, 2), TypeError),
        ((cp.asarray(x), cp.asarray(y), 2, cp.zeros(5, np.float32), cp.empty((2, 5), np.int8)), ValueError),
    ):
        try:
            step(*args)
        except error:
            pass
        else:
            raise AssertionError(f"{args} are taken")


@settings(DRAWN, max_examples=30)
@given(st.integers(0, 99), st.booleans())
def kernel_in_cpp(seed: int, late: bool) -> None:
    """Loops, conditions, declarations and raw arrays mean what they do in C++; races and faults raise."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, (rng.integers(1, 5), 7)).astype(np.int64)
    rows, columns = x.shape
    row_sums = cp.ElementwiseKernel(
        "raw T x, int64 columns, T by",
        "T total, T rest",
        """total = 0; T other = 0;
        for (int c = 0; c < columns; ++c) {
            T value = x[i * columns + c] / by;
            if (value != 0) { total = total + value; if (c % 2 == 0) { other = other + 1; } }
        }
        rest = other + x[i * columns] % by;""",
    )
    with _late.late() if late else np.errstate(), _counts.counted() as (calls, _):
        fortran = cp.asarray(np.asfortranarray(x))
        total, rest = row_sums(fortran, columns, 4, cp.empty(rows, x.dtype), cp.empty(rows, x.dtype))
        quotients = np.trunc(x / 4).astype(np.int64)
        np.testing.assert_array_equal(total.get(), quotients.sum(1))
        evens = (quotients[:, ::2] != 0).sum(1)
        np.testing.assert_array_equal(rest.get(), evens + np.fmod(x[:, 0], 4))
    assert calls["launch"] == 1, calls
    shift = cp.ElementwiseKernel(
        "raw T x, int64 first, int64 step",
        "raw T y",
        "ptrdiff_t j = i / step; if (i >= first) { y[j] = x[i - first] * 2; }",
    )
    y = cp.zeros(rows * 7, np.int64)
    shift(cp.asarray(x), 2, 1, y, size=rows * 7)
    np.testing.assert_array_equal(y.get(), [0, 0, *2 * x.ravel()[:-2]])
    constant = cp.ElementwiseKernel("raw T x", "raw T y", "x[i] = 0")
    for call, error in (
        (lambda: shift(cp.asarray(x), 2, 2, y, size=rows * 7), RuntimeError),  # two threads write an element
        (lambda: shift(cp.asarray(x), 0, -1, y, size=rows * 7), IndexError),
        (lambda: shift(cp.asarray(x), 0, 1, y, size=rows * 7 + 1), IndexError),
        (lambda: shift(cp.asarray(x), 0, 1, y), ValueError),  # no size
        (lambda: row_sums(cp.asarray(x), columns, 4, y, y, size=rows), ValueError),  # a size beside elements
        (lambda: constant(cp.asarray(x), y, size=1), TypeError),
        (lambda: cp.ElementwiseKernel("T x", "T y", "while (x) { y = x; }"), NotImplementedError),
        (lambda: cp.ElementwiseKernel("T x", "T y", "if (x > 0) { y = x;"), SyntaxError),
    ):
        try:
            call()
        except error:
            pass
        else:
            raise AssertionError(f"no {error.__name__}")


class Cycle:
    """Garbage that runs Python code: another thread may get the interpreter in the middle of a collection."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


TURN = """
extern "C" __global__ void turn(const T *__restrict__ x, T *__restrict__ y, int n) {
    __shared__ T row[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    row[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    int own = blockDim.x - 1 - threadIdx.x;
    if (i < n) { y[i] = row[own]; }
}
"""


def raw_module(code: str = TURN) -> Any:
    return cp.RawModule(code=f"#define T float\n{code}", options=("-std=c++17",)).get_function("turn")


def kernels_in_cuda() -> None:
    """A kernel with shared memory means what it does in CUDA, late, captured, and in any order of threads."""
    turn, x = raw_module(), np.arange(128, dtype=np.float32)
    expected = x.reshape(2, 64)[:, ::-1].reshape(-1)
    for order in range(3):
        for late in (False, True):
            _raw.order = order
            with _late.late() if late else np.errstate(), _counts.counted() as (calls, _):
                y = cp.empty(128, np.float32)
                turn((2,), (64,), (cp.asarray(x), y, np.int32(128)))
                assert not late or np.isnan(at_address(y)).all(), "a late kernel has written"
                np.testing.assert_array_equal(y.get(), expected)
            assert calls["launch"] == 1, calls
    stream, x_there, y = cp.cuda.Stream(non_blocking=True), cp.asarray(x), cp.zeros(128, np.float32)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        turn((2,), (64,), (x_there, y, np.int32(128)))
        graph = stream.end_capture()
        assert y.get().any() == 0, "a capture computes"
        graph.launch()
        np.testing.assert_array_equal(y.get(), expected)


def kernels_in_cuda_race() -> None:
    """Without a barrier a thread reads what an earlier block left there: which one, is a matter of order."""
    racing, y = raw_module(TURN.replace("    __syncthreads();\n", "")), cp.zeros(64, np.float32)
    for order, late_half in ((0, slice(32)), (1, slice(32, 64))):
        _raw.order = order
        x = np.arange(64, dtype=np.float32) + 100 * (1 + order)
        racing((1,), (64,), (cp.asarray(x), y, np.int32(64)))
        is_right = y.get() == x[::-1]
        assert not is_right[late_half].any() and is_right.sum() == 32, "a race passes unseen"


def kernels_in_cuda_refuse() -> None:
    """What CUDA would take for something else, or not at all: other types, Python's numbers, many threads."""
    turn, x, y = raw_module(), cp.zeros(64, np.float32), cp.zeros(64, np.float32)
    for grid, block, args, error in (
        ((1,), (64,), (x, y, 64), TypeError),
        ((1,), (64,), (x, y), TypeError),
        ((1,), (64,), (x.astype(float), y, np.int32(64)), TypeError),
        ((1,), (64,), (x[::2], y, np.int32(32)), TypeError),
        ((1,), (64,), (np.zeros(64, np.float32), y, np.int32(64)), TypeError),
        ((0,), (64,), (x, y, np.int32(64)), ValueError),
        ((1,), (2048,), (x, y, np.int32(64)), ValueError),
    ):
        try:
            turn(grid, block, args)
        except error:
            pass
        else:
            raise AssertionError(f"{grid, block, args} are taken")
    some_wait = raw_module(
        TURN.replace("    __syncthreads();", "    if (i % 2) { return; }\n    __syncthreads();")
    )
    try:
        some_wait((1,), (64,), (x, y, np.int32(64)))
    except RuntimeError:
        pass
    else:
        raise AssertionError("threads wait for others that have ended")


def kernels_in_cuda_have_bounds() -> None:
    """Who reads or writes beyond an array is refused, and the next launch computes again."""
    x, y, n = cp.ones(9, np.float32), cp.zeros(9, np.float32), np.int32(9)
    for edit in (("i < n ? x[i] : 0", "x[i]"), ("if (i < n) { y[i]", "{ y[i]")):
        try:
            raw_module(TURN.replace(*edit))((1,), (64,), (x, y, n))
        except IndexError:
            pass
        else:
            raise AssertionError(f"a kernel without {edit[0]!r} leaves its arrays unseen")
    raw_module()((1,), (9,), (x, y, n))
    assert y.get().tolist() == [1] * 9


def threads_compile_kernels() -> None:
    """Threads compile kernels at the same time."""
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)

    def compile_kernels(thread: int) -> None:
        for number in range(100):
            Cycle()
            body = f"for (int k = 0; k < {number}; ++k) {{ y = x * (3 + (4 - (5 * (6 + {thread})))); }}"
            cp.ElementwiseKernel("T x", "T y", body)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(compile_kernels, thread) for thread in range(8)]:
            done.result()


def threads_launch_kernels() -> None:
    """Threads launch kernels of CUDA C++ at the same time."""
    turn, x = raw_module(), np.arange(1 << 14, dtype=np.float32)
    expected = x.reshape(-1, 64)[:, ::-1].reshape(-1)

    def launch(thread: int) -> None:
        for _ in range(20):
            y = cp.empty(x.size, np.float32)
            turn((x.size // 64,), (64,), (cp.asarray(x), y, np.int32(x.size)))
            np.testing.assert_array_equal(y.get(), expected)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(launch, thread) for thread in range(4)]:
            done.result()


def counts() -> None:
    """Every kernel, product, copy and synchronization is counted, with the project's line that caused it."""
    x = cp.asarray(np.ones((3, 3)))
    with _counts.counted() as (calls, lines):
        y = x @ x.T + 1
        total = y.sum(axis=0)
        assert total.tolist() == [12, 12, 12]
    expected = {"gemm": 1, "launch": 2, "copy to host": 1, "copy to host bytes": 24, "synchronize": 1}
    assert +calls == expected, calls
    assert {place.split(":")[0] for _, place in lines} == {"tests/strict_cupy/laws.py"}, lines


def raises(error: type[Exception], words: str, f: Callable[[], object]) -> None:
    try:
        f()
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(f"no {error.__name__}: {words}")


def captured(f: Callable[[], Any], pool: Any = None, mode: int | None = None) -> tuple[Any, Any, Any]:
    """The graph of what ``f`` does, what it returns, and the stream."""
    stream = cp.cuda.Stream(non_blocking=True)
    allocator = cp.cuda.using_allocator((pool or cp.get_default_memory_pool()).malloc)
    with stream, allocator:
        stream.begin_capture(mode)
        try:
            value = f()
        finally:
            graph = stream.end_capture()
    return graph, value, stream


@settings(DRAWN, max_examples=60)
@given(st.lists(st.sampled_from([s for s in STATEMENTS if "@" not in s and "> 1" not in s]), max_size=8))
def graph_programs(statements: list[str]) -> None:
    """A captured program does nothing; each launch does it once more, on the values of that moment."""
    for late in (False, True):
        expected = {"xp": np, "i": np.array([1, 0]), "x": BUFFER.copy(), "y": BUFFER[::-1] / 7 - 1}
        names: dict[str, Any] = {"xp": cp} | {name: cp.asarray(expected[name]) for name in "ixy"}
        inputs = names["x"], names["y"]
        with _late.late() if late else np.errstate():
            cp.cuda.get_current_stream().synchronize()

            def run(names=names) -> Any:
                exec("\n".join(statements), names)
                return names["x"], names["y"]

            pool = cp.cuda.MemoryPool()
            graph, results, stream = captured(run, pool)
            for name, x in zip("xy", inputs, strict=True):
                np.testing.assert_array_equal(cp.asnumpy(x), expected[name], "a capture ran")
            for _ in range(2):
                state = {name: cp.asnumpy(x) for name, x in zip("xy", inputs, strict=True)}
                again = expected | state
                exec("\n".join(statements), again)
                stream.wait_event(cp.cuda.get_current_stream().record())
                graph.launch(stream)
                stream.synchronize()
                for name, x in zip("xy", results, strict=True):
                    np.testing.assert_array_equal(cp.asnumpy(x), again[name], str(statements))


def graphs_hold_numbers_and_addresses() -> None:
    """A number of the host is that of the capture; one on the device is read at each launch."""
    host, device, x = 2.0, cp.full((), 2.0), cp.ones(3)
    graph, (a, b), _ = captured(lambda: (x * host, x * device))
    assert np.isnan(a.get()).all(), "a captured kernel has run"
    host = 3.0
    device.fill(3)
    x += 1
    with _counts.counted() as (calls, _):
        graph.launch()
    assert a.get().tolist() == [4, 4, 4] and b.get().tolist() == [6, 6, 6]
    assert +calls == {"graph launch": 1}, calls


def captures_refuse() -> None:
    """What CuPy 14.2 and CUDA refuse during a capture is refused, and ends the capture where CUDA does."""
    x, host, runtime = cp.ones((2, 2)), np.ones(2), cp.cuda.runtime
    stays = {
        lambda: x.sum().item(): (RuntimeError, "D2H transfers are disallowed"),
        lambda: float(x[0, 0]): (RuntimeError, "D2H"),
        lambda: bool((x > 0).all()): (RuntimeError, "D2H"),
        lambda: x[x > 0]: (RuntimeError, "D2H"),
        lambda: cp.asarray(host): (RuntimeError, "H2D transfers are disallowed"),
        lambda: x[0].set(host): (RuntimeError, "H2D"),
        lambda: x[[0, 1]]: (RuntimeError, "H2D"),
        lambda: cp.concatenate([x] * 9): (RuntimeError, "H2D"),
        lambda: x @ x: (NotImplementedError, "cuBLAS API during stream capture"),
        lambda: cp.matmul(x[None], x[None]): (NotImplementedError, "cuBLAS"),
        lambda: cp.tensordot(x, x, 1): (NotImplementedError, "cuBLAS"),
    }
    for use, (error, words) in stays.items():
        captured(lambda use=use, error=error, words=words: raises(error, words, use))
    unsupported = "cudaErrorStreamCaptureUnsupported"
    ends = {
        lambda: cp.cuda.get_current_stream().synchronize(): unsupported,
        lambda: cp.cuda.Device().synchronize(): unsupported,
        lambda: runtime.deviceSynchronize(): unsupported,
    }
    for use, words in ends.items():
        f = lambda use=use, words=words: raises(runtime.CUDARuntimeError, words, use)  # noqa: E731
        raises(runtime.CUDARuntimeError, "cudaErrorStreamCaptureInvalidated", lambda f=f: captured(f))
    done = lambda: captured(lambda: cp.cuda.get_current_stream().done)  # noqa: E731
    raises(runtime.CUDARuntimeError, "Invalidated", done)
    strict = lambda: captured(lambda: x + 1, mode=runtime.streamCaptureModeGlobal)  # noqa: E731
    raises(runtime.CUDARuntimeError, "cudaErrorStreamCapture", strict)  # cudaMalloc
    raises(RuntimeError, "cannot capture on the default (legacy) stream", cp.cuda.Stream.null.begin_capture)
    raises(runtime.CUDARuntimeError, "cudaErrorIllegalState", cp.cuda.Stream().end_capture)
    blocking = cp.cuda.Stream()
    blocking.begin_capture()
    raises(runtime.CUDARuntimeError, "cudaErrorStreamCaptureImplicit", lambda: x + 1)
    raises(runtime.CUDARuntimeError, "Invalidated", blocking.end_capture)


def other_streams_are_not_captured() -> None:
    """What another stream is asked for while one is captured is done at once, and is not in the graph."""
    x, other = cp.zeros(2), cp.cuda.Stream(non_blocking=True)

    def both() -> None:
        nonlocal x
        x += 1
        with other:
            x += 10

    graph, _, _ = captured(both)
    assert x.get().tolist() == [10, 10]
    graph.launch()
    assert x.get().tolist() == [11, 11]


def memory_of_graphs() -> None:
    """What a capture frees is given out again by its pool; a graph whose pool is gone has no memory."""
    for pool in (None, cp.cuda.MemoryPool()):
        x = cp.ones(100)
        graph, y, stream = captured(lambda x=x: (x + 1) * 2, pool)
        with stream:
            z = cp.full(100, 7.0)
        graph.launch(stream)
        assert y.get().tolist() == [4] * 100
        assert (z.get() == 7).all() == (pool is not None), "whose memory is whose"
    graph, y, stream = captured(lambda: (x + 1) * 2, cp.cuda.MemoryPool())
    raises(cp.cuda.runtime.CUDARuntimeError, "cudaErrorIllegalAddress", lambda: graph.launch(stream))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
