"""Lesson 05. Messages: how ranks exchange data.

Lecture section: synchronous data parallelism. Send and receive, collectives, the all-reduce on which
data-parallel training rests, deadlock, latency and bandwidth.

The slide asks: how do machines add up their gradients, and what does it cost?

You need: lessons 01 and 04; the order of an array in memory (lesson 04, part 5); logarithms to base 2.

Time: about 55 minutes; the program runs for about 10 seconds.

After this you can: write an all-reduce from send and receive; compute its messages, bytes and time; say why a
program deadlocks; say which all-reduce is the fastest for a cluster and a size.

    python lessons/05_messages/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. With MPI, part 7 has a program to run on
two. Figures go to runs/lessons/05_messages/.
In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import time

import drawings
import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.comm.collectives import (
    broadcast,
    find_allreduce,
    gather,
    hierarchical_allreduce,
    reduce_broadcast_allreduce,
    scatter,
)
from backends.comm.collectives.link import Link
from backends.comm.mailboxes import Deadlock
from backends.comm.wire import finish, pack, unpack
from minigrad import mnist
from minigrad.figures import save

FIGURES = start_lesson("05_messages")

# %% [markdown]
# ## 1. Send and receive
# A *rank* is a worker with a number. All ranks run the *same* function; only `comm.rank` differs. They share
# no memory: a rank gets the numbers of another rank only by a message. `run_ranks(2, f)` runs f on two ranks
# at the same time and returns what they return; `comm`, its argument, is the *communicator*, by which a rank
# sends and receives.

# %%
print("1. Send and receive")


def one_number(comm):
    if comm.rank == 0:
        x = np.float32([[3.25]])
        comm.send(x, to=1)
        x[:] = -1  # too late to change what was sent: the message is a copy
        return None
    return comm.recv(source=0)


_, received = run_ranks(2, one_number)
print(f"   rank 1 received {received!r}: shape and dtype travelled along")
assert received == 3.25, f"rank 1 received {received}, rank 0 sent 3.25"
assert received.shape == (1, 1) and received.dtype == np.float32, f"{received.dtype}{received.shape}"

# %% [markdown]
# Read: MPI Forum 2023, "MPI: a message-passing interface standard", version 4.1, the chapter on
# point-to-point communication.
#
# ## 2. Broadcast, scatter, gather: gradient descent on two ranks
# Operations in which all ranks take part are *collectives*. *Broadcast*: one rank gives the same array to
# all. *Scatter*: one rank gives each rank a different part. *Gather*: each rank gives a part, and one rank
# gets the list of all parts.
#
# A gradient summed over all samples is the sum of the gradients of their parts. So the classic MPI tutorials
# do four things in every iteration: broadcast the weights, scatter the samples, gather the gradients, and let
# rank 0 take the step. The model here is one matrix of weights followed by a softmax, with the cross-entropy
# as its loss (lesson 01), on real digits.

# %%
print("\n2. Broadcast, scatter, gather")
digits = mnist.load("mnist5k").train
N, STEPS, RATE = 4_999, 60, 0.5  # an odd number of samples: the two shares are not equal
x = np.ones((N, 785))  # the last column stays 1: its weights are the biases
x[:, :784] = digits.x[:N].reshape(N, 784)
y = np.eye(10)[digits.y[:N]]


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def gradient(w, x, y):
    """The gradient of the cross-entropy of softmax(x w), *summed* over the samples."""
    return x.T @ (softmax(x @ w) - y)


# %%
def serial(x, y, steps):
    w, path = np.zeros((785, 10)), []
    for _ in range(steps):
        w = w - RATE * gradient(w, x, y) / N
        path.append(w)
    return path


def parallel(comm, x, y, steps, scatter_once=False):
    """Train on any number of ranks. Only rank 0 uses ``x`` and ``y``, and only its path has the weights."""
    w, path = np.zeros((785, 10)), []
    for step in range(steps):
        w = broadcast(comm, w)
        if step == 0 or not scatter_once:
            my_x = scatter(comm, np.array_split(x, comm.size) if comm.rank == 0 else None)
            my_y = scatter(comm, np.array_split(y, comm.size) if comm.rank == 0 else None)
        gradients = gather(comm, gradient(w, my_x, my_y))
        if comm.rank == 0:
            w = w - RATE * sum(gradients) / N  # sums add up; divide once, by the number of *all* samples
            path.append(w)
    return path


# %%
path = serial(x, y, STEPS)
path_2 = run_ranks(2, lambda comm: parallel(comm, x, y, STEPS))[0]
differences = [np.abs(w - w_2).max() for w, w_2 in zip(path, path_2, strict=True)]
accuracy = np.mean(np.argmax(x @ path_2[-1], axis=1) == digits.y[:N])
print(f"   after {STEPS} iterations {accuracy:.1%} of the digits are right")
print(f"   largest difference of a weight from the serial run, in any iteration: {max(differences):.1e}")
assert max(differences) < 1e-10, f"a weight differs by {max(differences):.1e}, limit 1e-10"
assert accuracy > 0.88, f"accuracy {accuracy:.1%}, expected more than 88 %"

# %%
losses, losses_2 = ([-np.log((softmax(x @ w) * y).sum(axis=1)).mean() for w in ws] for ws in (path, path_2))
figure = drawings.gradient_descent(losses, losses_2, differences, path_2[-1])
save(figure, FIGURES / "gradient_descent.png")

# %% [markdown]
# The result is correct, but it costs more than it must. The samples never change, and yet the program sends
# them in every iteration. We run the same program on a *virtual cluster*: its ranks are threads that really
# exchange messages, only its clock is computed. On each link a message of n bytes takes *latency* + n /
# *bandwidth* seconds: first the time until its first byte arrives, and then the time of its bytes.

# %%
ethernet = Link(latency=50e-6, bandwidth=125e6)  # 50 microseconds, 1 Gbit/s
cluster = VirtualCluster(2, ethernet)
for once in (False, True):
    cluster.run(lambda comm, once=once: parallel(comm, x, y, steps=10, scatter_once=once))
    megabytes = sum(message.nbytes for message in cluster.transfers) / 1e6
    when = "once" if once else "in every iteration"
    print(
        f"   10 iterations, samples sent {when:18}: {megabytes:5.1f} MB, {cluster.seconds:.2f} s on the wire"
    )

# %% [markdown]
# Read: Chan, Heimlich, Purkayastha and van de Geijn 2007, doi:10.1002/cpe.1206, sections 2 and 3.
#
# ## 3. A ring all-reduce, made of send and receive
# *All-reduce*: every rank has an array, and every rank gets the sum of all arrays. Above, rank 0 receives
# from all others and sends to all others: with many ranks, its link is the bottleneck. In a ring each rank
# sends to its right neighbor only, and every link is busy in every step. Cut the array into p chunks. The
# numbers of ranks and chunks are taken modulo p, and steps are counted from t = 0:
#
# - *reduce-scatter*: in step t rank k sends chunk k - t, and adds the chunk that comes from the left to its
#   own chunk k - t - 1. After p - 1 steps rank k has the complete sum of one chunk, number k + 1.
# - *all-gather*: the complete chunks go round once more; now a chunk that arrives replaces the rank's own
#   one.
#
# `start_send` begins to send and does not wait; it returns a function that finishes the send. Part 5 shows
# why.

# %%
print("\n3. A ring all-reduce")


def ring_allreduce(comm, x, watch=lambda chunks: None):
    """The ranks' one-dimensional ``x`` summed, on every rank; ``watch`` sees the chunks after each step."""
    p, k = comm.size, comm.rank
    left, right = (k - 1) % p, (k + 1) % p
    total = x.copy()
    chunks = np.array_split(total, p)  # views: a change of a chunk is a change of total
    watch(chunks)
    for t in range(p - 1):  # reduce-scatter
        finish = comm.start_send(chunks[(k - t) % p], right)
        chunks[(k - t - 1) % p][:] += comm.recv(left)
        finish()
        watch(chunks)
    for t in range(p - 1):  # all-gather
        finish = comm.start_send(chunks[(k + 1 - t) % p], right)
        chunks[(k - t) % p][:] = comm.recv(left)
        finish()
        watch(chunks)
    return total


# %% [markdown]
# Sums of whole numbers have the same bits in any order, so we may ask for equality. The length of the array
# need not be a multiple of the number of ranks. In total 2 (p - 1) n bytes are sent for arrays of n bytes:
# each byte passes p - 1 links, twice.

# %%
for p, n in [(2, 10), (4, 10), (5, 3), (8, 1000)]:
    inputs = np.random.default_rng(p).integers(-99, 99, (p, n)).astype(float)
    cluster = VirtualCluster(p)
    for total in cluster.run(lambda comm, inputs=inputs: ring_allreduce(comm, inputs[comm.rank])):
        off = np.abs(total - inputs.sum(axis=0)).max()
        assert off == 0, f"{p} ranks: a number of the sum is wrong by {off:g}, expected 0"
    messages, nbytes = len(cluster.transfers), sum(message.nbytes for message in cluster.transfers)
    print(f"   {p} ranks with {8 * n:4} bytes each: {messages:3} messages, {nbytes:6} bytes in total")
    expected = 2 * p * (p - 1), 2 * (p - 1) * 8 * n
    assert (messages, nbytes) == expected, f"{messages} messages of {nbytes} bytes, expected {expected}"

# %% [markdown]
# Which sums does a rank have after each step? Let rank k contribute the number 2^k. Then a partial sum,
# written in binary, *is* the list of the ranks in it. The picture is drawn from the numbers that were sent.

# %%
P = 4
holdings = [[] for _ in range(P)]  # holdings[rank][step][chunk]


def watched(comm):
    mine = np.full(P, 2**comm.rank)
    ring_allreduce(comm, mine, lambda chunks: holdings[comm.rank].append([int(chunk[0]) for chunk in chunks]))


run_ranks(P, watched)
holdings = np.array(holdings)
one_each = [holdings[k, P - 1, (k + 1) % P] for k in range(P)]  # after the reduce-scatter
assert one_each == [0b1111] * P, f"after the reduce-scatter ranks are in {one_each}, expected 15 each"
least = holdings[:, -1].min()  # after the all-gather
assert least == 0b1111, f"after the all-gather a part has the ranks {least:04b}, expected 1111"

# %%
save(drawings.ring(holdings), FIGURES / "ring.png")

# %% [markdown]
# Read: Patarasuk and Yuan 2009 (the ring), doi:10.1016/j.jpdc.2008.09.002.
#
# ## 4. The Fortran-order trap
# An array is a sequence of numbers in memory, and a rule how to read them (lesson 04, part 5). C order stores
# row after row, Fortran order column after column; `x.T` and `np.asfortranarray` make arrays in Fortran
# order. A message-passing library gets an address and a length. It sends the numbers, but not the rule. If
# you send the memory of `a.T` and the receiver fills an array of the same shape, all numbers arrive, in the
# wrong places.

# %%
print("\n4. The Fortran-order trap")


def send_memory(comm, x):
    """Send the memory of ``x``, as a C library does; the receiver makes an array of its shape, in C order."""
    if comm.rank == 0:
        comm.send(x.ravel(order="K"), to=1)  # K: the numbers in the order in memory
        return x
    return comm.recv(0).reshape(x.shape)


def send_array(comm, x):
    if comm.rank == 0:
        comm.send(x, to=1)
        return x
    return comm.recv(0)


def array_at_rank_1(send, x):
    return run_ranks(2, lambda comm: send(comm, x))[1]


def misplaced(actual, exact):
    """How many numbers are in another place, of an array whose numbers have all arrived."""
    assert (actual.shape, actual.dtype) == (exact.shape, exact.dtype), f"{actual.dtype}{actual.shape} arrived"
    missing = np.sum(np.sort(actual, axis=None) != np.sort(exact, axis=None))
    assert missing == 0, f"{missing} numbers did not arrive, expected 0"
    return np.count_nonzero(actual != exact)


# %%
strip = np.hstack([digits.x[np.flatnonzero(digits.y == d)[0], 0] for d in (3, 1, 4, 1, 5, 9)])
fortran = np.asfortranarray(strip)
assert (fortran == strip).all(), "Fortran order changed a number"  # to NumPy the same array
raw, careful = array_at_rank_1(send_memory, fortran), array_at_rank_1(send_array, fortran)
wrong, off = misplaced(raw, strip), misplaced(careful, strip)
print(f"   its memory sent: {raw.dtype}{raw.shape} arrived, {wrong / raw.size:.0%} of the pixels wrong")
print(f"   by comm.send   : {careful.dtype}{careful.shape} arrived, {off} pixels wrong")
assert wrong > 0, "the memory of an array in Fortran order arrived in C order"
assert off == 0, f"{off} pixels are wrong by comm.send, expected 0"

# %%
shown = {"sent, in Fortran order": fortran, "received as memory": raw, "received by comm.recv": careful}
save(drawings.pictures(shown), FIGURES / "fortran_order.png")

# %% [markdown]
# There is no error, the shape is right, and even the sum is right. The `Send` of mpi4py (part 7) has this
# trap, too: it refuses arrays with gaps, but sends an array in Fortran order as it is in memory. A careful
# communicator copies such an array into C order, or says in a header how the axes are ordered in memory, or
# refuses it.
#
# `comm.send` has to be right for every order. Between threads it copies. Between processes a first message
# says how the axes are ordered, and the memory follows as it is (`backends/comm/wire.py`): without a copy for
# C order and for Fortran order, and with a copy only where the memory has gaps or runs backwards.

# %%
large = np.random.default_rng(0).normal(size=(60, 40, 4))  # more than 4 kB: small arrays travel in the header
KINDS = {
    "C order": large,
    "Fortran order": large.T,
    "axes exchanged": large.transpose(0, 2, 1),
    "with gaps": large[::2, :, 1:],
    "backwards": large[::-1],
}


def over_the_wire(x):
    """The array that MPI would carry, packed and unpacked; and whether packing made a copy of the memory."""
    first, memory, copied = pack(x)
    header, small = unpack(first)
    return (finish(memory.view(x.dtype).copy(), header) if small is None else small), copied


for name, x_sent in KINDS.items():
    on_threads, (on_wire, copied) = array_at_rank_1(send_array, x_sent), over_the_wire(x_sent)
    raw = "right" if misplaced(array_at_rank_1(send_memory, x_sent), x_sent) == 0 else "scrambled"
    print(f"   {name:14}: arrives; packing copies: {'yes' if copied else 'no':3}; as memory: {raw}")
    off = misplaced(on_threads, x_sent), misplaced(on_wire, x_sent)
    assert off == (0, 0), f"{name}: {off} numbers at wrong places, expected 0 on threads and on the wire"
    assert copied == (name in ("with gaps", "backwards")), f"{name}: packing copies: {copied}"

# %% [markdown]
# A receiver can also say which shape it expects. If an array of another shape comes, `recv` raises an error:


# %%
def expecting(comm):
    if comm.rank == 0:
        return comm.send(np.zeros((20, 28)), to=1)
    try:
        comm.recv(0, expect=np.zeros((28, 20)))
    except ValueError as error:
        return str(error)


refusal = run_ranks(2, expecting)[1]
print(f"   refused: {refusal}")
assert refusal and "(28, 20)" in refusal and "(20, 28)" in refusal, f"both shapes should be in: {refusal}"

# %% [markdown]
# Read: Dalcin, Paz and Storti 2005 (mpi4py), doi:10.1016/j.jpdc.2005.03.010.
#
# ## 5. Deadlock
# A *deadlock*: each of several ranks waits for another one of them, so none can continue. It happens if two
# ranks want to exchange arrays, and both receive first.

# %%
print("\n5. Deadlock")


def both_receive_first(comm):
    other = 1 - comm.rank
    received = comm.recv(other)
    comm.send(np.array(comm.rank), other)
    return received


def swaps(program, rendezvous=False):
    """Whether two ranks swap their numbers; if they do not, print which rank waits for which."""
    print(f"   {program.__name__}{', each send waits for its receiver' if rendezvous else ''}:")
    try:
        received = run_ranks(2, program, rendezvous=rendezvous)
    except Deadlock as error:
        print("      " + str(error).replace("\n", "\n      "))
        return False
    print("      fine")
    return received == [1, 0]


assert not swaps(both_receive_first), "both receive first, and yet got an answer"

# %% [markdown]
# Ranks that are threads notice a deadlock at once: when no rank can continue, none ever will. Draw an arrow
# from each rank to the rank that it waits for: a circle of arrows is a deadlock.
#
# If both send first, the program works only as long as the messages are *buffered*: the library stores them
# until the receiver asks for them. MPI, the standard library for messages (part 7), buffers small messages,
# but the sender of a large one waits for its receiver (*rendezvous*). Such a program passes all its tests,
# and hangs when the model has grown. With `rendezvous=True` every send of thread ranks waits:


# %%
def both_send_first(comm):
    other = 1 - comm.rank
    comm.send(np.array(comm.rank), other)
    return comm.recv(other)


assert swaps(both_send_first), "both send first: with buffers that works"
assert not swaps(both_send_first, rendezvous=True), "both wait for a receiver, and yet got an answer"

# %% [markdown]
# The remedy: *start* the send, receive, then finish the send. (Or even ranks send first, and odd ranks
# receive first.) The ring above starts its sends in each step, so it needs no buffers.


# %%
def start_receive_finish(comm):
    other = 1 - comm.rank
    finish = comm.start_send(np.array(comm.rank), other)
    received = comm.recv(other)
    finish()
    return received


assert swaps(start_receive_finish, rendezvous=True), "a started send should not wait"
for total in run_ranks(5, lambda comm: ring_allreduce(comm, np.arange(7.0)), rendezvous=True):
    off = np.abs(total - 5 * np.arange(7.0)).max()
    assert off == 0, f"a number of the sum is wrong by {off:g}, expected 0"

# %% [markdown]
# Read: the MPI standard, "Semantics of point-to-point communication"; Coffman, Elphick and Shoshani 1971
# (deadlocks), doi:10.1145/356586.356588.
#
# ## 6. Latency against bandwidth
# A message of n bytes takes about `latency + n / bandwidth`. There are two ways to add up arrays of n bytes
# on p ranks. Let L = log2 p:
#
# - a *tree*: half of the ranks send their arrays to the other half, which add them; half of the receivers
#   then send their sums to the other half of them, and so on. After L rounds one rank has the sum of all, and
#   L more rounds bring it back:
#   2 L (latency + n / bandwidth);
# - the *ring*: 2 (p - 1) rounds, with only n / p in each: 2 (p - 1) (latency + n / p / bandwidth).
#
# Few large messages or many small ones? They are equally fast at
#
#     n* = latency * bandwidth * (p - 1 - L) / (L - (p - 1) / p)

# %%
print("\n6. Latency against bandwidth")
p, L = 8, 3
crossover = ethernet.latency * ethernet.bandwidth * (p - 1 - L) / (L - (p - 1) / p)


def tree_seconds(n):
    return 2 * L * (ethernet.latency + n / ethernet.bandwidth)


def ring_seconds(n):
    return 2 * (p - 1) * (ethernet.latency + n / p / ethernet.bandwidth)


def measure(allreduce, n):
    """Seconds on the virtual cluster: every message is really passed, only the clock is imagined."""
    cluster = VirtualCluster(p, ethernet)
    cluster.run(lambda comm: allreduce(comm, np.zeros(n // 8)))
    return cluster.seconds


# %%
sizes = 2 ** np.arange(6, 23, 2)  # 64 bytes to 4 MB
trees = np.array([measure(reduce_broadcast_allreduce, n) for n in sizes])
rings = np.array([measure(ring_allreduce, n) for n in sizes])
np.testing.assert_allclose(trees, tree_seconds(sizes), rtol=1e-9)
np.testing.assert_allclose(rings, ring_seconds(sizes), rtol=1e-9)
np.testing.assert_allclose(tree_seconds(crossover), ring_seconds(crossover), rtol=1e-9)
from_tree = sizes[trees < rings].max(initial=0)
assert ((trees < rings) == (sizes < crossover)).all(), (
    f"trees win up to {from_tree}, by formula {crossover:.0f}"
)
print(f"   8 ranks, 50 us, 1 Gbit/s: up to n* = {crossover / 1e3:.1f} kB the tree is faster, then the ring;")
print(f"   at {sizes[-1] / 1e6:.1f} MB by a factor of {trees[-1] / rings[-1]:.1f}")

# %% [markdown]
# What do the messages of *this* program cost? Two ranks send a message there and back (*ping-pong*); half of
# the time is the time of one message. Then we fit latency and bandwidth. Each round has all lengths: if the
# machine is busy for a moment, this disturbs one round and not one length, and the median over the rounds
# removes it. We divide by the measured time, so that relative errors count; otherwise the largest message
# alone would decide.


# %%
def ping_pong(comm, lengths, rounds=60):
    seconds = np.zeros((rounds, len(lengths)))
    for i, j in np.ndindex(seconds.shape):  # every length in every round
        x = np.zeros(lengths[j], np.uint8)
        start = time.perf_counter()
        if comm.rank == 0:
            comm.send(x, to=1)
            comm.recv(source=1)
        else:
            comm.send(comm.recv(source=0), to=0)
        seconds[i, j] = (time.perf_counter() - start) / 2
    return np.median(seconds, axis=0)


lengths = 2 ** np.arange(3, 25)
seconds, _ = run_ranks(2, lambda comm: ping_pong(comm, lengths))
terms = np.stack([np.ones(len(lengths)), lengths], axis=1)  # seconds = terms @ (latency, seconds per byte)
(latency, per_byte), *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(lengths)), rcond=None)
print(f"   thread ranks here: {latency * 1e6:.0f} us and {1e-9 / per_byte:.1f} GB/s;")
print(f"   a message of {latency / per_byte / 1e3:.0f} kB takes as long to start as to carry")

# %%
figure = drawings.latency_bandwidth(
    sizes,
    (tree_seconds, trees),
    (ring_seconds, rings),
    crossover,
    lengths,
    seconds,
    lambda n: latency + n * per_byte,
)
save(figure, FIGURES / "latency_bandwidth.png")

# %% [markdown]
# Read: Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521, sections 3 and 4.
#
# ## 7. The same with MPI
# MPI has been the standard of these operations since 1994; mpi4py is MPI for Python. The file
# `plain_mpi4py.py` in the folder of this lesson has parts 2 to 5 in about 25 lines of mpi4py, without
# minigrad. It runs on any number of processes:
#
#     minigrad run -n 2 lessons/05_messages/plain_mpi4py.py
#
# | here | mpi4py | what MPI needs in addition |
# |---|---|---|
# | `comm.send`, `comm.recv` | `Send`, `Recv` | the receiver makes room, of the right length and dtype |
# | `start_send`, then its result | `Isend`, then `Wait` | the array must not change in between |
# | `broadcast`, `reduce` | `Bcast`, `Reduce` | room on every rank |
# | `scatter`, `gather`, `allgather` | `Scatter(v)`, `Gather(v)`, `Allgather(v)` | v: the parts' lengths |
# | `reduce_scatter` | `Reduce_scatter` | how many numbers each gets |
# | `alltoall`, `barrier` (`pairwise.py`) | `Alltoall(v)`, `Barrier` | v: the lengths, for each pair |
# | `allreduce` | `Allreduce`; `Iallreduce`, then `Wait` | C order: the trap of part 4 |
#
# (`alltoall` gives each rank a part from every rank, and `barrier` waits for all ranks.) A call whose name
# ends in v (for "vector") takes parts of different lengths, such as 4,999 samples on two ranks. In mpi4py a
# call with a capital letter sends the memory of an array; `comm.bcast` and `comm.send`, in small letters,
# pickle any Python object, which is convenient and slow.
#
# Our communicator over MPI sends its own messages, so that all of this can be read and counted, and offers
# MPI's calls as well: `comm.collective(broadcast, x)` is MPI's `Ibcast` there. It sends shapes, dtypes and
# memory orders ahead, which avoids the trap of part 4: backends/comm/mpi_collectives.py.
#
# `minigrad experiment article` trains with such a program: three layers of logistic units, all 5,000 digits
# in each of 1,000 iterations, learning rate 2. Then the library trains the same network. Their costs are
# equal to 1e-9 in every iteration (0.192 at the end, with 98.3 % of the digits right). On two cores, two
# processes of the library were 1.6 times as fast as one, and the program 1.3 times, because it sends the
# samples in every iteration. `minigrad experiment slow-link` puts a link of 1 Gbit/s between the two
# processes: an iteration then took 11 ms with the library, 145 ms with the program, and 14 ms on one process
# (benchmarks/README.md has the machines).
#
# **Arrays on a GPU.** MPI reads the memory of the host. So minigrad copies an array of a GPU to the host,
# sends it, and copies it to the other GPU. An MPI library that was built for CUDA, a *CUDA-aware MPI*, takes
# the address of GPU memory itself; and with *GPUDirect RDMA* the network card reads GPU memory over the bus,
# without the host. `MINIGRAD_CUDA_AWARE=1` passes GPU arrays to MPI directly (`minigrad doctor` says which
# way is taken). Set it only for an MPI that is CUDA-aware: any other one would take the address for an
# address of the host's memory. What do the copies cost, with the link of lesson 04 (64 GB/s) and a network of
# 400 Gbit/s?

# %%
print("\n7. The same with MPI")
print("   to see it: minigrad run -n 2 lessons/05_messages/plain_mpi4py.py")
LINK, NETWORK = 64e9, 50e9  # bytes a second
through_host = 2 / LINK + 1 / NETWORK  # seconds a byte, one after the other
staged = through_host * NETWORK
print(f"   a large message between two GPUs through the hosts' memory takes {staged:.1f} times as long")
assert 2.5 < staged < 2.6, f"{staged:.2f} times as long as by GPUDirect, expected 1 + 2 * 50 / 64"

# %% [markdown]
# Read: the MPI standard, the chapter on collective communication; Potluri et al. 2013 (GPUDirect RDMA and
# MPI), doi:10.1109/ICPP.2013.17.
#
# ## 8. Which all-reduce?
# There are more than two. On p ranks, with L = log2 p:
#
# - *naive*: every rank sends its whole array to every other one, to rank 0 first, where the messages queue.
# - *gather-broadcast*: rank 0 collects all arrays, adds them up and sends the sum to all, as a parameter
#   server does (lesson 08).
# - *tree* and *ring*: parts 6 and 3.
# - *doubling* (`doubling.py`, recursive doubling): in round i each rank swaps its whole sum with the rank 2^i
#   away, and both add. After round i a sum contains 2^(i + 1) ranks, so L rounds are enough: no all-reduce
#   has fewer. Each round carries the whole array.
# - *halving* (`halving.py`, Rabenseifner's algorithm): two ranks swap halves, and each adds up one half. Then
#   each swaps halves of its half with a rank twice as far away; after L rounds each rank has a p-th of the
#   sum. Then the same swaps run backwards, without adding: as many bytes as the ring, in 2 L rounds.
# - *hierarchical*: the GPUs of one machine are linked by NVLink, which is a thousand times as fast here as
#   the Ethernet between machines. So a tree first adds up inside each machine; then a ring of one rank of
#   each machine uses the Ethernet; and a tree spreads the sum inside. Only one array per machine crosses the
#   Ethernet, not one per GPU.
#
# The table `CLAIMS` has our formulas for p = 8; the virtual cluster counts the messages that are really sent.
# With a latency of 1 and messages that need no bandwidth, its clock counts rounds. The last column is the
# number of arrays that the slowest chain of messages carries, one after the other: it is multiplied by n /
# bandwidth.

# %%
print("\n8. Which all-reduce?")
MACHINES = [0, 0, 0, 0, 1, 1, 1, 1]  # of the 8 ranks
machines, inner = 2, 2  # how many, and log2 of the ranks on each


def hierarchical(comm, x):
    return hierarchical_allreduce(comm, x, nodes=MACHINES)


CLAIMS = {  # messages in all, arrays in all, rounds, arrays one after another
    "naive": (p * (p - 1), p * (p - 1), 2 * p - 3, 2 * p - 3),
    "gather-broadcast": (2 * (p - 1), 2 * (p - 1), 2 * (p - 1), 2 * (p - 1)),
    "tree": (2 * (p - 1), 2 * (p - 1), 2 * L, 2 * L),
    "doubling": (p * L, p * L, L, L),
    "ring": (2 * p * (p - 1), 2 * (p - 1), 2 * (p - 1), 2 * (p - 1) / p),
    "halving": (2 * p * L, 2 * (p - 1), 2 * L, 2 * (p - 1) / p),
    "hierarchical": (
        2 * (p - machines) + 2 * machines * (machines - 1),
        2 * (p - 1),
        2 * inner + 2 * (machines - 1),
        2 * inner + 2 * (machines - 1) / machines,
    ),
}
ALLREDUCES = {name: hierarchical if name == "hierarchical" else find_allreduce(name) for name in CLAIMS}

# %%
n = 8_000  # bytes, of 1,000 numbers: 8 divides them
print(f"   {p} ranks, arrays of {n} bytes    messages    bytes  rounds  arrays in a chain")
for name, (messages, arrays, rounds, chain) in CLAIMS.items():
    cluster = VirtualCluster(p, Link(1.0))
    for total in cluster.run(lambda comm, name=name: ALLREDUCES[name](comm, np.full(n // 8, 2.0**comm.rank))):
        off = np.abs(total - (2**p - 1)).max()
        assert off == 0, f"{name}: a number of the sum is wrong by {off:g}, expected 0"
    counted = len(cluster.transfers), sum(message.nbytes for message in cluster.transfers)
    actual, expected = (*counted, cluster.seconds), (messages, arrays * n, rounds)
    assert actual == expected, f"{name}: messages, bytes and rounds {actual}, expected {expected}"
    cluster = VirtualCluster(p, ethernet)
    cluster.run(lambda comm, name=name: ALLREDUCES[name](comm, np.zeros(n // 8)))
    np.testing.assert_allclose(cluster.seconds, rounds * ethernet.latency + chain * n / ethernet.bandwidth)
    print(f"   {name:28} {counted[0]:8} {counted[1]:8} {rounds:7} {chain:10.2f}")

# %% [markdown]
# Look at the two columns on the right: if latency dominates, few rounds win; if bandwidth dominates, short
# chains win. The sizes at which one all-reduce becomes faster than another depend on the cluster. We compare
# three:
#
# - 8 machines on Ethernet. Halving sends as few bytes as the ring in fewer rounds; so doubling is best below,
#   halving above latency * bandwidth * L / (L - 2 (p - 1) / p).
# - 6 machines: no power of two. Doubling and halving first add two ranks to their neighbors, which costs
#   whole arrays. The ring works as before, and is the fastest for large arrays.
# - 2 machines of 4 GPUs with NVLink inside. The 4 GPUs share one network card: if all of them send to the
#   other machine, their messages queue. In the hierarchical all-reduce only one GPU of each machine does.

# %%
nvlink = Link(latency=5e-6, bandwidth=125e9)
inside = {(a, b): nvlink for a in range(8) for b in range(8) if MACHINES[a] == MACHINES[b]}
CLUSTERS = {
    "8 machines": VirtualCluster(8, ethernet),
    "6 machines": VirtualCluster(6, ethernet),
    "2 machines of 4 GPUs": VirtualCluster(8, ethernet, links=inside, nodes=MACHINES),
}
costs = {}  # cluster -> all-reduce -> seconds by size
for where, cluster in CLUSTERS.items():
    for name, allreduce in ALLREDUCES.items():
        if name == "hierarchical" and not cluster.nodes:
            continue  # with one rank per machine it is the ring
        costs.setdefault(where, {})[name] = []
        for n in sizes:
            cluster.run(lambda comm, n=n, allreduce=allreduce: allreduce(comm, np.zeros(n // 8)))
            costs[where][name].append(cluster.seconds)
fastest = {
    where: [min(by, key=lambda name: by[name][i]) for i in range(len(sizes))] for where, by in costs.items()
}

# %%
print("\n   bytes      " + "".join(f"{where:22}" for where in costs).rstrip())
for i, n in enumerate(sizes):
    best = [(fastest[where][i], costs[where][fastest[where][i]][i] * 1e3) for where in costs]
    print(f"   {n:8}   " + "".join(f"{f'{name} {ms:.3g} ms':22}" for name, ms in best).rstrip())
crossover_8 = ethernet.latency * ethernet.bandwidth * L / (L - 2 * (p - 1) / p)
expected = ["doubling" if n < crossover_8 else "halving" for n in sizes]
assert fastest["8 machines"] == expected, f"8 machines: {fastest['8 machines']}, expected {expected}"
assert fastest["6 machines"][-1] == "ring", f"6 machines: {fastest['6 machines'][-1]}, expected the ring"
by = {name: 1e3 * by_size[0] for name, by_size in costs["2 machines of 4 GPUs"].items()}
assert set(fastest["2 machines of 4 GPUs"]) == {"hierarchical"}, (
    f"64 bytes take {by} ms; expected hierarchical least"
)

# %%
save(drawings.all_reduces(sizes, costs), FIGURES / "all_reduces.png")

# %% [markdown]
# Read: Thakur, Rabenseifner and Gropp 2005, section 4; Ben-Nun and Hoefler 2019, arXiv:1802.09941, the
# section on distributed environments.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - Every all-reduce of the library gives every rank the exact sum, for any number of ranks, any shape and
#   dtype: [tests](../../tests/backends/comm/collectives/test_collectives.py).
# - Messages and bytes of every collective equal their closed forms:
#   [tests](../../tests/backends/comm/collectives/test_collective_counts.py); so do their times on the virtual
#   cluster: [tests](../../tests/minigrad_course/machines/test_virtual_times.py).
# - An array arrives as it was sent, in every memory order and dtype:
#   [tests](../../tests/backends/comm/test_wire.py); and every transport does what the communicator promises:
#   [tests](../../tests/backends/comm/test_conformance.py).
# - A deadlock of thread ranks ends with an error that names the circle:
#   [tests](../../tests/backends/comm/test_deadlocks.py).
# - Only here, by the assertions of this lesson on its cases, which [a
#   test](../../tests/lessons/test_lessons.py) runs: two ranks take the serial path of 60 iterations up to
#   1e-10, the ring of part 3 is exact, and the crossovers of parts 6 and 8 are where the formulas say.
#
# Not proved: the latency and bandwidth of threads on your machine, and the seconds of the experiments. They
# are measurements.
#
# Next: [lesson 06](../06_data_parallel/lesson.py): a whole training with one all-reduce in each step.
