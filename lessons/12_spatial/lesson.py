"""Lesson 12. Splitting images: every rank has some rows, and receives a few more from its neighbors.

Lecture section: model parallelism in space. The halo: how wide it is, what happens without it, why it is
cheap for large images, and what it costs by the formula of Gholami et al. 2018; and networks that send less:
1 x 1 convolutions, smaller fully-connected layers.

The slide asks: if ranks share the rows of each image, which rows must a rank receive from its neighbors, and
when is that less than other splits send?

You need: lessons 02 (convolutions and their backward), 05 (messages) and 11 (splits by filters); what kernel,
stride and padding are.

Time: about 40 minutes; the program runs for about 10 seconds.

After this you can: compute the width of a halo from kernel, stride and padding; predict which pixels are
wrong without it; compute what a rank sends by rows and by filters, and choose between them; say how corners
of tiles travel.

    python lessons/12_spatial/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/12_spatial/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from itertools import pairwise

import drawings
import numpy as np
from measured import convolution_sends, step_bytes
from minigrad_course.machines.integrated_costs import (
    ALEXNET,
    LayerSize,
    Network,
    batch_seconds,
    domain_seconds,
    model_seconds,
)
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.sharding import Shard, even_shard
from backends.model_parallel.spatial.halo import fetch
from backends.model_parallel.spatial.receptive_field import RowRange, Window
from minigrad import mnist, nn, ops, optim
from minigrad.data import Batch
from minigrad.figures import save
from minigrad.models import lenet
from minigrad.serial import Serial
from minigrad.train import accuracy, fit

FIGURES = start_lesson("12_spatial")
digits = mnist.load("mnist5k")
digit = digits.train.x[np.flatnonzero(digits.train.y == 3)[1], 0].astype(np.float64)

# %% [markdown]
# ## 1. Three ranks share a digit
# Three ranks have 9, 9 and 10 of the 28 rows of an image. Each computes the same rows of the output of a 5 x
# 5 convolution with padding 2. For these it needs two more input rows above its own, and two more below. They
# are rows of a neighbor (the *halo*) or, at the edge of the image, rows of padding, which are zeros and need
# no message. `receptive_field` returns the input rows that some output rows need.

# %%
print("1. Three ranks share a digit")
five = Window(kernel=5, padding=2)
bounds = run_ranks(3, lambda comm: even_shard(0, comm, 28).bounds)[0]
needs = [five.receptive_field(first, last, 28) for first, last in pairwise(five.output_bounds(bounds))]
for rank, (owned, needed) in enumerate(zip(pairwise(bounds), needs, strict=True)):
    print(
        f"   rank {rank} has rows {owned[0]:2} to {owned[1] - 1:2}, needs {needed.start:2} to "
        f"{needed.stop - 1:2}, with {needed.border} rows of padding"
    )
    own = owned[1] - owned[0]
    assert needed.size == own + 4, f"rank {rank} needs {needed.size} rows, expected {own} and a halo of 2 + 2"

# %%
save(drawings.halo(digit, bounds, needs), FIGURES / "halo.png")

# %% [markdown]
# Read: Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting finer-grained
# parallelism", arXiv:1903.06681.
#
# ## 2. The width of the halo
# With kernel k, stride s and padding p, output row o uses the input rows from o s - p to o s - p + k - 1. The
# rank that has input row o s computes it. So a rank inside the image, whose number of rows is a multiple of
# s, needs max(0, p) rows above its own rows, and max(0, k - s - p) rows below them. We check the formula
# against a list of all rows that are used, for the second of three ranks.
#
# (In the library, read `naive.py` in `backends/model_parallel/spatial` first: a convolution of rows with its
# messages. `layers.py` has all layers, `halo.py` their messages.)

# %%
print("\n2. The width of the halo\n   kernel  stride  padding    above   below")
WINDOWS = [(3, 1, 1), (5, 1, 2), (7, 1, 3), (3, 2, 1), (7, 2, 3), (2, 2, 0), (3, 2, 0), (1, 1, 0)]
for k, s, p in WINDOWS:
    above, below = max(0, p), max(0, k - s - p)
    outputs = range(12, 24)  # of 36 that three ranks share
    touched = [o * s - p + tap for o in outputs for tap in range(k)]
    by_list = max(0, 12 * s - min(touched)), max(0, max(touched) + 1 - 24 * s)
    assert by_list == (above, below), f"the formula gives {above} and {below} rows, the list {by_list}"
    library = Window(k, s, p).halo
    assert library == (above, below), f"the formula gives {above} and {below} rows, the library {library}"
    note = {(2, 2, 0): "   pooling: none", (1, 1, 0): "   1 x 1: none"}.get((k, s, p), "")
    print(f"   {k:6}  {s:6}  {p:7}   {above:6}  {below:6}{note}")

# %% [markdown]
# Read: Dumoulin and Visin 2016, arXiv:1603.07285, chapter 2 (kernel, stride and padding).
#
# ## 3. Convolutions with and without halos
# The exchange for a 3 x 3 convolution: each rank sends its first row to the rank above and its last row to
# the rank below, and puts the rows that it receives around its own. At the edge of the image, where there is
# no neighbor, it puts zeros. `start_send` begins to send a row and returns a function that waits until the
# row is sent, so no two ranks wait for each other.

# %%
print("\n3. Convolutions with and without halos")
edges = np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]) / 4  # finds horizontal edges


def convolved(x, padding):
    return ops.conv2d(x[None, None], edges[None, None], padding=padding).data[0, 0]


def by_rows(comm, layers, exchange=True):
    """``layers`` convolutions, one after the other, of this rank's rows, one row of halo each."""
    mine = even_shard(0, comm, 28).local_part(digit)
    for _ in range(layers):
        above, below = np.zeros((2, 28))
        neighbors = [r for r in (comm.rank - 1, comm.rank + 1) if 0 <= r < comm.size and exchange]
        finishes = [comm.start_send(mine[0 if to < comm.rank else -1], to) for to in neighbors]
        for source in neighbors:
            if source < comm.rank:
                above = comm.recv(source)
            else:
                below = comm.recv(source)
        for finish in finishes:
            finish()
        mine = convolved(np.vstack([above, mine, below]), padding=(0, 1))
    return mine


# %%
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
    assert off <= 1e-12, f"with halos the error is {off:.1e}, limit 1e-12"
    near = [row for bound in bounds[1:-1] for row in range(bound - layers, bound + layers)]
    assert wrong.tolist() == near, f"without halos rows {wrong} are wrong, expected {near}"

# %%
save(drawings.torn(digit, serial[1], differences, bounds), FIGURES / "no_halo.png")

# %% [markdown]
# Without halos the rows at the borders between ranks are wrong, one more on each side with each layer. No
# error is raised, since all shapes are right.
#
# *Backward.* The gradient of a row that was received is sent back to its owner, and is *added* to the
# gradient that the owner computed. The op `fetch` does both directions. At stride 1 `ModelParallel` uses a
# shorter way: the gradient of the image is a convolution too, of the output's gradient with the flipped
# kernel (lesson 02). So each rank fetches a halo of the output's *gradient*, computes the whole gradient of
# its own rows, and sends nothing back.
#
# *Weights.* Every rank has all weights of a convolution, and computes the part of their gradient that its
# rows give. These parts are summed at the end of the step.
#
# With all this a whole network trains on rows, and on tiles (part 7):

# %%
batch = Batch(digits.train.x[:16].astype(np.float64), digits.train.y[:16])
ROWS = dict.fromkeys("0123456", "rows") | {"7": "row"}  # convolutions and poolings; then lesson 11's row


def gradients(backend):
    model = backend.place(lenet(np.random.default_rng(0)).to(dtype=np.float64))
    loss = backend.step(model, batch, ops.cross_entropy)
    return {"loss": np.array(loss)} | backend.state.full_gradients(model)


reference = gradients(Serial())
for ranks, kind in ((3, "rows"), (4, "tiles 2x2")):
    plan = {name: how.replace("rows", kind) for name, how in ROWS.items()}
    results = run_ranks(
        ranks, lambda comm, plan=plan: gradients(ModelParallel(comm, plan, sample=(1, 28, 28)))
    )
    off = max(
        np.abs(g[n] - reference[n]).max() / np.abs(reference[n]).max() for g in results for n in reference
    )
    print(f"   LeNet on {ranks} ranks, by {kind}: gradients are serial to {off:.0e}")
    assert off <= 1e-12, f"by {kind}: gradients differ from one machine's by {off:.1e}, limit 1e-12"

# %% [markdown]
# Read: Dryden et al. 2019, arXiv:1903.06681, the section on spatial parallelism.
#
# ## 4. Rows against filters
# Lesson 11 split a convolution in another way: each rank computes some of the filters, for the whole image,
# and all ranks gather the outputs. Take t ranks and N images of H x W pixels with C channels in and out. In a
# forward pass a rank with two neighbors sends
#
# - by rows: k - 1 rows, N C W (k - 1) numbers, however tall the image is;
# - by filters: its part of the output to t - 1 others, N C H W (t - 1) / t numbers.
#
# So rows / filters = (k - 1) t / (H (t - 1)), which falls as 1 / H: the larger the image, the better are
# rows.

# %%
print("\n4. Rows against filters")
T, N, C, K = 4, 2, 8, 3
HEIGHTS = (8, 16, 32, 64)


def sends(kind, side, kernel=K, ranks=T, rank=1):
    return convolution_sends(kind, side, kernel=kernel, ranks=ranks, rank=rank, images=N, channels=C)


# %%
weights = 2 * C * C * K * K * (T - 1) // T  # an all-reduce of their gradients
print("   numbers a rank sends    by rows: forward, backward, weights")
print("                           by filters: forward, backward")
rows, filters = ([sends(kind, side) for side in HEIGHTS] for kind in ("rows", "gathered-filters"))
for side, by_row, by_filter in zip(HEIGHTS, rows, filters, strict=True):
    halo, back, end, forward, backward = *by_row[:, 1], *by_filter[:2, 1]
    print(
        f"      {side:2} x {side:2}   rows {halo:7,} {back:7,} {end:5,}   filters {forward:7,} {backward:7,}"
    )
    formula = [N * C * side * (K - 1)] * 2 + [weights]
    assert [halo, back, end] == formula, (
        f"by rows: {halo}, {back}, {end} numbers, the formulas give {formula}"
    )
    formula = [n * N * C * side * side * (T - 1) // T for n in (1, 2)]
    assert [forward, backward] == formula, f"by filters: {forward}, {backward}, the formulas give {formula}"
    ratio = (K - 1) * T / (side * (T - 1))
    assert abs(halo / forward / ratio - 1) < 1e-12, f"rows / filters is {halo / forward}, not {ratio}"

# %%
figure = drawings.rows_or_filters(
    HEIGHTS, np.array(rows)[:, :, 1], np.array(filters)[:, :, 1], lambda h: (K - 1) * T / (h * (T - 1))
)
save(figure, FIGURES / "rows_or_filters.png")

# %% [markdown]
# A split by rows has one more cost: the gradients of the weights must be summed over the ranks. This cost
# does not depend on the image or the batch. So split early layers (large images, few weights) by rows, and
# late layers (small images, many weights) by filters; or share the batch there.
#
# ### The formula of domain parallelism
# Gholami et al. call the split by rows *domain parallelism*. A message of n numbers takes alpha + beta n
# seconds (lesson 05). A layer costs a halo of floor(k / 2) rows of its input in forward, a halo of its
# output's gradient in backward, and the all-reduce of the gradients of its weights |W|:
#
#     alpha + beta N W C floor(k / 2)      forward
#     alpha + beta N W C floor(k / 2)      backward
#     2 (alpha ceil(log2 t) + beta |W| (t - 1) / t)
#
# This counts a rank with *one* neighbor; a rank with two neighbors is assumed to send both halos at the same
# time. `domain_seconds` in `minigrad_course/machines/integrated_costs.py` is this formula. With alpha = 0 and
# beta = 1 it counts numbers, and these must be the numbers that rank 0 really sends.

# %%
for side in HEIGHTS:
    counted = sends("rows", side, rank=0)[:, 1].sum()
    layer = LayerSize(
        C * C * K * K, C * side * side, halo_in=side * C * (K // 2), halo_out=side * C * (K // 2)
    )
    formula = domain_seconds(Network(alpha=0, beta=1), [layer], T, N)
    print(
        f"   {side:2} x {side:2}: rank 0 sends {counted:5,} numbers in a step; the formula: {formula:5,.0f}"
    )
    assert counted == formula, f"{side} x {side}: {counted} numbers counted, the formula gives {formula}"

# %% [markdown]
# When is this split useful? A batch of 4 images cannot be shared by 8 ranks, so the convolutions must be
# split by rows or by filters. AlexNet (Krizhevsky et al. 2012) has five convolutions and three linear layers.
# For its convolutions, with the latency and the bandwidth that Gholami et al. state, we evaluate their
# formulas:

# %%
CRAY = Network(alpha=2e-6, beta=4 / 6e9)  # 2 us a message, 6 GB/s, numbers of 4 bytes: a Cray's network
first_two = [f(CRAY, ALEXNET[:2], 8, 4) for f in (domain_seconds, model_seconds)]
all_five = [f(CRAY, ALEXNET[:5], 8, 4) for f in (domain_seconds, model_seconds)]
last_three = np.subtract(all_five, first_two)
for name, (by_row, by_filter) in (
    ("first two convolutions: ", first_two),
    ("last three convolutions:", last_three),
):
    print(f"   AlexNet's {name} by rows {1e3 * by_row:.2f} ms, ", end="")
    print(f"by filters {1e3 * by_filter:.2f} ms")
assert first_two[0] < first_two[1] / 2, f"by rows {first_two[0]:.1e} s, by filters {first_two[1]:.1e} s"
assert last_three[0] > 1.5 * last_three[1], f"by rows {last_three[0]:.1e} s, by filters {last_three[1]:.1e} s"
try:
    batch_seconds(CRAY, ALEXNET[:5], 8, 4)
except ValueError as error:
    print(f"   by samples: {error}")
else:
    raise AssertionError("8 ranks shared a batch of 4 samples")

# %% [markdown]
# Read: Gholami et al. 2018, "Integrated model, batch, and domain parallelism in training neural networks",
# arXiv:1712.04432, the section on domain parallelism.
#
# ## 5. A 1 x 1 convolution sends nothing
# A 1 x 1 convolution mixes the channels of each pixel and uses no other pixel, so its halo is 0 rows wide.
# Networks that do most of their work in 1 x 1 convolutions are easy to split in space.

# %%
print("\n5. A 1 x 1 convolution sends nothing")
for kernel in (1, 3, 5):
    (messages, numbers), (back, numbers_back), _ = sends("rows", 32, kernel=kernel)
    print(
        f"   {kernel} x {kernel}: {messages} messages and {numbers:5,} numbers forward, "
        f"{back} and {numbers_back:5,} backward"
    )
    formula = 2 * (kernel > 1), N * C * 32 * (kernel - 1)
    assert (messages, numbers) == formula, f"{messages} messages, {numbers} numbers, expected {formula}"
    assert (back, numbers_back) == formula, f"{back} messages, {numbers_back} numbers, expected {formula}"

# %% [markdown]
# Read: Lin, Chen and Yan 2014, "Network in network", arXiv:1312.4400, section 3.
#
# ## 6. Smaller fully-connected layers
# Near the end of a network the images are too small to split, and fully-connected layers follow. The first
# one of LeNet takes 1568 numbers to 128 neurons and has nearly all weights of the network. P ranks can share
# the fully-connected layers in three ways. In a step with N samples each rank sends
#
# - if ranks share the batch: 2 |W| (P - 1) / P numbers, an all-reduce of the gradients of *all* weights |W|;
# - if the first layer is split by rows (of its matrix, lesson 11): N (2 hidden + inputs) (P - 1) / P, an
#   all-reduce in forward and an all-gather in backward;
# - if it is split by columns and the last layer by rows: 2 N (10 + inputs) (P - 1) / P, without the hidden
#   width.
#
# So we make these layers smaller in three ways: fewer hidden units; a 1 x 1 convolution before them, which
# mixes 32 channels to 8; the average of all pixels of each channel. We count the bytes of a step, and measure
# the accuracy (the share of test digits that are classified correctly) after one epoch.

# %%
print("\n6. Smaller fully-connected layers")
P, SAMPLES = 4, 64


def network(channels=32, side=7, hidden=128):
    """LeNet, whose linear layers get fewer channels or a smaller image, or have fewer neurons."""
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


def accuracy_of(variant):
    """The accuracy after one epoch on one machine; on several ranks the gradients are equal."""
    model = network(**variant)
    fit(model, optim.Adam(model.parameters(), 3e-3), ops.cross_entropy, digits.train, epochs=1, batch_size=32)
    return accuracy(model, digits.test)


# %%
some = digits.train[:SAMPLES]
WAYS = {"batch": (), "rows": ("row",), "columns": ("column", "row")}
print("   kB that a rank sends in a step; inputs and hidden units of the first linear layer")
print(f"   {'':31} inputs hidden params batch  rows  cols  right")
table, accuracies = {}, []
for name, variant in VARIANTS.items():
    model = network(**variant)
    weights, (hidden, inputs) = sum(p.size for p in model.parameters()), model[-3].weight.shape
    names = str(len(model) - 3), str(len(model) - 1)  # the two linear layers
    plans = [dict(zip(names, kinds, strict=False)) for kinds in WAYS.values()]
    counted = [step_bytes(lambda v=variant: network(**v), plan, some, P) for plan in plans]
    numbers = [2 * weights, SAMPLES * (2 * hidden + inputs), 2 * SAMPLES * (10 + inputs)]
    formula = [4 * (P - 1) * n for n in numbers]  # bytes of all ranks together
    assert counted == formula, f"{name}: {counted} bytes, the formulas give {formula}"
    table[name] = [nbytes / P / 1e3 for nbytes in counted]
    accuracies.append(accuracy_of(variant))
    kilobytes = "{:6,.0f}{:6,.0f}{:6,.0f}".format(*table[name])
    print(f"   {name:31} {inputs:6,} {hidden:6} {weights:6}{kilobytes} {accuracies[-1]:6.1%}")

# %%
plain, fewer, mixed, _ = table.values()
assert fewer[0] < 0.3 * plain[0], f"fewer hidden units: {fewer[0]:.0f} kB, before {plain[0]:.0f} kB"
assert fewer[2] == plain[2], f"by columns: {fewer[2]} and {plain[2]} kB, expected no difference"
for shared, before in zip(mixed[::2], plain[::2], strict=True):
    assert shared < 0.3 * before, f"with a 1 x 1 convolution: {shared:.0f} kB, before {before:.0f} kB"
assert min(accuracies[:3]) > 0.8, f"accuracies {accuracies[:3]}, expected more than 0.8"
assert accuracies[3] < accuracies[0] - 0.2, f"average: {accuracies[3]:.1%}, LeNet {accuracies[0]:.1%}"

# %%
save(drawings.smaller_layers(table, accuracies), FIGURES / "smaller_layers.png")

# %% [markdown]
# Fewer hidden units help where weights are sent, and little where activations are sent. A 1 x 1 convolution
# before these layers helps in both cases, since weights and activations both grow with the inputs; the
# accuracy after one epoch is a few points lower. With the average of all pixels the ranks send least, but the
# average loses the position of each feature in the image, and after only two convolutions the accuracy falls.
# Networks that end in such an average have many more convolutions.
#
# Read: Lin, Chen and Yan 2014, arXiv:1312.4400, section 3.2 (global average pooling); Krizhevsky 2014, "One
# weird trick for parallelizing convolutional neural networks", arXiv:1404.5997.
#
# ## 7. Tiles have corners
# With many ranks the slices of rows become thin, and their halos as large as the slices themselves. Square
# tiles have a shorter border. For W x W pixels on 16 ranks, a slice has a halo of 2 W pixels, and a tile of
# W / 4 x W / 4 pixels has about 4 W / 4. But the corners of a tile's halo belong to its diagonal neighbors.
# So fetch rows first, then columns *of the rows and of the halo just received*. The corners come through a
# neighbor, and no diagonal message is needed.

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
    expected = [three.receptive_field(*part, 28) for part in ((0, 14), (14, 28))]
    tall = fetch(across.local_part(down.local_part(digit)), shard=down, needed=expected)
    x = fetch(tall, shard=across, needed=expected).data
    messages = traced.record.ledger.sent().messages - before
    if not corners:
        x[-1 if row == 0 else 0, -1 if column == 0 else 0] = 0  # the pixel of the diagonal neighbor
    return convolved(x, padding=0), messages


# %%
def together(tiles):
    return np.block([[tiles[0][0], tiles[1][0]], [tiles[2][0], tiles[3][0]]])


tiles = run_ranks(4, by_tiles)
without = together(run_ranks(4, lambda comm: by_tiles(comm, corners=False))) - serial[1]
wrong = np.argwhere(np.abs(without) > 1e-12)
off = np.abs(together(tiles) - serial[1]).max()
print(f"   2 x 2 tiles: {off:.0e} from serial, {tiles[0][1]} messages a rank")
print(f"   without corners wrong at {', '.join(f'({r}, {c})' for r, c in wrong)}")
assert off <= 1e-12, f"2 x 2 tiles differ from one machine by {off:.1e}, limit 1e-12"
assert all(messages == 2 for _, messages in tiles), (
    f"messages {[m for _, m in tiles]}, expected 2 from each rank"
)
corner_pixels = {(13, 13), (13, 14), (14, 13), (14, 14)}
pixels = {*map(tuple, wrong.tolist())}
assert pixels and pixels <= corner_pixels, f"without corners wrong at {pixels}, expected in {corner_pixels}"

# %%
needed = (RowRange(*three.receptive_field(14, 28, 28)[:2]),) * 2  # rows and columns for the last tile
save(drawings.corners(digit, needed, without), FIGURES / "corners.png")

# %% [markdown]
# Now count on a larger image: 64 x 64 pixels on 16 ranks, for a rank that has neighbors on all sides.

# %%
slices, squares = (sends(kind, 64, ranks=16, rank=5)[0] for kind in ("rows", "tiles 4x4"))
print(f"   64 x 64 on 16 ranks: slices send {slices[1]:,} numbers in {slices[0]} messages a rank,", end="")
print(f" 4 x 4 tiles {squares[1]:,} in {squares[0]}")
formula = [2, N * C * 2 * 64], [4, N * C * (2 * 16 + 2 * 18)]
assert slices.tolist() == formula[0], f"slices: {slices} messages and numbers, expected {formula[0]}"
assert squares.tolist() == formula[1], f"tiles: {squares} messages and numbers, expected {formula[1]}"

# %% [markdown]
# Read: Dryden et al. 2019, arXiv:1903.06681 (two spatial dimensions).

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - A rank needs exactly the rows that its windows touch, for drawn kernels, strides, paddings and dilations,
#   and the exchange sends each gradient back to its owner:
#   [tests](../../tests/backends/model_parallel/spatial/test_halo.py).
# - Networks of convolutions and poolings by rows or by tiles train like one machine, for drawn sizes and
#   numbers of ranks: [tests](../../tests/backends/model_parallel/spatial/test_spatial.py).
# - A rank sends its halos, its share of the sum of the weights' gradients, and nothing else, for drawn
#   windows, slices and tiles: [tests](../../tests/backends/model_parallel/spatial/test_spatial.py). For
#   filters and for fully-connected layers (parts 4 and 6) the formulas are proved only here, for the sizes of
#   the tables.
# - Rows, then columns, bring the corners of tiles, for drawn windows:
#   [tests](../../tests/backends/model_parallel/spatial/test_halo.py).
#
# Not proved: the accuracies of part 6, which are one training from one seed, and the seconds of AlexNet in
# part 4, which are our evaluation of a published formula.
#
# Next: [lesson 13](../13_pipeline/lesson.py): ranks can also hold whole layers and all work at the same time,
# on different samples.
