"""Lesson 04. GPU against CPU: what an operation costs besides its arithmetic.

Lecture section: GPU against CPU. Matrix products of all sizes, the roofline, the size from which a GPU is
faster, the cost of copies and of launches, the order of an array in memory, operations that are slow for no
reason.

The slide asks: when is a GPU faster than a CPU, and when is it not?

You need: lessons 01 to 03; what a matrix product costs (lesson 02, part 8).

Time: about 55 minutes; the program runs for about 10 seconds.

After this you can: compute the least time of an operation from its bytes and its operations; say whether
memory, arithmetic, launches or copies limit a program; derive from what size on a GPU pays.

    python lessons/04_gpu/lesson.py

Needs neither GPU nor MPI. With CuPy and a GPU it measures the GPU; without, it counts what a step asks of a
GPU, and computes the least times that published figures allow. Figures go to runs/lessons/04_gpu/. In an
editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import time

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson
from timing import H200, LAUNCHES, seconds

from minigrad import Tape, Tensor, loops, mnist, ops, optim
from minigrad.device import array_module, cuda_problem, to_device, to_host
from minigrad.figures import save
from minigrad.models import NETS
from minigrad.ops.conv import direct
from minigrad.ops.geometry import Geometry
from minigrad.ops.selection import sum_by_row
from minigrad.serial import Serial

FIGURES = start_lesson("04_gpu")
rng = np.random.default_rng(0)
NO_GPU = cuda_problem()


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


# %% [markdown]
# ## 1. Small products are all overhead
# A product of an (m, k) and a (k, n) matrix takes 2 m k n operations, a multiplication and an addition each.
# The rest of its time (Python, NumPy's checks, the call of the library) is the same for any size: the
# *overhead*. A product of 3 x 2 numbers takes hardly anything else. On a tape the overhead is a little
# larger. Rates are in GFLOP/s, a billion operations on floating-point numbers per second.

# %%
print("1. Small products are all overhead")
# (m, k) times (k, n); 30 x 20 and 120 x 30 are sizes of the lecture's article
SIZES = ((3, 2, 3), (30, 20, 30), (120, 30, 20), *((n, n, n) for n in (64, 128, 256, 512, 1024)))
products = {(m, k, n): (normal(m, k), normal(k, n)) for m, k, n in SIZES}
flop = {(m, k, n): 2 * m * k * n for m, k, n in SIZES}
on_cpu = {size: seconds(lambda a=a, b=b: a @ b, a) for size, (a, b) in products.items()}
SMALLEST, SMALL, LARGEST = SIZES[0], SIZES[1], SIZES[-1]
overhead = on_cpu[SMALLEST]
for size, took in on_cpu.items():
    rate = flop[size] / took / 1e9
    print(f"   {drawings.label(size):>19}: {1e6 * took:9.1f} us, {rate:7.2f} GFLOP/s,", end=" ")
    print(f"overhead {min(1, overhead / took):4.0%}")


def recorded(a, b):
    with Tape():
        return ops.matmul(a, b)


leaves = [Tensor(x, requires_grad=True) for x in products[SMALL]]
on_tape = seconds(lambda: recorded(*leaves), products[SMALL][0])
print(f"   {drawings.label(SMALL)} on a tape: {1e6 * on_tape:.1f} us instead of {1e6 * on_cpu[SMALL]:.1f}")
rates = {size: flop[size] / took for size, took in on_cpu.items()}
assert flop[SMALL] == 1000 * flop[SMALLEST], f"{flop[SMALL]} operations, expected 1000 times {flop[SMALLEST]}"
times = on_cpu[SMALL] / overhead
assert times < 100, f"a thousand times the work takes {times:.0f} times as long, expected less than 100"
least, small, most = (rate / 1e9 for rate in (rates[SMALLEST], rates[SMALL], max(rates.values())))
assert least < small / 5, f"{least:.2f} GFLOP/s, expected less than a fifth of {small:.2f}"
assert small < 0.8 * most, f"{small:.2f} GFLOP/s, expected less than 0.8 of {most:.2f}"

# %%
save(drawings.rates(rates, overhead, flop), FIGURES / "rates.png")

# %% [markdown]
# So collect work: put all samples of a batch into one product.
#
# Read: Harris et al. 2020 (NumPy), doi:10.1038/s41586-020-2649-2.
#
# ## 2. Operations per byte
# A processor has to fetch the numbers before it can multiply them. Count the operations for each byte that is
# moved. max(x, 0) reads 4 bytes, writes 4, and does one operation: 1/8. A matrix of weights times *one*
# sample uses each weight, 4 bytes, for one multiplication and one addition: 1/2. Times a batch of b samples:
# b times as many operations with the same weights.
#
# The *roofline*: no operation runs faster than memory delivers, (bytes a second) x (operations a byte), nor
# faster than the arithmetic units can. We measure both roofs: memory by a copy of an array, the units by the
# fastest product above. (A copy writes as much as it reads, and writing takes longer than reading. So a
# product with one sample, which hardly writes, may come out a little above its roof.)
#
# A roof is an upper bound, and a batch of 4 stays far below it. The reason: for more than one sample the
# library of products first copies the weights into blocks, in the order in which its inner loop reads them
# (*packing*). So each weight is read, written, and read again: three times as many bytes. The last column is
# the roof of a product with this copy. It limits a batch of 4; for large batches the copy hardly counts.

# %%
print("\n2. Operations per byte")
WIDE, BATCHES = 4096, (1, 4, 16, 64, 256)
weights = normal(WIDE, WIDE)


def per_byte(b):
    """Operations by bytes moved at least, of (b, WIDE) @ (WIDE, WIDE) in float32."""
    return 2 * b * WIDE**2 / (4 * (WIDE**2 + 2 * b * WIDE))


room = np.empty_like(weights)
bandwidth = 2 * weights.nbytes / seconds(lambda: np.copyto(room, weights), weights)
roof = max(rates.values())
measured = {"max(x, 0)": (1 / 8, weights.size / seconds(lambda: np.maximum(weights, 0, out=room), weights))}
for b in BATCHES:
    x, y = normal(b, WIDE), np.empty((b, WIDE), np.float32)
    took = seconds(lambda x=x, y=y: np.matmul(x, weights, out=y), x, rounds=3)
    measured[f"batch {b}"] = per_byte(b), 2 * b * WIDE**2 / took
print(f"   memory moves {bandwidth / 1e9:.0f} GB/s, the units do {roof / 1e9:.0f} GFLOP/s at best,", end=" ")
print(f"so {roof / bandwidth:.0f} operations a byte are needed")
print("              operations a byte    GFLOP/s    roof    roof with packing")
for name, (intensity, rate) in measured.items():
    allowed = min(roof, bandwidth * intensity)
    packing = min(roof, bandwidth * intensity / (1 if name in ("max(x, 0)", "batch 1") else 3))
    print(f"   {name:9} {intensity:18.3f} {rate / 1e9:10.1f} {allowed / 1e9:7.1f} {packing / 1e9:20.1f}")
assert abs(per_byte(1) - 1 / 2) < 0.001, f"{per_byte(1):.4f} operations a byte for one sample, expected 0.5"
assert per_byte(256) > 100, f"{per_byte(256):.1f} operations a byte for 256 samples, expected over 100"
assert per_byte(WIDE) == WIDE / 6, f"{per_byte(WIDE):.1f} operations a byte, expected {WIDE / 6:.1f}"
many, one, relu = (measured[name][1] / 1e9 for name in ("batch 256", "batch 1", "max(x, 0)"))
assert many > 3 * one, f"{many:.1f} GFLOP/s for 256 samples, expected three times the {one:.1f} for one"
assert one > relu, f"{one:.1f} GFLOP/s for one sample, expected more than the {relu:.1f} of max(x, 0)"

# %%
save(drawings.roofline(measured, bandwidth, roof, H200), FIGURES / "roofline.png")

# %% [markdown]
# A GPU has both roofs higher, by a hundred times and more: an H200 moves 4.8 TB/s and does 67 TFLOP/s in
# float32 (NVIDIA's data sheet). Its roofs meet at 14 operations a byte. An operation that memory bandwidth
# limits on a CPU is limited by it on a GPU, too. (Its matrix units do more, in formats with fewer bits. TF32
# keeps 10 of the 23 bits after the point of float32; CuPy uses it only if the environment variable CUPY_TF32
# is 1. Compare like with like.)
#
# Read: Williams, Waterman and Patterson 2009 (the roofline), doi:10.1145/1498765.1498785; Goto and van de
# Geijn 2008 (packing), doi:10.1145/1356052.1356053.
#
# ## 3. The size from which a GPU is faster
# An operation runs on a GPU as a *kernel*, a program that Python starts there. A start is called a *launch*,
# and costs time for any size: 5 to 20 microseconds from CuPy (benchmarks/README.md). In that time a CPU has
# finished a small product. The computer with the CPU is called the *host*. If the numbers are in the host's
# memory they have to travel to the GPU and back, over a link of 64 GB/s each way (PCIe 5, 16 lanes), 75 times
# slower than the GPU's own memory; and each of the three copies costs a launch, too.
#
# Without a GPU we compute the *least* times that these figures allow: a launch (10 us), and then arithmetic
# or memory, whichever takes longer. They are no measurement: a real GPU takes longer. With a GPU this part
# measures them.

# %%
print("\n3. The size from which a GPU is faster")


def there_and_back(a, b):
    return to_host(to_device(a, "cupy") @ to_device(b, "cupy"))


there, with_copies = {}, {}
for size, (a, b) in products.items():
    if NO_GPU:
        nbytes = a.nbytes + b.nbytes + 4 * len(a) * b.shape[1]
        there[size] = H200.seconds(flop[size], nbytes)
        with_copies[size] = there[size] + H200.copying(nbytes, copies=3)
    else:
        da, db = to_device(a, "cupy"), to_device(b, "cupy")
        there[size] = seconds(lambda da=da, db=db: da @ db, da)
        with_copies[size] = seconds(lambda a=a, b=b: there_and_back(a, b), da)
        np.testing.assert_allclose(to_host(da @ db), a @ b, rtol=1e-3, atol=1e-3)

# %%
source = f"{H200.name}, computed from published figures" if NO_GPU else "GPU, measured"
print(f"   ({source})")
for size, took in on_cpu.items():
    print(f"   {drawings.label(size):>19}: CPU {1e6 * took:8.1f} us, GPU {1e6 * there[size]:6.1f},", end=" ")
    print(f"with copies {1e6 * with_copies[size]:6.1f}")


def crossover(other):
    """The size n from which (n, n) products are faster there: between two sizes, times are power laws."""
    n = np.geomspace(30, 1024, 400)
    known = np.log([drawings.edge(a) for a in SIZES])
    cpu, gpu = (np.interp(np.log(n), known, np.log(list(t.values()))) for t in (on_cpu, other))
    return n[np.flatnonzero(cpu < gpu)[-1]]


wins, wins_with_copies = crossover(there), crossover(with_copies)
print(
    f"   the GPU is faster from about {wins:.0f} on; with copies there and back from {wins_with_copies:.0f}"
)
cpu, gpu = 1e6 * on_cpu[SMALL], 1e6 * there[SMALL]
assert cpu < gpu, f"the small product takes {cpu:.1f} us in NumPy, {gpu:.1f} us on a GPU at best"
cpu, gpu = 1e3 * on_cpu[LARGEST], 1e3 * with_copies[LARGEST]
assert gpu < cpu, f"the largest takes {gpu:.2f} ms on a GPU with copies, {cpu:.2f} ms in NumPy"
assert wins < wins_with_copies, f"a GPU wins from {wins:.0f} on, with copies from {wins_with_copies:.0f}"

# %%
save(
    drawings.crossover(on_cpu, there, with_copies, wins, wins_with_copies, source), FIGURES / "crossover.png"
)

# %% [markdown]
# A product reuses what was copied, in n / 6 operations a byte. Even so, by these figures, the copies of one
# product take longer than the product up to n = 6,281. max(x, 0) uses every number once: the copies there and
# back take 75 times as long as the work on the GPU, and move as many bytes as the CPU moves to do this work
# itself.
#
# So copy once, and work long. What goes into a training step and what comes out of it is known before it
# begins: a batch, and a loss. Only these travel. The weights stay in the GPU's memory from step to step, and
# so do their gradients and the state of the optimizer. A network that takes w products a sample does 6 w
# operations for it (2 forward, 4 backward). The copy of a batch is hidden if the operations take longer than
# the copy of the next batch:

# %%
even = 6 * H200.flops / H200.link  # 2 n^3 / flops = 12 n^2 / link
times = H200.memory / H200.link
assert round(even) == 6281, f"copies and products take equal time at n = {even:.0f}, expected 6281"
assert round(times) == 75, f"the GPU's memory is {times:.1f} times as fast as the link, expected 75"
needed = H200.flops / H200.link
print(f"   to hide the copy of a batch: {needed:.0f} operations a byte of it;", end=" ")
# 118,016 and 15.47e9 are the products a sample takes; its pixels are 4 bytes each
reuse = {"784-128-128-10": 6 * 118_016 / (4 * 784), "VGG-16": 6 * 15.47e9 / (4 * 3 * 224**2)}
print(", ".join(f"{name} has {ratio:,.0f}" for name, ratio in reuse.items()))
small, large = reuse.values()
assert small < needed < large, (
    f"{needed:.0f} operations a byte are needed, the nets have {small:.0f} and {large:.0f}"
)

# %% [markdown]
# A whole training, measured: on one H100 and in batches of 64, LeNet, a small convolutional network, trained
# 45,253 samples a second; on one core of the same machine it trained 6,037 (27 November 2026,
# benchmarks/README.md).
#
# Read: Okuta et al. 2017 (CuPy), learningsys.org/nips17/assets/papers/paper_16.pdf.
#
# ## 4. Few launches, few waits
# Training asks for many small operations, not for one product. So count the launches of one training step.
# The counts below are for the networks of `minigrad train --net` in batches of 64, with SGD and momentum: mlp
# has three linear layers, lenet and vgg are convolutional networks, sigmoid is the network of the lecture's
# article, and lesson 17 explains the transformer. They need no GPU: `python -m tests.launches` runs the step
# on the tests' double of CuPy, which computes with NumPy and counts, and a test compares the file
# `launches.json` with it. A *synchronization* is a point where the host waits until the GPU has finished
# everything, here to read the loss: then the GPU has nothing to do until the next launch arrives.
#
# The launches alone give a lower bound of the time of a step. We compare it with the whole step in NumPy.

# %%
print("\n4. Few launches, few waits")


def step_on_cpu(name):
    """Seconds of one training step of the net in NumPy, on one thread."""
    net = NETS[name]
    model, backend = net.build(np.random.default_rng(0)), Serial()
    batch = net.prepare(net.data().train[:64], np.float32)
    optimizer = optim.SGD(model.parameters(), net.lr, momentum=net.momentum)

    def step():
        optimizer.zero_grad()
        backend.step(model, batch, net.loss)
        backend.update(model, optimizer)

    return seconds(step, batch.x, rounds=3)


in_numpy = {name: step_on_cpu(name) for name in LAUNCHES}
in_launches = {name: H200.launch * (n["kernels"] + n["products"]) for name, n in LAUNCHES.items()}
print("                 kernels  products  waits  at least, ms  in NumPy, ms")
for name, n in LAUNCHES.items():
    print(f"   {name:11} {n['kernels']:9} {n['products']:9} {n['synchronizations']:6}", end=" ")
    print(f"{1e3 * in_launches[name]:13.1f} {1e3 * in_numpy[name]:13.1f}")
least, step = 1e3 * in_launches["sigmoid"], 1e3 * in_numpy["sigmoid"]
assert least > step / 5, f"launches take {least:.2f} ms, a step in NumPy {step:.2f}"  # so little can be won
least, step = 1e3 * in_launches["vgg"], 1e3 * in_numpy["vgg"]
assert least < step / 10, f"launches take {least:.2f} ms, expected less than a tenth of {step:.1f}"

# %% [markdown]
# There are two remedies. *Fusing* makes one kernel of several operations: there are fewer launches, and the
# numbers between the operations stay in *registers*, the few numbers that each thread of the GPU holds
# itself. `elementwise_kernels.py`, `im2col_kernels.py`, `pool_kernels.py` and `loss_kernels.py` of
# `minigrad/ops/fast` do it, and so do kernels in CUDA C++, NVIDIA's dialect of C++, whose threads work
# together, such as `columns.py`; tests compare each with its readable form. `optim_kernels.py` updates all
# parameters of a network by one kernel. Without these kernels a step of the VGG took 224 kernels and 17
# products, and a step of the mlp 71 and 8.
#
# *Capturing* records the launches of a step once (a CUDA graph) and repeats all of them with one call:
# `minigrad train --device cupy --capture` (`minigrad/capture.py`). A graph holds addresses and numbers. So
# everything that changes from step to step (samples, rates, random numbers) is first copied to memory
# that the graph reads. Its law: the weights are the same as without `--capture`, bit by bit. On the H100 of
# part 3, LeNet trained 269,935 samples a second with a captured step, six times as many as without.
#
# A kernel is compiled when it is first asked for. So compile once and use often: measure from the second call
# on, and do not write kernels that differ a little every time. A loop that Numba compiles for the CPU shows
# the same; with a GPU, a kernel that no cache knows is measured, too.


# %%
def doubled(x, y):
    for i in range(len(x)):
        y[i] = 2 * x[i]


def first_and_later(work, x):
    """Seconds of the first call of ``work``, which compiles it, and of a later one."""
    start = time.perf_counter()
    work()
    if array_module(x) is not np:
        array_module(x).cuda.get_current_stream().synchronize()
    return time.perf_counter() - start, seconds(work, x)


compiling, x = {}, normal(1 << 16)
if loops.available():
    double, y = loops.machine_code(doubled, "ff", stored=False), np.empty_like(x)
    compiling["Numba"] = first_and_later(lambda: double(x, y), x)
if not NO_GPU:
    limit, there_x = time.time_ns() % 1_000_000, to_device(x, "cupy")  # a source that no cache knows
    text = f"y = 2 * x + {limit}"
    kernel = array_module(there_x).ElementwiseKernel("float32 x", "float32 y", text, "doubled")
    compiling["CuPy"] = first_and_later(lambda: kernel(there_x), there_x)
for name, (first, later) in compiling.items():
    print(
        f"   {name}: first call {1e3 * first:.1f} ms, later {1e6 * later:.1f} us: {first / later:,.0f} times"
    )
    assert first > 10 * later, f"{name}: the first call takes {first:.2g} s, expected ten times {later:.2g} s"

# %% [markdown]
# Read: NVIDIA, "CUDA C++ programming guide", the section on CUDA graphs.
#
# ### A convolution without windows in memory
# On the CPU a convolution is a matrix product, in which each row of the first matrix is one *window*, the
# patch of the image under the kernel. With 3 x 3 weights the windows have nine times as many numbers as the
# images, and they are written to memory only to be read once. On a GPU that takes most of the time.
#
# But the product never needs all windows at once. A GPU runs thousands of *threads* in *blocks*; the threads
# of a block share a small fast memory. One block computes a tile of the outputs, BM outputs by BN filters,
# and takes BK terms of the long sums at a time. The kernel (`implicit.cu`, called by `implicit.py` of
# `minigrad/ops/fast`) is the loop below; `direct` (`minigrad/ops/conv.py`) computes the right values to
# compare with.

# %%
images, weights = normal(2, 12, 12, 8), normal(32, 8, 3, 3)  # channels are last in memory
geometry, (BM, BN, BK) = Geometry((3, 3), (1, 1), (1, 1), (1, 1)), (64, 32, 16)
exact, _ = direct(images, weights, geometry)
padded, terms = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0))), weights[0].size
matrix = weights.transpose(2, 3, 1, 0).reshape(terms, 32)  # (tap, channel) x filter


def window(output, first):
    """Terms ``first`` to ``first + BK - 1`` of the sum of an output pixel; after the last there is 0."""
    n, pixel = divmod(output, 144)
    row, column = divmod(pixel, 12)
    numbers = padded[n, row : row + 3, column : column + 3].reshape(terms)[first : first + BK]
    return np.pad(numbers, (0, BK - len(numbers)))


def block(first_output):
    """What one block computes; the two arrays inside the loop are its shared memory."""
    total = np.zeros((BM, BN), np.float32)  # in registers, some sums for each thread
    for k in range(0, terms, BK):
        windows = np.stack([window(first_output + m, k) for m in range(BM)])  # loaded by all threads together
        kernel = np.pad(matrix[k : k + BK], ((0, max(k + BK - terms, 0)), (0, 0)))
        # here all threads wait for one another: the numbers that one loaded are multiplied by others
        total += windows @ kernel
        # and here, before the next terms overwrite these
    return total


# %%
outputs = np.concatenate([block(m) for m in range(0, 2 * 144 - BM + 1, BM)])
off = np.abs(outputs - exact.reshape(-1, 32)[: len(outputs)]).max()
shared_numbers = BK * (BM + BN)
print(
    f"   {len(outputs) // BM} blocks of {BM} x {BN} sums hold {shared_numbers} numbers each at a time;",
    end=" ",
)
print(f"all windows are {288 * terms}; off by {off:.0e} from `direct`")
assert off < 1e-4, f"the blocks' sums are off by {off:.1e} from direct's, expected rounding"
per_load = 2 * BM * BN * BK / shared_numbers
assert per_load > 40, f"{per_load:.0f} operations for each number loaded, expected over 40"

# %%
save(drawings.tile(288, terms, 32, (BM, BN, BK)), FIGURES / "tile.png")

# %% [markdown]
# Each number that a block loads is used for 43 operations here. Before the kernel writes, it adds the bias,
# takes the largest of 2 x 2 neighbors and applies the ReLU: one launch instead of five, and a quarter of the
# bytes. The threads of a block wait for one another at two places. If one of these waits is left out, the
# sums are right on some days only. So the tests' double of CuPy runs the kernel with its threads in three
# orders, and expects the same bits.
#
# ### What one block costs
# A GPU has over a hundred *multiprocessors*, and a block runs on one of them. The gradient of a convolution's
# bias is the sum of the rows of a tall matrix. A library that gives each block 32 columns sums 65,536 rows of
# 32 columns *in one block*, and all other multiprocessors wait. With two stages, first some rows in each
# block and then the sums of the blocks (`minigrad/sums.py`), the same bytes are read, and all multiprocessors
# share the work. On an H100 this sum took 12.2 instead of CuPy's 660 us (27 November 2026,
# benchmarks/README.md).

# %%
THREADS, COLUMNS = 512, 32  # of a block


def additions_in_a_row(rows, parts):
    """How many numbers a thread adds one after the other, where ``parts`` blocks share the rows."""
    return rows // parts * COLUMNS // THREADS + parts * COLUMNS // THREADS


for parts in (1, 256):
    count = additions_in_a_row(1 << 16, parts)
    print(f"   65,536 rows in {parts:3} blocks: {count:5} additions one after the other")
one, many = additions_in_a_row(1 << 16, 1), additions_in_a_row(1 << 16, 256)
assert one > 100 * many, f"{one} additions in one block, expected over 100 times the {many} in 256"

# %% [markdown]
# ## 5. The order of an array in memory
# The numbers of an array are one sequence in memory. In *C order* the last index changes fastest from one
# number to the next, in *Fortran order* the first index does. `a.T` moves nothing: it is the same memory,
# read in the other order. A GPU's matrix library (cuBLAS, like BLAS on the CPU) reads matrices in Fortran
# order, so it sees an array in C order as its transpose. Still nothing has to move, since (a b)ᵀ = bᵀ aᵀ:
# give it the memory of b and of a, in this order, and it writes (a b)ᵀ in Fortran order, which is a b in C
# order.

# %%
print("\n5. The order of an array in memory")


def blas_product(left, right, m, k, n):
    """What BLAS computes: the memory of an (m, n) matrix from the memories of two; all in Fortran order."""
    product = left.reshape((m, k), order="F") @ right.reshape((k, n), order="F")
    return product.ravel(order="F")


a, b = normal(3, 4), normal(4, 5)
off = np.abs(blas_product(b.ravel(), a.ravel(), 5, 4, 3).reshape(3, 5) - a @ b).max()
print(f"   b and a in C order, given to a library for Fortran order: a b, up to {off:.0e}")
assert off < 1e-5, f"the product differs from a b by {off:.1e}, limit 1e-5"
small = normal(2048, 2048)
space = np.empty_like(small)
straight, across = (seconds(lambda x=x: np.copyto(space, x), space, rounds=3) for x in (small, small.T))
print(f"   a copy of a takes {1e3 * straight:.1f} ms, of a.T into C order {1e3 * across:.1f} ms")
assert across > straight, f"the copy of a.T takes {across:.2g} s, expected more than {straight:.2g} s"

# %% [markdown]
# The second time is longer, because memory delivers 64 neighboring bytes at a time, and the copy of `a.T`
# uses only 4 of them before it jumps to another place.
#
# If the memory of `a.T` is given to a program that reads it in C order, all numbers arrive, in the wrong
# places. No error is raised, and even the sum is right. Lesson 05 shows how a message avoids this.

# %%
digit = mnist.load("mnist5k").train.x[7].reshape(28, 28)[:, 4:24]  # not square: 28 x 20
a = np.ascontiguousarray(digit.T)  # so a.T is upright
assert a.T.base is a and a.T.strides == a.strides[::-1], f"a.T has strides {a.T.strides}, a has {a.strides}"
scrambled = a.T.ravel(order="K").reshape(a.T.shape)  # K: as the numbers are in memory
wrong, missing = np.sum(scrambled != a.T), np.sum(np.sort(scrambled, None) != np.sort(a, None))
print(f"   the memory of a.T, read in C order: {wrong} of {a.size} numbers are at the wrong place, ", end="")
print(f"{missing} are missing")
assert wrong > 100 and missing == 0, (
    f"{wrong} numbers at wrong places, {missing} missing; expected some and 0"
)
right = a.ravel(order="K").reshape(a.shape)
assert np.array_equal(right, a), f"{np.sum(right != a)} numbers of a are at wrong places, expected 0"

# %%
save(drawings.scrambled(a.T, scrambled), FIGURES / "scrambled.png")

# %% [markdown]
# Read: NumPy's manual, "Internal memory layout of an ndarray".
#
# ## 6. Five forms that are slow for no reason
# An op of a library should run near the roof of part 2. It is far below in five typical cases, and each has a
# remedy. Both forms compute the same numbers.
#
# 1. *Silent promotion to float64.* `np.where(x > 0, 1, slope)` of two Python numbers is float64, and so is
#    every product with it: twice the bytes, and one pass more to convert them back.
# 2. *A general function instead of a product.* `x ** 3` computes the power of any two numbers, by logarithms.

# %%
print("\n6. Five forms that are slow for no reason")
x, slope = normal(1 << 20), 0.01
FORMS = {  # the slow form and the fast one
    "leaky ReLU": (lambda: x * np.where(x > 0, 1, slope), lambda: np.maximum(x, np.float32(slope) * x)),
    "x ** 3": (lambda: x**3, lambda: x * x * x),
}

# %% [markdown]
# 3. *A loop in Python, and thin products.* In a *depthwise* convolution each channel has its own kernel. It
#    can be computed as one matrix product for each channel, with a matrix of one column. The fast form has
#    nine products of whole shifted images, each with one number for each channel (`ops/fast/depthwise.py`).

# %%
images, taps = normal(8, 16, 16, 64), normal(3, 3, 64)  # images with their channels last


def windows(image):
    """The 3 x 3 neighbors of each pixel, as rows of a matrix, without a border: (8 x 14 x 14, 9)."""
    return np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2)).reshape(-1, 9)


def by_channel():
    columns = [windows(images[..., c]) @ taps[..., c].ravel() for c in range(64)]
    return np.stack(columns, axis=-1).reshape(8, 14, 14, 64)


def by_tap():
    total = np.zeros((8, 14, 14, 64), np.float32)
    for i in range(3):
        for j in range(3):
            total += images[:, i : i + 14, j : j + 14] * taps[i, j]
    return total


FORMS["depthwise"] = by_channel, by_tap

# %% [markdown]
# 4. *One element at a time.* `np.add.at` adds gradients to the rows of a table, also if a row is chosen
#    twice, and looks up the place of each number. A compiled loop adds whole rows (`ops/selection.py`).
# 5. *A pass for each operation.* Each call of NumPy reads arrays and writes one. A normalization (subtract
#    the mean of each row, and divide by the root of its variance) takes a dozen calls, so its numbers go
#    through memory a dozen times. A loop takes one row at a time, which stays in the cache. Python's own
#    loops are slow; Numba compiles them to machine code (`minigrad/loops.py`).

# %%
table, rows, g = (20_000, 64), rng.integers(0, 20_000, 40_000), normal(40_000, 64)
features = normal(4096, 256)


def add_at():
    total = np.zeros(table, np.float32)
    np.add.at(total, rows, g)
    return total


def normalized_in_passes():
    centered = features - features.mean(axis=1, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(axis=1, keepdims=True) + 1e-5)


@loops.compiled
def normalize(x, y):
    rows, columns = x.shape
    for i in range(rows):
        total, squares = 0.0, 0.0
        for j in range(columns):
            total += x[i, j]
        mean = x.dtype.type(total / columns)  # in float32 again, or the rest is float64: case 1
        for j in range(columns):
            squares += (x[i, j] - mean) ** 2
        scale = x.dtype.type(1 / np.sqrt(squares / columns + 1e-5))
        for j in range(columns):
            y[i, j] = (x[i, j] - mean) * scale


# %%
def normalized_by_loops():
    y = np.empty_like(features)
    normalize(features, y)
    return y


if loops.available():
    FORMS["rows that add up"] = add_at, lambda: sum_by_row(g, rows, table[0])
    FORMS["passes"] = normalized_in_passes, normalized_by_loops
else:
    print(f"   without compiled loops: {loops.problem()}")
ratios = {}
for name, (slow, fast) in FORMS.items():
    np.testing.assert_allclose(slow(), fast(), rtol=1e-4, atol=1e-4, err_msg=name)
    before, after = seconds(slow, x, rounds=3), seconds(fast, x, rounds=3)
    ratios[name] = before / after
    print(f"   {name:16}: slow form {1e3 * before:6.2f} ms, fast form {1e3 * after:5.2f}", end="")
    print(f" ({before / after:.1f} times as fast)")
for name, ratio in ratios.items():
    assert ratio > 1.3, f"{name}: the fast form is {ratio:.2f} times as fast, expected over 1.3"

# %% [markdown]
# And the ops of the library, forward and backward on a tape, against the roof of part 2? Every array that an
# op has to read or write (input, output, their gradients, the weights and their gradients) passes memory
# once, or the units do all operations at full speed: the longer of the two is the least time of the op. Layer
# norm, the normalization of case 5, is in the list twice: as one op, and written as nine ops, each with its
# own backward. The nine ops also read and write the arrays between them, so they are far from the roof.
# Arrays that fit into the processor's cache are read faster than memory delivers, so a point may also be
# above the slanted roof.


# %%
def in_nine_ops(x, weight, bias):
    centered = x - x.mean(axis=1, keepdims=True)
    var = (centered * centered).mean(axis=1, keepdims=True)
    return centered / ops.sqrt(var + 1e-5) * weight + bias


N = 1 << 20
image, kernel = (16, 32, 32, 32), (32, 32, 3, 3)
OPS = {  # the op, shapes of its inputs, operations forward and backward, numbers read or written
    "ReLU": (ops.relu, [(N,)], 2 * N, 4 * N),
    "x ** 3": (lambda x: x**3, [(N,)], 5 * N, 4 * N),
    "softmax": (ops.softmax, [(N // 128, 128)], 8 * N, 4 * N),
    "layer norm": (ops.layer_norm, [(N // 256, 256), (256,), (256,)], 16 * N, 4 * N),
    "in nine ops": (in_nine_ops, [(N // 256, 256), (256,), (256,)], 16 * N, 4 * N),
    "linear": (ops.linear, [(64, 1024), (1024, 1024)], 6 * 64 * 1024**2, 4 * 64 * 1024 + 2 * 1024**2),
    "conv 3 x 3": (
        lambda x, w: ops.conv2d(x, w, padding=1),
        [image, kernel],
        6 * np.prod(image) * 32 * 9,
        4 * np.prod(image) + 2 * np.prod(kernel),
    ),
}

# %%
under_roof, distance = {}, {}
for name, (work, shapes, count, numbers) in OPS.items():
    inputs = [Tensor(normal(*shape), requires_grad=True) for shape in shapes]

    def step(work=work, inputs=inputs):
        with Tape() as tape:
            y = work(*inputs)
        for leaf in inputs:
            leaf.grad = None
        tape.backward(y, seed=y.data)

    took = seconds(step, inputs[0].data, rounds=3)
    least = max(count / roof, 4 * numbers / bandwidth)
    under_roof[name], distance[name] = (count / (4 * numbers), count / took), took / least
    print(f"   {name:11}: {1e3 * took:6.2f} ms, at least {1e3 * least:5.2f}: {took / least:4.1f} times that")
one, nine, product = distance["layer norm"], distance["in nine ops"], distance["linear"]
assert product < nine, f"linear takes {product:.1f} times its least time, nine ops only {nine:.1f}"
assert one < nine, f"layer norm takes {one:.1f} times its least time as one op, as nine {nine:.1f}"

# %%
save(drawings.slow_forms(ratios, under_roof, bandwidth, roof), FIGURES / "slow_forms.png")

# %% [markdown]
# `python benchmarks/ops.py` compares more than a hundred such rows with PyTorch, worst first.
#
# Read: `benchmarks/README.md`, the part on single ops; Drepper 2007, "What every programmer should know about
# memory".

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - The engine computes on device arrays what it computes on the host, and waits for the GPU only where this
#   is said: [tests](../../tests/minigrad/test_gpu_calls.py).
# - The counts of `launches.json` are the launches, products, copies and synchronizations of a step of each
#   network: [tests](../../tests/lessons/test_launches.py).
# - The convolution without windows computes the sums of `direct`, for drawn sizes and with its threads in
#   three orders: [tests](../../tests/minigrad/ops/fast/test_implicit.py).
# - A captured step trains as the step that it records, bit by bit:
#   [tests](../../tests/minigrad/test_capture.py).
# - Every fast form of an op computes what its readable form computes:
#   [tests](../../tests/minigrad/ops/fast/test_fast_forms.py).
#
# Not proved: every time in this lesson. The assertions here say which of two measured times is shorter, on
# your machine, and the times of a GPU are lower bounds from a data sheet unless you have one.
#
# Next: [lesson 05](../05_messages/lesson.py): one machine is not enough, so numbers travel between machines.
