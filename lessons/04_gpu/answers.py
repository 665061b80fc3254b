"""The answers to the questions on lesson 04, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import wire
from backends.comm.collectives.link import Link

LAUNCH, MEMORY = 10e-6, 4.8e12  # seconds; bytes a second of an H200 (NVIDIA's data sheet)
A, B = np.float32(2), np.float32(-1)
OPERATIONS = {"multiply": lambda x: A * x, "add": lambda x: x + B, "maximum": lambda x: np.maximum(x, 0)}


def seconds(kernels, size=100_000_000):
    """The seconds of ``kernels`` for ``size`` numbers where only memory counts, from the bytes of a few."""
    x, total = np.linspace(-1, 1, 101, dtype=np.float32), 0.0
    for kernel in kernels:
        read = x.nbytes
        for name in kernel:
            x = OPERATIONS[name](x)
        total += LAUNCH + (read + x.nbytes) / x.size * size / MEMORY
    return total


def one_kernel(student):
    operations = [name for kernel in student.KERNELS for name in kernel]
    assert operations == list(OPERATIONS), (
        f"your kernels are lists of {len(operations)} operations, {operations}; they need {len(OPERATIONS)}, "
        f"{list(OPERATIONS)}"
    )
    three, mine = seconds([["multiply"], ["add"], ["maximum"]]), seconds(student.KERNELS)
    assert len(student.KERNELS) == 1, (
        f"{len(student.KERNELS)} kernels take {1e6 * mine:.0f} microseconds, three take {1e6 * three:.0f}; "
        "put the three operations into one list"
    )
    return (
        f"{1e6 * mine:.0f} microseconds instead of {1e6 * three:.0f}: a kernel reads and writes 4 bytes a "
        "number, so three kernels move 24 bytes of each number, and one moves 8"
    )


def misread(x):
    """The array of the shape of ``x`` that a program reads in C order from the memory of ``x``."""
    return x.ravel(order="K").reshape(x.shape)


def new_array(student):
    a = np.arange(560).reshape(20, 28)
    x = student.passed_array(a)
    off = np.count_nonzero(x != 2 * a.T) if x.shape == a.T.shape else x.size
    assert off == 0, f"{off} of the {x.size} numbers that you pass differ from a.T * 2"
    wrong = np.count_nonzero(misread(x) != x)
    assert wrong and not np.shares_memory(x, a), (
        f"{wrong} of {x.size} numbers are at wrong places; pass a.T * 2 as NumPy computes it"
    )
    return (
        f"{wrong} of {x.size} numbers are at wrong places: NumPy writes a new array in the order of its "
        f"operand, so a.T * 2 is in Fortran order (strides {x.strides}); its sum is right, {misread(x).sum()}"
    )


def step_seconds(kernel, launches=36):
    """Seconds of a step on the virtual clock, in which rank 0 is the host and rank 1 the GPU."""

    def work(comm):
        for _ in range(launches):
            if comm.rank == 0:
                comm.compute(LAUNCH)
                comm.send(np.zeros(1), to=1)
            else:
                comm.recv(0)
                comm.compute(kernel)
        if comm.rank == 1:
            comm.send(np.zeros(1), to=0)
        else:
            comm.recv(1)

    cluster = VirtualCluster(2, Link(0.0))
    cluster.run(work)
    return cluster.seconds


def faster_gpu(student):
    before, after = step_seconds(10e-6), step_seconds(student.KERNEL)
    assert np.isclose(student.KERNEL, 5e-6), (
        f"with kernels of {1e6 * student.KERNEL:g} microseconds a step takes {1e6 * after:.0f}, "
        f"before {1e6 * before:.0f}; let KERNEL be 5e-6"
    )
    return (
        f"{1e6 * after:.0f} microseconds instead of {1e6 * before:.0f}: the host needs 360 for its launches, "
        "and only the last kernel runs after them; the faster GPU waits half of the time"
    )


def any_order(student):
    rng, copied = np.random.default_rng(0), {}
    large = rng.normal(size=(12, 14, 10))
    named = {
        "x": large,
        "x.T": large.T,
        "x.transpose(0, 2, 1)": large.transpose(0, 2, 1),
        "x[::2]": large[::2],
        "x[::-1]": large[::-1],
    }
    for i in range(20):
        x = rng.normal(size=rng.integers(5, 9, 4)).transpose(rng.permutation(4))
        named[f"drawn {i}"] = x[:, 1:] if rng.random() < 0.3 else x
    for name, x in named.items():
        axes, numbers = student.pack(x)
        shape = f"{name} of shape {x.shape} and strides {x.strides}"
        assert numbers.shape == (x.size,) and numbers.flags.c_contiguous, (
            f"{shape}: your numbers have the shape {numbers.shape} instead of {(x.size,)}, or gaps"
        )
        again = numbers.reshape([x.shape[i] for i in axes]).transpose(np.argsort(axes))
        wrong = np.count_nonzero(again != x) if again.shape == x.shape else x.size
        assert wrong == 0, f"{shape}: {wrong} of {x.size} numbers are at wrong places, with axes {axes}"
        copied[name] = not np.shares_memory(numbers, x)
        *_, library = wire.pack(x)
        assert copied[name] <= library, f"{shape}: your pack copies {x.nbytes} bytes, the library's 0"
    without = [name for name in list(named)[:5] if not copied[name]]
    return (
        f"without a copy: {', '.join(without)}; no axis order closes the gaps of x[::2], and all "
        f"{len(named)} arrays come out as they went in"
    )


PACK = """\
    axes = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
    return axes, np.ascontiguousarray(x.transpose(axes)).reshape(-1)
"""
QUESTIONS = [
    Question(
        "b", one_kernel, (('[["multiply"], ["add"], ["maximum"]]', '[["multiply", "add", "maximum"]]'),)
    ),
    Question("a", new_array, (("    return a.T\n", "    return a.T * 2\n"),)),
    Question("c", faster_gpu, (("KERNEL = 10e-6", "KERNEL = 5e-6"),)),
    Question("b", any_order, (("    return list(range(x.ndim)), x.ravel()\n", PACK),)),
]
