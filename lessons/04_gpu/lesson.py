"""Lesson 04. GPU against CPU: what an operation costs besides its arithmetic.

Lecture section: GPU against CPU. Matrix products from 30 x 20 up; operations per byte (Williams, Waterman and
Patterson 2009, "Roofline"); where a GPU begins to win, and what copies cost; the order of an array in memory;
why some operations are slow.

    python lessons/04_gpu/lesson.py

Needs neither GPU nor MPI. With CuPy and a GPU it measures it; without, it counts what a GPU would be asked
for, and computes what published figures allow. Figures go to runs/lessons/04_gpu/. In an editor that knows
`# %%` cells this file opens as a notebook.
"""

# %%
import time

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson
from timing import H200, LAUNCHES, seconds

from backends.comm import run_ranks
from backends.comm.wire import finish, pack, unpack
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
# A product of (m, k) and (k, n) takes 2 m k n operations, a multiplication and an addition each. What it
# takes besides (Python, NumPy's checks, the call of the library) is the same for any size. A product of
# 3 x 2 numbers is nothing else. On the tape comes a little more.

# %%
print("1. Small products are all overhead")
# (m, k) times (k, n); 120 x 30 times 30 x 20 is the lecture's own example
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
save(drawings.rates(rates, overhead, flop), FIGURES / "rates.png")

# %% [markdown]
# So collect work: all samples of a batch in one product.
#
# Read: Harris et al. 2020 (NumPy), doi:10.1038/s41586-020-2649-2.
#
# ## 2. Operations per byte
# A processor that could multiply at once still has to fetch the numbers. How many operations does each byte
# pay for? max(x, 0) reads 4 bytes, writes 4, and does one: 1/8. A matrix of weights times *one* sample uses
# each weight once: 1/2. Times a batch of b samples: b times as much work on the same weights.
#
# The *roofline*: no operation runs faster than memory delivers, (bytes a second) x (operations a byte), nor
# faster than the arithmetic units can. (We measure both roofs: memory by a copy, the units by the fastest
# product above. A copy writes as much as it reads, which takes longer than reading alone: so a product with
# one sample, which hardly writes, may come out a little above.)

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
for name, (intensity, rate) in measured.items():
    allowed = min(roof, bandwidth * intensity)
    print(
        f"   {name:9}: {intensity:7.3f} per byte, {rate / 1e9:6.1f} GFLOP/s; the roof is {allowed / 1e9:6.1f}"
    )
assert abs(per_byte(1) - 1 / 2) < 0.001, f"{per_byte(1):.4f} operations a byte for one sample, expected 0.5"
assert per_byte(256) > 100, f"{per_byte(256):.1f} operations a byte for 256 samples, expected over 100"
assert per_byte(WIDE) == WIDE / 6, f"{per_byte(WIDE):.1f} operations a byte, expected {WIDE / 6:.1f}"
many, one, relu = (measured[name][1] / 1e9 for name in ("batch 256", "batch 1", "max(x, 0)"))
assert many > 3 * one, f"{many:.1f} GFLOP/s for 256 samples, expected three times the {one:.1f} for one"
assert one > relu, f"{one:.1f} GFLOP/s for one sample, expected more than the {relu:.1f} of max(x, 0)"
save(drawings.roofline(measured, bandwidth, roof, H200), FIGURES / "roofline.png")

# %% [markdown]
# A GPU has both roofs higher, by a hundred times and more: an H200 4.8 TB/s and 67 TFLOP/s in float32
# (NVIDIA's data sheet). The corner is at 14 operations a byte. What is slow for want of bytes on a CPU is so
# on a GPU, too. (Its matrix units do more, in formats with fewer bits. TF32 keeps 10 of the 23 bits behind
# float32's point: CuPy uses it only when told so, `CUPY_TF32=1`. Compare like with like.)
#
# Read: Williams, Waterman and Patterson 2009 (the roofline), doi:10.1145/1498765.1498785.
#
# ## 3. Where a GPU begins to win
# Each operation that Python sends to a GPU costs a *launch*, whatever its size: 5 to 20 microseconds from
# CuPy are reported. In that time a CPU has finished a small product. And if the numbers lie in the host's
# memory they have to go there and back, over a link of 64 GB/s each way (PCIe 5, 16 lanes), 75 times slower
# than the GPU's own memory; and each of the three copies costs a launch, too.
#
# Without a GPU we compute the *least* times that these figures allow: launch (10 us), then arithmetic or
# memory, whichever takes longer. That is no measurement, and a real one is above it.

# %%
print("\n3. Where a GPU begins to win")


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
save(
    drawings.crossover(on_cpu, there, with_copies, wins, wins_with_copies, source), FIGURES / "crossover.png"
)

# %% [markdown]
# A product reuses what was copied: n / 6 operations a byte. Even so, by these figures, the copies of one
# product take longer than the product up to n = 6,281. max(x, 0) uses every number once: the way there and
# back takes 75 times as long as the work there, and moves as many bytes as the CPU would to do it.
#
# So move once, and work long. In training the weights stay on the GPU, and only the batch travels. A network
# that takes w products a sample does 6 w operations (2 forward, 4 backward):

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
# A message from one GPU to another has the same problem. MPI reads memory of the host, so minigrad copies the
# array to the host, sends it, and copies it to the other GPU. An MPI library that was built for CUDA, a
# *CUDA-aware MPI*, takes the address of GPU memory itself; and with *GPUDirect RDMA* the network card reads
# GPU memory over the bus, without the host. `MINIGRAD_CUDA_AWARE=1` passes device arrays to MPI directly
# (`minigrad doctor` says which way is taken). Set it only for an MPI that can: any other one would take the
# address for one of the host's memory. What the copies cost, by the figures above and with 400 Gbit/s:

# %%
NETWORK = 50e9  # bytes a second
through_host = 2 / H200.link + 1 / NETWORK  # seconds a byte, one after the other
staged = through_host * NETWORK
print(f"   a large message between two GPUs through the hosts' memory takes {staged:.1f} times as long")
assert 2.5 < staged < 2.6, f"{staged:.2f} times as long as by GPUDirect, expected 1 + 2 * 50 / 64"

# %% [markdown]
# Read: Okuta et al. 2017 (CuPy), learningsys.org/nips17/assets/papers/paper_16.pdf; Potluri et al. 2013
# (GPUDirect RDMA and MPI), doi:10.1109/ICPP.2013.17.
#
# ## 4. Few launches, few waits
# Training asks for many small operations, not for one product. So count what one step asks of a GPU. The
# counts below are of batches of 64 with SGD and momentum; they need no GPU: `python -m tests.launches` runs
# the step on the tests' double of CuPy, which computes with NumPy and counts (and a test holds the file
# `launches.json` to it). A *synchronization* is where the host waits for all that it has asked for, here to
# read the loss: afterwards the GPU has nothing to do until the next launch arrives.
#
# Launches alone bound the step from below. We compare this bound with the whole step in NumPy.

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
for name, n in LAUNCHES.items():
    print(f"   {name:11}: {n['kernels']:3} kernels, {n['products']:2} products,", end=" ")
    print(f"{n['synchronizations']} synch.: at least {1e3 * in_launches[name]:3.1f} ms;", end=" ")
    print(f"in NumPy {1e3 * in_numpy[name]:5.1f}")
least, step = 1e3 * in_launches["sigmoid"], 1e3 * in_numpy["sigmoid"]
assert least > step / 5, f"launches take {least:.2f} ms, a step in NumPy {step:.2f}"  # so little can be won
least, step = 1e3 * in_launches["vgg"], 1e3 * in_numpy["vgg"]
assert least < step / 10, f"launches take {least:.2f} ms, expected less than a tenth of {step:.1f}"

# %% [markdown]
# There are two remedies. *Fusing* writes several operations as one kernel: less to launch, and what lies
# between them stays in registers. `elementwise_kernels.py`, `im2col_kernels.py`, `pool_kernels.py` and
# `loss_kernels.py` of `minigrad/ops/fast` do it, and so do kernels in CUDA C++ whose threads work
# together, as those of `columns.py`; tests compare each with its readable form, and `optim_kernels.py`
# updates all parameters of a net by one kernel.
# Without them a step of the VGG took 224 kernels and 17 products, one of the mlp 71 and 8. *Capturing*
# records the launches of a step once (a CUDA graph) and repeats all of them with one call.
#
# `minigrad train --device cupy --capture` captures (`minigrad/capture.py`). A graph holds addresses and
# numbers. What changes from step to step (samples, rates, the masks of dropout) is therefore first
# copied to memory that the graph reads. Its law: the weights are bit by bit those without `--capture`.
#
# A kernel is compiled when it is first asked for, and the first call of a process also sets up the GPU. So
# compile once and use often: measure from the second call on, and do not write kernels that differ a little
# every time. (Where a GPU is at hand, this is measured here.)

# %%
if not NO_GPU:
    x = to_device(normal(1 << 16), "cupy")
    xp, limit = array_module(x), time.time_ns() % 1_000_000  # a source that no cache knows
    double = xp.ElementwiseKernel("float32 x", "float32 y", f"y = x < {limit}.0f ? 2 * x : 0", "doubled")
    start = time.perf_counter()
    double(x)
    xp.cuda.get_current_stream().synchronize()
    first = time.perf_counter() - start
    later = seconds(lambda: double(x), x)
    print(f"   first call {1e3 * first:.1f} ms, later {1e6 * later:.1f} us: {first / later:,.0f} times")
    assert first > 10 * later, f"the first call takes {first:.2g} s, expected ten times {later:.2g} s"

# %% [markdown]
# Read: NVIDIA, "CUDA C++ programming guide", the section on CUDA graphs.
#
# ### A convolution without windows in memory
# On the CPU a convolution is a matrix product whose rows are windows: for 3 x 3 kernels nine times as many
# numbers as the images have, written to memory to be read once. On a GPU that is most of the time. But the
# product never needs all windows at once. A *block* of threads computes a tile of the outputs, BM outputs by
# BN filters, and takes BK terms of the long sums at a time. Its kernel (`implicit.cu`, called by
# `implicit.py` of `minigrad/ops/fast`) is this loop; `direct` (`minigrad/ops/conv.py`) is the oracle.

# %%
images, weights = normal(2, 12, 12, 8), normal(32, 8, 3, 3)  # channels are last in memory
geometry, (BM, BN, BK) = Geometry((3, 3), (1, 1), (1, 1), (1, 1)), (64, 32, 16)
exact, _ = direct(images, weights, geometry)
padded, terms = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0))), weights[0].size
matrix = weights.transpose(2, 3, 1, 0).reshape(terms, 32)  # (tap, channel) x filter


def window(output, first):
    """Terms ``first`` to ``first + BK - 1`` that an output pixel sees; beyond the last there is 0."""
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
save(drawings.tile(288, terms, 32, (BM, BN, BK)), FIGURES / "tile.png")

# %% [markdown]
# Each number that a block loads is used for 43 operations here, and the kernel adds the bias, takes the
# largest of 2 x 2 neighbours and cuts at 0 before it writes: one launch where there were five, a quarter of
# the bytes. How far apart threads may be is said by the two places where they wait. Leave one out and the
# sums are right on some days: the tests' double runs the kernel with its threads in three orders and asks
# for the same bits.
#
# ### What one block costs
# A GPU has over a hundred multiprocessors, and a block runs on one. The gradient of a convolution's bias is
# the sum of the rows of a tall matrix. A library that gives each block 32 columns sums 65,536 rows of 32
# columns *in one block*: the others wait. Two stages, some rows a block and then the blocks' sums
# (`minigrad/sums.py`), read the same bytes and are shared by all.

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
# `a.T` moves nothing: it is the same memory, read in another order. NumPy calls it Fortran order, first index
# fastest; C order has the last index fastest. A GPU's matrix library (cuBLAS, like BLAS) is written for
# Fortran order: it gets C-order arrays as their transposes, and since (a b)^T = b^T a^T nothing has to move.
#
# A *message* is different. MPI sends memory, from here to there. Who hands it the memory of `a.T`, and fills
# an array of the same shape with what comes, gets all the right numbers at the wrong places. No error is
# raised, the sum is right, and the loss may even fall. (mpi4py's `Send` takes `a.T` and does just that; an
# array with gaps it refuses: "buffer is not contiguous".)
#
# Lesson 05 is about messages. Here it is enough that `run_ranks(2, f)` calls `f(comm)` twice at the same
# time, with `comm.rank` 0 and 1; that `comm.send(x, to=1)` sends an array to the other; that `comm.recv(0)`
# waits for it; and that what the two return comes back as a list.

# %%
print("\n5. The order of an array in memory")
digit = mnist.load("mnist5k").train.x[7].reshape(28, 28)[:, 4:24]  # not square: 28 x 20
a = np.ascontiguousarray(digit.T)  # so a.T is upright
assert a.T.base is a and a.T.strides == a.strides[::-1], f"a.T has strides {a.T.strides}, a has {a.strides}"


def in_memory(x):
    """The numbers of ``x`` as they lie in memory: what a message would carry that asks for nothing else."""
    return x.ravel(order="K")


def send_memory(comm, x):
    if comm.rank == 0:
        comm.send(in_memory(x), to=1)
        return x
    return comm.recv(0).reshape(x.shape)


def send_array(comm, x):
    if comm.rank == 0:
        comm.send(x, to=1)
        return x
    return comm.recv(0)


def arrived(send, x):
    return run_ranks(2, lambda comm: send(comm, x))[1]


def wrong(actual, exact):
    assert actual.shape == exact.shape, f"shape {actual.shape} arrived, expected {exact.shape}"
    lost = np.sum(np.sort(actual, None) != np.sort(exact, None))
    assert lost == 0, f"{lost} numbers did not arrive, expected 0"
    return np.count_nonzero(actual != exact)


scrambled, right = arrived(send_memory, a.T), arrived(send_array, a.T)
for how, send in (("memory  ", send_memory), ("an array", send_array)):
    of_t, of_a = wrong(arrived(send, a.T), a.T), wrong(arrived(send, a), a)
    print(f"   sent as {how}: of {a.size} numbers {of_t:3} of a.T are at the wrong place, {of_a} of a")
assert np.array_equal(scrambled, a.reshape(28, 20)), "memory arrived in another order than it lies"
assert wrong(scrambled, a.T) > 100, f"{wrong(scrambled, a.T)} numbers at wrong places, expected over 100"
assert np.array_equal(right, a.T), f"{wrong(right, a.T)} numbers at wrong places, expected 0"
in_c_order = wrong(arrived(send_memory, a), a)
assert in_c_order == 0, f"{in_c_order} of a at wrong places, expected 0"  # why nobody noticed
save(drawings.scrambled(a.T, scrambled, right), FIGURES / "scrambled.png")

# %% [markdown]
# `comm.send` has to be right for every order. Between threads it copies. Between processes a first piece says
# how the axes lie in memory, then the memory follows as it is: no copy for C order, none for Fortran order,
# one where it cannot go as it is. The law, for both ways:

# %%
large = normal(60, 40, 4)  # more than 4 kB: small arrays travel inside the first piece
KINDS = {
    "C order": large,
    "Fortran order": large.T,
    "axes exchanged": large.transpose(0, 2, 1),
    "with gaps": large[::2, :, 1:],
    "backwards": large[::-1],
}


def over_the_wire(x):
    """What MPI would carry, packed and unpacked; and whether packing made a copy of the memory."""
    first, memory, copied = pack(x)
    header, small = unpack(first)
    return (finish(memory.view(x.dtype).copy(), header) if small is None else small), copied


for name, x in KINDS.items():
    on_threads, (on_wire, copied) = arrived(send_array, x), over_the_wire(x)
    raw = "right" if wrong(arrived(send_memory, x), x) == 0 else "scrambled"
    print(f"   {name:14}: arrives; packing copies: {'yes' if copied else 'no':3}; as memory: {raw}")
    off = wrong(on_threads, x), wrong(on_wire, x)
    assert off == (0, 0), f"{name}: {off} numbers at wrong places, expected 0 on threads and on the wire"
    assert copied == (name in ("with gaps", "backwards")), f"{name}: packing copies: {copied}"

# %% [markdown]
# A receiver can also say which shape it expects. If an array of another shape comes, `recv` raises an error:


# %%
def expecting(comm):
    if comm.rank == 0:
        return comm.send(a, to=1)
    try:
        comm.recv(0, expect=a.T)
    except ValueError as error:
        return str(error)


refusal = run_ranks(2, expecting)[1]
print(f"   refused: {refusal}")
assert refusal and "(28, 20)" in refusal and "(20, 28)" in refusal, f"both shapes should be in: {refusal}"

# %% [markdown]
# Read: NumPy's manual, "Internal memory layout of an ndarray".

#
# ## 6. Cliffs
# An op of a library should run near the roof of part 2. It falls far below in five typical ways, and each has
# its remedy. Both forms compute the same numbers.
#
# 1. *Bits that nobody asked for.* `np.where(x > 0, 1, slope)` of two Python numbers is float64, and so is all
#    that it multiplies: twice the bytes, and a pass more to convert them back.
# 2. *A function where a product does.* `x ** 3` asks for the power of any two numbers, by logarithms.
# 3. *An element at a time.* `np.add.at` adds gradients to the rows of a table, also where a row is chosen
#    twice, and looks up the place of each number. A loop that is compiled adds whole rows
#    (`ops/selection.py`).
# 4. *A loop in Python, and thin products.* A convolution in which each channel has its own kernel (depthwise)
#    is one matrix product a channel, of one column. As shifted images, each times one number for each
#    channel, it is nine products of whole images (`ops/fast/depthwise.py`).
# 5. *A pass for each operation.* Each call of NumPy reads arrays and writes one. A normalisation takes a
#    dozen of them, so its numbers go through memory a dozen times. A loop takes one row at a time, which
#    stays in the cache. Python's own loops are slow; Numba compiles them to machine code
#    (`minigrad/loops.py`).

# %%
print("\n6. Cliffs")
x, slope = normal(1 << 20), 0.01
table, rows, g = (20_000, 64), rng.integers(0, 20_000, 40_000), normal(40_000, 64)
images, taps = normal(8, 16, 16, 64), normal(3, 3, 64)  # images with their channels last
features = normal(4096, 256)


def add_at():
    total = np.zeros(table, np.float32)
    np.add.at(total, rows, g)
    return total


def windows(image):
    """The 3 x 3 neighbours of each pixel, as rows of a matrix, without a border: (8 x 14 x 14, 9)."""
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


def normalized_in_passes():
    centred = features - features.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


@loops.compiled
def normalize(x, y):
    rows, columns = x.shape
    for i in range(rows):
        total, squares = 0.0, 0.0
        for j in range(columns):
            total += x[i, j]
        mean = x.dtype.type(total / columns)  # in float32 again, or all that follows is float64: cliff 1
        for j in range(columns):
            squares += (x[i, j] - mean) ** 2
        scale = x.dtype.type(1 / np.sqrt(squares / columns + 1e-5))
        for j in range(columns):
            y[i, j] = (x[i, j] - mean) * scale


def normalized_by_loops():
    y = np.empty_like(features)
    normalize(features, y)
    return y


CLIFFS = {
    "leaky ReLU": (lambda: x * np.where(x > 0, 1, slope), lambda: np.maximum(x, np.float32(slope) * x)),
    "x ** 3": (lambda: x**3, lambda: x * x * x),
    "depthwise": (by_channel, by_tap),
}
if loops.available():
    CLIFFS["rows that add up"] = add_at, lambda: sum_by_row(g, rows, table[0])
    CLIFFS["passes"] = normalized_in_passes, normalized_by_loops
else:
    print(f"   without compiled loops: {loops.problem()}")
ratios = {}
for name, (slow, fast) in CLIFFS.items():
    np.testing.assert_allclose(slow(), fast(), rtol=1e-4, atol=1e-4, err_msg=name)
    before, after = seconds(slow, x, rounds=3), seconds(fast, x, rounds=3)
    ratios[name] = before / after
    print(f"   {name:16}: {1e3 * before:6.2f} ms, without the cliff {1e3 * after:5.2f}", end="")
    print(f" ({before / after:.1f} times as fast)")
for name, ratio in ratios.items():
    assert ratio > 1.3, f"{name}: {ratio:.2f} times as fast without the cliff, expected over 1.3"

# %% [markdown]
# And the ops as they are now, forward and backward on a tape, against the roof of part 2. The least time of
# an op: every array that it has to read or write (input, output, their gradients, weights and theirs) passes
# memory once, or the units do all operations at full speed, whichever takes longer. Layer norm stands there
# twice: as one op, and written as nine ops, each with a backward of its own. These read and write arrays in
# between, too: that is the distance between their point and the roof. Arrays that fit into the processor's
# cache are read faster than memory delivers, so a point may also lie above the slanted roof.


# %%
def in_nine_ops(x, weight, bias):
    centred = x - x.mean(axis=1, keepdims=True)
    var = (centred * centred).mean(axis=1, keepdims=True)
    return centred / ops.sqrt(var + 1e-5) * weight + bias


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
    print(f"   {name:10}: {1e3 * took:6.2f} ms, at least {1e3 * least:5.2f}: {took / least:4.1f} times that")
one, nine, product = distance["layer norm"], distance["in nine ops"], distance["linear"]
assert product < nine, f"linear is {product:.1f} times above its least time, nine ops only {nine:.1f}"
assert one < nine, f"layer norm is {one:.1f} times above its least time as one op, as nine {nine:.1f}"
save(drawings.cliffs(ratios, under_roof, bandwidth, roof), FIGURES / "cliffs.png")

# %% [markdown]
# `python benchmarks/ops.py` compares more than a hundred such rows with PyTorch, worst first.
#
# Read: `benchmarks/README.md`, the part on single ops; Drepper 2007, "What every programmer should know
# about memory".

# %%
print(f"\nFigures: {FIGURES}/")
