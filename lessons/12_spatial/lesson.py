"""Lesson 12. Splitting images: every rank has some rows, and borrows a few from its neighbours.

Lecture section: model parallelism in space. The halo: how wide it is, what happens without it, why it is
cheap for large images; and networks made to send less: 1 x 1 convolutions, smaller fully-connected layers.
After Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism".

    python lessons/12_spatial/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/12_spatial/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from itertools import pairwise

import drawings
import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.model_parallel import ModelParallel
from backends.model_parallel.sharding import Shard, ShardedTensor, even_shard
from backends.model_parallel.spatial.halo import fetch
from backends.model_parallel.spatial.receptive_field import RowRange, Window
from lessons.style import start_lesson
from minigrad import Tape, Tensor, mnist, nn, ops, optim
from minigrad.backend import Serial
from minigrad.data import Batch
from minigrad.models import lenet
from minigrad.train import accuracy, fit

FIGURES = start_lesson("12_spatial")
digits = mnist.load("mnist5k")
digit = digits.train.x[np.flatnonzero(digits.train.y == 3)[1], 0].astype(np.float64)

# %% [markdown]
# ## 1. Three ranks share a digit
# Each rank has some of the 28 rows: 9, 9 and 10. It is to compute the same rows of a 5 x 5 convolution
# with padding 2. The outputs at its edges look two rows further: into rows that a neighbour has (the
# *halo*), or, at the edge of the image, into the padding, which nobody needs to send.

# %%
print("1. Three ranks share a digit")
five = Window(kernel=5, padding=2)
bounds = run_ranks(3, lambda comm: even_shard(0, comm, 28).bounds)[0]
needs = [five.receptive_field(first, last, 28) for first, last in pairwise(five.output_bounds(bounds))]
for rank, (owned, needed) in enumerate(zip(pairwise(bounds), needs, strict=True)):
    print(
        f"   rank {rank} has rows {owned[0]:2} to {owned[1] - 1:2}, looks at {needed.start:2} to "
        f"{needed.stop - 1:2}, with {needed.border} rows of padding"
    )
    assert needed.size == owned[1] - owned[0] + 4
drawings.halo(digit, bounds, needs).savefig(FIGURES / "halo.png")

# %% [markdown]
# ## 2. How wide is the halo?
# Output o looks at the rows from o s - p to o s - p + k - 1 (kernel k, stride s, padding p). Whoever has
# row o s computes it. So a rank wants max(0, p) rows from before its own, and max(0, k - s - p) from
# behind. We check the formula by touching rows one by one, for the middle one of three ranks.

# %%
print("\n2. How wide is the halo?\n   kernel  stride  padding   before  behind")
WINDOWS = [(3, 1, 1), (5, 1, 2), (7, 1, 3), (3, 2, 1), (7, 2, 3), (2, 2, 0), (3, 2, 0), (1, 1, 0)]
for k, s, p in WINDOWS:
    before, behind = max(0, p), max(0, k - s - p)
    outputs = range(12, 24)  # of 36 that three ranks share
    touched = [o * s - p + tap for o in outputs for tap in range(k)]
    assert (before, behind) == (max(0, 12 * s - min(touched)), max(0, max(touched) + 1 - 24 * s))
    assert (before, behind) == Window(k, s, p).halo
    note = {(2, 2, 0): "   pooling: none", (1, 1, 0): "   each pixel for itself: none"}.get((k, s, p), "")
    print(f"   {k:6}  {s:6}  {p:7}   {before:6}  {behind:6}{note}")

# %% [markdown]
# ## 3. With and without
# The exchange itself: send your first row up and your last row down, and put what comes around your own
# rows. The image ends where there is no neighbour: zeros.

# %%
print("\n3. With and without")
edges = np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]) / 4  # finds horizontal edges


def convolved(x, padding):
    return ops.conv2d(x[None, None], edges[None, None], padding=padding).data[0, 0]


def by_rows(comm, layers, exchange=True):
    """``layers`` convolutions, one after the other, of this rank's rows, one row of halo each."""
    mine = even_shard(0, comm, 28).local_part(digit)
    for _ in range(layers):
        above, below = np.zeros((2, 28))
        neighbours = [r for r in (comm.rank - 1, comm.rank + 1) if 0 <= r < comm.size and exchange]
        finishes = [comm.start_send(mine[0 if to < comm.rank else -1], to) for to in neighbours]
        for source in neighbours:
            if source < comm.rank:
                above = comm.recv(source)
            else:
                below = comm.recv(source)
        for finish in finishes:
            finish()
        mine = convolved(np.vstack([above, mine, below]), padding=(0, 1))
    return mine


serial = [digit]
for _ in range(3):
    serial.append(convolved(serial[-1], padding=1))
differences = {}
for layers in (1, 2, 3):
    whole = np.vstack(run_ranks(3, lambda comm, n=layers: by_rows(comm, n)))
    torn = np.vstack(run_ranks(3, lambda comm, n=layers: by_rows(comm, n, exchange=False)))
    differences[layers] = torn - serial[layers]
    wrong = np.flatnonzero(np.abs(differences[layers]).max(axis=1) > 1e-12)
    off = np.abs(whole - serial[layers]).max()
    print(f"   {layers} in a row: with halos {off:.0e} from serial; without,", end="")
    print(f" rows {', '.join(map(str, wrong))} are wrong")
    assert off <= 1e-12
    assert all(min(abs(row + 0.5 - bound) for bound in bounds[1:-1]) < layers for row in wrong)
    assert len(wrong) == 4 * layers
drawings.torn(digit, serial[1], differences, bounds).savefig(FIGURES / "no_halo.png")

# %% [markdown]
# Without halos an image comes apart at the ranks' borders, by one row more on each side with every layer.
# Nothing crashes: all shapes are right.
#
# Backward takes the same way back: the gradient of a row that was borrowed goes home, and is *added* to
# what its owner found. `fetch` does both. At stride 1 there is a shorter way, which `ModelParallel` takes:
# the image's gradient is a convolution too, of the outputs' gradient with the kernel turned round. So each
# rank fetches a halo of *that*, and computes its own rows' gradient whole; nothing goes home. The weights
# are whole on every rank, and each finds the part of their gradient that its rows give: these parts are
# summed at the end. With all that, a whole network:

# %%
batch = Batch(digits.train.x[:16].astype(np.float64), digits.train.y[:16])
ROWS = dict.fromkeys("0123456", "rows") | {"7": "row"}  # convolutions and poolings; then lesson 11's row


def gradients(backend):
    model = backend.place(lenet(np.random.default_rng(0)).to(dtype=np.float64))
    loss = backend.step(model, batch, ops.cross_entropy)
    return {"loss": np.array(loss)} | backend.full_gradients(model)


wanted = gradients(Serial())
for ranks, kind in ((3, "rows"), (4, "tiles 2x2")):
    plan = {name: how.replace("rows", kind) for name, how in ROWS.items()}
    found = run_ranks(ranks, lambda comm, plan=plan: gradients(ModelParallel(comm, plan, sample=(1, 28, 28))))
    off = max(np.abs(g[n] - wanted[n]).max() / np.abs(wanted[n]).max() for g in found for n in wanted)
    print(f"   LeNet on {ranks} ranks, by {kind}: gradients are serial to {off:.0e}")
    assert off <= 1e-12

# %% [markdown]
# ## 4. Rows or filters?
# The other way to split a convolution: each rank computes some of the filters, of the whole image, and all
# gather the outputs. On t ranks, for N images of H x W with C channels in and out, a rank with two
# neighbours sends in a forward pass
#
# - by rows: k - 1 rows, N C W (k - 1) numbers, however tall the image is;
# - by filters: its part of the output to t - 1 others, N C H W (t - 1) / t numbers.
#
# So rows / filters = (k - 1) t / (H (t - 1)), which falls as 1 / H.

# %%
print("\n4. Rows or filters?")
T, N, C, K = 4, 2, 8, 3
HEIGHTS = (8, 16, 32, 64)


def ring(comm, x):
    return ring_allreduce(comm, np.ascontiguousarray(x))


def sent(kind, side, kernel=K, ranks=T, rank=1):
    """Messages and numbers that ``rank`` sends for one convolution of images side x side: forward, backward,
    and at the end of the step. The convolution follows another one, so rows are there already.
    """

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        before = nn.Conv2d(1, C, 1, rng=rng, dtype=np.float64)
        layer = nn.Conv2d(C, C, kernel, padding=kernel // 2, rng=rng, bias=False, dtype=np.float64)
        plan = {"1": kind} if kind == "gathered-filters" else {"0": kind, "1": kind}
        backend = ModelParallel(WithAllreduce(traced, ring), plan)
        model = backend.place(nn.Sequential(before, layer))
        first, second = model.layers
        a = first.sharded_forward(ShardedTensor(Tensor(np.ones((N, 1, side, side)))))
        leaf = Tensor(a.local.data, requires_grad=True)  # the second layer alone
        counts = [traced.record.ledger.sent()]
        with Tape() as tape:
            y = second.sharded_forward(ShardedTensor(leaf, a.shards)).local
        counts.append(traced.record.ledger.sent())
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent())
        for parameter, among in second.partial.items():  # as ``finish`` does
            ring_allreduce(among, parameter.grad)
        counts.append(traced.record.ledger.sent())
        return np.diff(np.array(counts) // (1, 8), axis=0)

    return run_ranks(ranks, work)[rank]


weights = 2 * C * C * K * K * (T - 1) // T
print("   numbers a rank sends       by rows: forward, backward, weights    by filters: forward, backward")
rows, filters = ([sent(kind, side) for side in HEIGHTS] for kind in ("rows", "gathered-filters"))
for side, by_row, by_filter in zip(HEIGHTS, rows, filters, strict=True):
    halo, back, end, forward, backward = *by_row[:, 1], *by_filter[:2, 1]
    print(f"      {side:2} x {side:2} {halo:31,} {back:9,} {end:8,} {forward:21,} {backward:9,}")
    assert halo == back == N * C * side * (K - 1) and end == weights
    assert forward == N * C * side * side * (T - 1) // T and backward == 2 * forward
    assert by_filter[2, 1] == 0
    assert np.isclose(halo / forward, (K - 1) * T / (side * (T - 1)), rtol=1e-12)
figure = drawings.rows_or_filters(
    HEIGHTS, np.array(rows)[:, :, 1], np.array(filters)[:, :, 1], lambda h: (K - 1) * T / (h * (T - 1))
)
figure.savefig(FIGURES / "rows_or_filters.png")

# %% [markdown]
# To be fair: by rows the weights' gradients must be summed over the ranks, by filters not. That does not
# depend on the image or the batch. So split early layers, large images and few weights, by rows; late ones,
# small images and many weights, by filters, or share the batch there.
#
# ## 5. A 1 x 1 convolution sends nothing
# It mixes the channels of each pixel and looks at no other pixel: the halo is 0 rows wide. Networks that
# do most of their work in 1 x 1 convolutions are easily split in space.

# %%
print("\n5. A 1 x 1 convolution sends nothing")
for kernel in (1, 3, 5):
    (messages, numbers), (back, numbers_back), _ = sent("rows", 32, kernel=kernel)
    print(
        f"   {kernel} x {kernel}: {messages} messages and {numbers:5,} numbers forward, as many backward: "
        f"{back} and {numbers_back:,}"
    )
    assert numbers == numbers_back == N * C * 32 * (kernel - 1) and messages == back == 2 * (kernel > 1)

# %% [markdown]
# ## 6. Smaller fully-connected layers
# Near the end of a network there is no space left to split; there are fully-connected layers. LeNet's first
# takes 1568 numbers to 128 neurons: 97 % of its weights. P ranks share it in one of three ways; for a batch
# of N samples, in a step, each sends
#
# - sharing the batch: 2 |W| (P - 1) / P numbers, of *all* weights |W|: an all-reduce of their gradients;
# - by rows: N (2 hidden + inputs) (P - 1) / P: an all-reduce forward, an all-gather backward;
# - by columns, the last layer by rows (lesson 11): 2 N (10 + inputs) (P - 1) / P, with no `hidden` in it.
#
# So we shrink these layers: by fewer hidden units; by a 1 x 1 convolution in front, which mixes 32 channels
# to 8; by averaging all pixels of a channel. Each is run for a step and its bytes are counted; the
# accuracy after one epoch says what it costs.

# %%
print("\n6. Smaller fully-connected layers")
P, SAMPLES = 4, 64


def network(channels=32, side=7, hidden=128):
    """LeNet: its fully-connected layers behind fewer channels, or a smaller image, or with fewer neurons."""
    rng = np.random.default_rng(0)
    layers = lenet(rng).layers[:6]  # these give 32 channels of 7 x 7 pixels
    if channels < 32:
        layers += [nn.Conv2d(32, channels, 1, rng=rng), nn.ReLU()]
    if side < 7:
        layers.append(nn.AvgPool2d(7 // side))
    first, last = nn.Linear(channels * side * side, hidden, rng=rng), nn.Linear(hidden, 10, rng=rng)
    return nn.Sequential(*layers, nn.Flatten(), first, nn.ReLU(), last)


VARIANTS = {
    "LeNet": {},
    "32 hidden units, not 128": {"hidden": 32},
    "1 x 1 convolution to 8 channels": {"channels": 8},
    "average of all pixels": {"side": 1},
}


def step_bytes(kinds, variant):
    """Bytes that all ranks send in a step: the first and the last layer split so, or the batch shared."""

    def work(comm):
        traced, model = Traced(comm), network(**variant)
        plan = {str(len(model) - 3 + 2 * i): kind for i, kind in enumerate(kinds)}
        backend = (
            ModelParallel(WithAllreduce(traced, ring), plan)
            if plan
            else DataParallel(WithAllreduce(traced, ring))
        )
        model = backend.place(model)
        before = traced.record.ledger.sent().bytes
        backend.step(model, digits.train[:SAMPLES], ops.cross_entropy)
        nbytes = traced.record.ledger.sent().bytes - before
        report = 0 if plan else 4 * len(backend.summary)  # the loss, which goes with the gradients
        return nbytes - 2 * report * (P - 1) / P

    return sum(run_ranks(P, work))


def accuracy_of(variant):
    """After one epoch, on one machine: the gradients are the same."""
    model = network(**variant)
    fit(model, optim.Adam(model.parameters(), 3e-3), ops.cross_entropy, digits.train, epochs=1, batch_size=32)
    return accuracy(model, digits.test)


WAYS = {"batch": (), "rows": ("row",), "columns": ("column", "row")}
print("   kB that a rank sends in a step        inputs  hidden   weights   batch    rows  columns   accuracy")
table, accuracies = {}, []
for name, variant in VARIANTS.items():
    model = network(**variant)
    weights, (hidden, inputs) = sum(p.size for p in model.parameters()), model[-3].weight.shape
    found = [step_bytes(kinds, variant) for kinds in WAYS.values()]  # of all ranks: where P does not divide
    numbers = [2 * weights, SAMPLES * (2 * hidden + inputs), 2 * SAMPLES * (10 + inputs)]  # they differ
    assert found == [4 * (P - 1) * n for n in numbers]
    table[name] = [nbytes / P / 1e3 for nbytes in found]
    accuracies.append(accuracy_of(variant))
    kilobytes = "{:8,.0f}{:8,.0f}{:9,.0f}".format(*table[name])
    print(f"   {name:36} {inputs:7,} {hidden:7} {weights:9,}{kilobytes} {accuracies[-1]:10.1%}")
plain, fewer, mixed, _ = table.values()
assert fewer[0] < 0.3 * plain[0] and fewer[2] == plain[2]  # the pair does not care about hidden units
assert mixed[0] < 0.3 * plain[0] and mixed[2] < 0.3 * plain[2]
assert min(accuracies[:3]) > 0.8 and accuracies[3] < accuracies[0] - 0.2
drawings.smaller_layers(table, accuracies).savefig(FIGURES / "smaller_layers.png")

# %% [markdown]
# Fewer hidden units help who sends weights, and hardly who sends activations; a 1 x 1 convolution in front
# helps both, since weights and activations both grow with the inputs. It learns more slowly: a few points
# behind after one epoch. The average of all pixels sends least, and forgets where in the image something
# was: behind two convolutions that is too early, and networks that end so have many more.
#
# ## 7. Tiles have corners
# Many ranks make thin slices, whose halos are soon as large as they are. Tiles have less border: on 16
# ranks a slice of W columns borrows 2 W numbers, a tile of W / 4 x W / 4 about 4 W / 4. But a tile has
# diagonal neighbours too: the corner of its halo is theirs. Fetch rows first, then columns *with the rows
# just fetched*: then corners come by way of a neighbour, and nobody talks diagonally.

# %%
print("\n7. Tiles have corners")
three = Window(kernel=3, padding=1)


def by_tiles(comm, corners=True):
    """This rank's 14 x 14 outputs of the convolution of part 3, and how many messages it sent."""
    row, column = divmod(comm.rank, 2)
    traced = Traced(comm)
    down = Shard(0, traced.split(column, row), (0, 14, 28))
    across = Shard(1, traced.split(row, column), (0, 14, 28))
    before = traced.record.ledger.sent().messages
    wanted = [three.receptive_field(*part, 28) for part in ((0, 14), (14, 28))]
    tall = fetch(across.local_part(down.local_part(digit)), shard=down, needed=wanted)
    x = fetch(tall, shard=across, needed=wanted).data
    messages = traced.record.ledger.sent().messages - before
    if not corners:
        x[-1 if row == 0 else 0, -1 if column == 0 else 0] = 0  # what the diagonal neighbour has
    return convolved(x, padding=0), messages


def together(tiles):
    return np.block([[tiles[0][0], tiles[1][0]], [tiles[2][0], tiles[3][0]]])


tiles = run_ranks(4, by_tiles)
without = together(run_ranks(4, lambda comm: by_tiles(comm, corners=False))) - serial[1]
wrong = np.argwhere(np.abs(without) > 1e-12)
off = np.abs(together(tiles) - serial[1]).max()
print(f"   2 x 2 tiles: {off:.0e} from serial, {tiles[0][1]} messages a rank")
print(f"   without corners wrong at {', '.join(f'({r}, {c})' for r, c in wrong)}")
assert off <= 1e-12 and all(messages == 2 for _, messages in tiles)
assert {*map(tuple, wrong.tolist())} <= {(13, 13), (13, 14), (14, 13), (14, 14)} and len(wrong)
needed = tuple(
    RowRange(*three.receptive_field(14, 28, 28)[:2]) for _ in range(2)
)  # of the last tile, rows and columns
drawings.corners(digit, needed, without).savefig(FIGURES / "corners.png")
slices, squares = (sent(kind, 64, ranks=16, rank=5)[0] for kind in ("rows", "tiles 4x4"))
print(f"   64 x 64 on 16 ranks: slices send {slices[1]:,} numbers in {slices[0]} messages a rank,", end="")
print(f" 4 x 4 tiles {squares[1]:,} in {squares[0]}")
assert slices.tolist() == [2, N * C * 2 * 64] and squares.tolist() == [4, N * C * (2 * 16 + 2 * 18)]

# %%
print(f"\nFigures: {FIGURES}/")
