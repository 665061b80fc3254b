"""Lesson 19. Sixteen bits: training with half-precision numbers.

Lecture section: back-propagation, in half precision. This lesson lists the numbers of float16 and the gaps
between them; where gradients are among these numbers; what a small share of a batch does to them, and a
factor of the loss that helps; weights that are kept in float32; what all of this holds and sends; and
bfloat16, which needs no factor. Survey: Ben-Nun and Hoefler 2019, arXiv:1802.09941.

The slide asks: which numbers of a training may have 16 bits, and what must be done so that no gradient is
lost?

You need: lessons 02 and 03, gradients and what the tape holds; lesson 06, the share of a rank, and ZeRO;
lesson 17, the transformer; how numbers are written in binary.

Time: about 75 minutes; the program runs for about 15 seconds.

After this you can: round a number to float16 and to bfloat16 by hand; say which gradients and which updates
are lost, and why a loss scale and master weights help; count the bytes of a parameter; bound the error of a
sum over ranks.

    python lessons/19_sixteen_bits/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/19_sixteen_bits/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from functools import partial

import drawings
import measured
import numpy as np
from between import put_between
from minigrad_course.machines.half_precision import (
    UNIT_ROUNDOFF,
    bytes_of_a_parameter,
    hole,
    lost_shares,
    scale_path,
    sum_error_bound,
)
from minigrad_course.shared.style import start_lesson
from training import LETTERS, backward, build, first_batch, loss_of, trained

from backends.comm import run_ranks
from backends.comm.collectives import allgather, ring_allreduce
from backends.data_parallel import DataParallel
from backends.data_parallel.zero import Sharded
from minigrad import nn, ops, optim
from minigrad.bfloat16 import bfloat16, rounded
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.tensor import Parameter

FIGURES = start_lesson("19_sixteen_bits")

# %% [markdown]
# ## 1. The numbers of float16, and the gaps between them
# A computer has finitely many numbers. With 16 bits there are 65,536 of them, few enough to look at all. A
# *float16* has a bit s for the sign, 5 bits for an *exponent* e from 0 to 31, and 10 bits for a *fraction* f
# from 0 to 1023. Its value is
#
#     (-1)^s  2^(e - 15)  (1 + f / 1024)     if e is 1 to 30:  a *normal* number
#     (-1)^s  2^(-14)     f / 1024           if e is 0:        a *subnormal* number, or 0
#
# and if e is 31, it is an infinity (f = 0) or NaN, "not a number". An example: the bits 0 10001 1001000000
# are s = 0, e = 17 and f = 576, so the value is 2^2 (1 + 576 / 1024) = 4 + 2.25 = 6.25.

# %%
print("1. The numbers of float16, and the gaps between them")


def value_of(bits):
    """The float16 numbers with these 16 bits, by the formula, in float64."""
    sign, e, f = bits >> 15, (bits >> 10) & 31, bits & 1023
    normal = 2.0 ** (e - 15.0) * (1 + f / 1024)
    special = np.where(f == 0, np.inf, np.nan)
    return (1.0 - 2 * sign) * np.where(e == 0, 2.0**-14 * f / 1024, np.where(e == 31, special, normal))


bits = np.arange(2**16)
by_formula, numbers = value_of(bits), bits.astype(np.uint16).view(np.float16)
equal = np.array_equal(by_formula, numbers.astype(np.float64), equal_nan=True)
print(f"   0 10001 1001000000 is {value_of(np.array(0b0_10001_1001000000)):g}")
print(f"   {len(bits)} patterns: {np.isfinite(by_formula).sum()} numbers, {np.isnan(by_formula).sum()} NaN")
assert equal, f"{np.sum(by_formula != numbers)} numbers differ from NumPy's; {np.isnan(numbers).sum()} NaN do"

# %% [markdown]
# Between two neighbors there is a *gap*. A number in the gap is *rounded* to the nearer neighbor, and if it
# is exactly in the middle, to the *even* one, whose last bit is 0. A normal number 2^k (1 + f / 1024) has a
# gap of 2^(k - 10) above it (`hole`, in minigrad_course/machines/half_precision.py, computes it). So gaps are
# twice as wide after each power of two. Relative to the number they stay the same: rounding changes a normal
# number by at most a share u = 2^-11 of it, the *unit roundoff*.
#
# Normal numbers end on both sides. The largest number is 65504, and 65520 and all above it become infinite.
# Below 2^-14, among the subnormal numbers, all gaps are 2^-24 wide: the smaller a number is, the fewer digits
# it has. The smallest one is 2^-24, and 2^-25, half of it, becomes 0. The picture shows the gaps of float16,
# of float32, and of bfloat16, the format of part 8.

# %%
facts = {
    "65519": (65519, 65504),
    "65520": (65520, np.inf),
    "2049": (2049, 2048),
    "2051": (2051, 2052),
    "1.001": (1.001, 1 + 2.0**-10),
    "1 + 2^-11": (1 + 2.0**-11, 1),
    "1 - 2^-12": (1 - 2.0**-12, 1),
    "2^-25": (2.0**-25, 0),
    "1.01 2^-25": (1.01 * 2.0**-25, 2.0**-24),
}
for name, (x, expected) in facts.items():
    with np.errstate(over="ignore"):
        nearest = float(np.float64(x).astype(np.float16))
    print(f"   {name:10} is rounded to {nearest:g}")
    assert nearest == expected, f"{x} is rounded to {nearest}, expected {expected}"
finite = np.sort(by_formula[np.isfinite(by_formula) & (by_formula > 0)])
drawn = np.exp(np.random.default_rng(1).uniform(np.log(2.0**-14), np.log(65504), 10**5))
off = np.abs(drawn.astype(np.float16).astype(np.float64) / drawn - 1).max()
counts = [int(np.sum((finite >= a) & (finite < 2 * a))) for a in (1, 1024, 2.0**-24)]
gaps = np.array([hole(float(x)) for x in finite[:-1]])
print(f"   the largest error of 100,000 normal numbers is {off / 2.0**-11:.3f} u")
print(f"   {counts[0]} numbers from 1 to 2, {counts[1]} from 1024 to 2048, {counts[2]} from 2^-24 to 2^-23")
assert 0.99 * 2.0**-11 < off <= 2.0**-11, f"an error of {off:.2e}, the unit roundoff is {2.0**-11:.2e}"
assert counts == [1024, 1024, 1] and finite[-1] == (2 - 2.0**-10) * 2**15, f"{counts}, last {finite[-1]}"
assert np.array_equal(np.diff(finite), gaps), f"{np.diff(finite)[:3]}, by the formula {gaps[:3]}"

# %%
save(drawings.spacing(finite), FIGURES / "gaps.png")

# %% [markdown]
# *How many float16 numbers are there from 1 to 2, and how many from 1024 to 2048?* Equally many: 1,024, one
# for each f. From 1024 to 2048 they are the whole numbers. *What is 2049?* No float16 number: it is in the
# middle between 2048 and 2050, and 2048 is the even one. *Why is 65504 the largest number?* It has the
# largest exponent, 30, and the largest fraction: 2^15 (2 - 2^-10). The exponent 31 is for infinity and
# NaN.
#
# Read: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", ACM
# Computing Surveys 23(1), sections 1.2 and 2.2.
#
# ## 2. Where gradients are
# Weights and activations are rarely far from 1, and float16 holds them well. Gradients are much smaller. To
# see them, `put_between` (in between.py) puts an op after each layer of a small transformer (lesson 17). The
# op changes nothing, and records the gradient that passes. The net computes in float32, since we want to know
# the gradients themselves, and not what float16 leaves of them. The batch has 16 rows of 32 letters from the
# prose of this course.
#
# Backward starts with a number, the *seed*: the derivative of what we minimize by this loss. If we minimize
# the loss itself, the seed is 1. If the loss is a term of a sum, with a weight, the seed is this weight. All
# gradients are multiplied by the seed. In the picture it is 1, and then 2^-7.

# %%
print("\n2. Where gradients are")
batch, notes = first_batch(), {}


def note(name):
    def to_notes(g):
        notes[name] = g
        return g

    return to_notes


watched = put_between(build(), lambda x: x, note)
backward(watched, batch, 1.0)
right = [p.grad for p in watched.parameters()]
gradients = {name: g for name, g in notes.items() if g.any()}
SHARES = {}
print("   seed   below 2^-14    lost")
for power in (0, -2, -4, -7, -10, -12):
    SHARES[power] = lost_shares(gradients.values(), 2.0**power)
    subnormal, lost = SHARES[power]
    print(f"   2^{power:<4} {subnormal:9.0%} {lost:10.1%}")
assert SHARES[0][0] > 0.85 and SHARES[0][1] < 0.02, f"at seed 1: {SHARES[0]}; expected over 0.85, under 0.02"
assert 0.2 < SHARES[-7][1] < 0.4, f"{SHARES[-7][1]:.2f} lost at seed 2^-7, expected 0.2 to 0.4"

# %%
save(drawings.histograms(gradients.values(), (0, -7)), FIGURES / "gradients.png")

# %% [markdown]
# With the seed 1 nine of ten gradients are *subnormal*: below 2^-14, so float16 keeps them with fewer digits.
# Fewer than one of a hundred is *lost*: float16 makes it 0. With each factor of 1/2 all gradients move one
# step to the left. With the seed 2^-7 a quarter is lost, and with 2^-12 nearly all.
#
# The right side of the picture is empty: the largest gradient is far below 65504. So we multiply the loss
# by a large number, the *loss scale*, before backward. Backward is linear, so all gradients are multiplied by
# it. At the end the gradients of the parameters are divided by it, in float32. If the scale is a power of
# two, it changes no digit of a normal number, and the whole histogram moves to the right.
#
# Which layers have the smallest gradients?

# %%
print("   layer                median of the gradients")
medians = {name: float(np.log2(np.median(np.abs(g[g != 0])))) for name, g in gradients.items()}
for name, median in sorted(medians.items(), key=lambda row: row[1])[:: len(medians) // 5]:
    print(f"   {name:20} 2^{median:.1f}")
largest = np.log2(max(np.abs(g).max() for g in gradients.values()))
scaled = lost_shares(gradients.values(), 2.0**15)
print(f"   the largest gradient is 2^{largest:.1f}; with a scale of 2^15, {scaled[0]:.1%} are subnormal")
smallest = min(medians, key=lambda name: medians[name])
assert smallest.endswith("attention.qkv") and medians[smallest] < -18, f"{smallest}: {medians[smallest]:.1f}"
largest_score = np.abs(gradients["4"]).max()  # of the last layer
assert largest_score <= 2.0**-9, f"a score has a gradient of {largest_score:.2e}, more than {2.0**-9:.2e}"
assert largest + 15 < 16 and scaled[0] < 0.01, f"2^{largest:.1f} times 2^15; {scaled[0]:.2%} subnormal"

# %% [markdown]
# *Why are gradients so small?* The loss is a mean over 512 letters, so each letter has a share of 2^-9, and
# no gradient of a score is larger. *What is the difference between subnormal and lost?* A subnormal gradient
# has fewer digits, but its size is right, and rounding errors partly cancel when many gradients are added up.
# A lost one is 0. *Which layer loses most, and why?* The layer of queries, keys and values (`qkv`). The
# gradients of queries and keys come through a softmax over up to 32 letters, where each has only a small
# weight. Gradients need not become smaller from layer to layer: here the residual x + f(x) passes them on as
# they are.
#
# Read: Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740, section 3.2.
#
# ## 3. A small share of a batch is a small seed
# Where does a seed of 2^-7 come from? From 128 ranks, or from 128 micro-batches. The loss of a batch is the
# mean over all samples, so a part with 1/128 of the samples starts backward with the seed 1/128. Then the
# gradients of all parts only have to be added up (lesson 06). In float32 this costs nothing. In float16 small
# gradients are lost. We measure it in a net of float16: `net.to(dtype=np.float16)` makes one, and
# `minigrad/half.py` says how its ops compute: they take and return 16-bit arrays, and use float32 in between.
# The *error* of a parameter's gradient is the largest difference from the gradient in float32, relative to
# the largest element of the float32 gradient. The table has the median over all parameters.

# %%
print("\n3. A small share of a batch is a small seed")
POWERS = (-14, -12, -10, -7, -4, 0, 8, 15, 26)


def errors_by_seed(make):
    """The error of the gradients for each seed 2^k, in a net from ``make``."""
    errors = []
    for power in POWERS:
        net = make()
        backward(net, batch, 2.0**power)
        errors.append(measured.median_error(net, 2.0**power, right))
    return np.array(errors)


half_errors = errors_by_seed(partial(build, np.float16))
print("   seed  " + "".join(f"{f'2^{k}':>7}" for k in POWERS))
print("   error " + "".join(f"{e:7.1g}" for e in half_errors))
falling = half_errors[: POWERS.index(8)]
assert (np.diff(falling) <= 0).all(), f"errors from seed 2^-14 on: {falling}, expected to fall"
assert falling[1] > 0.9 and 0.03 < half_errors[3] < 0.3, f"{falling[1]:.2f} at 2^-12, {half_errors[3]:.2f}"
assert half_errors[7] < 2.0**-10 and np.isinf(half_errors[-1]), f"{half_errors[7]:.1e}, {half_errors[-1]:.1e}"

# %%
save(drawings.errors_by_seed(POWERS, {"float16": half_errors}), FIGURES / "seeds.png")

# %%

parts = build(np.float16)
sums = [np.float32(0)] * len(right)
for rows in shares(len(batch), 16):  # the same batch, as 16 micro-batches
    backward(parts, batch[rows], 2.0**-7 / 16)
    sums = [total + p.grad.astype(np.float32) for total, p in zip(sums, parts.parameters(), strict=True)]
for parameter, total in zip(parts.parameters(), sums, strict=True):
    parameter.grad = total
in_parts = measured.median_error(parts, 2.0**-7, right)
print(f"   2^-7, cut into 16 parts: error {in_parts:.2g}; in one piece {half_errors[3]:.2g}")
assert 0.5 < in_parts / half_errors[3] < 2, f"{in_parts:.2g} in parts, {half_errors[3]:.2g} in one piece"

# %% [markdown]
# From the seed 1 to 2^15 the error is a rounding error, about u. For smaller seeds it grows, since gradients
# are lost. For much larger seeds gradients are infinite. A loss scale moves a small seed to where the
# curve is flat: only the seed times the scale matters.
#
# The last line shows that it does not matter whether the batch is cut: for the gradient of one letter only
# the number of letters in the whole batch counts. But it is large batches that are cut.
#
# Does this change a training? A batch of 4,096 parts has the seed 2^-12. Training with such batches would
# take hours. So we compute one part in each step and multiply its gradient by 4,096, in float32, as if all
# parts were alike. Three trainings begin with the same weights and read the same text (`trained`, in
# training.py): in float32, in float16, and in float16 with a loss scale of 2^15.

# %%
SHARE = 2.0**-12
net32 = build()
losses = {
    "float32": trained(net32, SHARE, precision="float32"),
    "float16": trained(build(np.float16), SHARE),
    "float16, scaled": trained(build(np.float16), SHARE, 2.0**15),
}
means = {name: path.reshape(-1, 20).mean(axis=1) for name, path in losses.items()}
print(f"   means of 20 losses (the frequencies of letters alone give {LETTERS:.2f})")
for name, path in means.items():
    print(f"   {name:15} " + "".join(f"{loss:6.2f}" for loss in path))
apart = abs(means["float16, scaled"][-1] / means["float32"][-1] - 1)
print(f"   with the scale the last mean differs from float32 by {apart:.2%}")
assert apart < 0.01, f"the scaled run ends at {means['float16, scaled'][-1]}, float32 {means['float32'][-1]}"
lowest = means["float16"].min()
assert lowest > LETTERS > means["float32"][-1], f"{lowest:.2f} unscaled, letters {LETTERS:.2f}"

# %%
save(drawings.losses(losses, LETTERS), FIGURES / "training.png")

# %% [markdown]
# With the scale the loss is as in float32. Without it the net is never better than a table that only knows
# how frequent each letter is, and after 60 steps it becomes worse. The gradients of the scores show why. The
# gradient of a score is (p - 1) / 512 for the letter that came and p / 512 for each other letter, where p is
# its probability. Times 2^-12 the first is about -2^-21, and float16 has it. The second is p 2^-21, and
# float16 makes it 0 if p is 1/16 or less. So the scores of letters that come are raised, and no score is
# lowered.

# %%
scores = gradients["4"]
rises, falls = (np.mean(np.abs(g) * SHARE <= 2.0**-25) for g in (scores[scores < 0], scores[scores > 0]))
print(f"   lost at seed 2^-12: {rises:.0%} of what raises a score, {falls:.0%} of what lowers one")
assert (rises, falls) == (0, 1), f"lost: {rises:.3f} of what raises a score, {falls:.3f} of what lowers one"
lower = build(np.float16)
backward(lower, batch, SHARE)
silent = [name for name, p in lower.named_parameters().items() if not p.grad.any()]
print(f"   {len(silent)} of {len(right)} parameters have no gradient at all, as {', '.join(silent[:2])}")
assert len(silent) > len(right) / 3, f"{len(silent)} of {len(right)} parameters without a gradient"

# %% [markdown]
# *Is it the cutting that loses gradients?* No, it is the size of the whole batch, as we saw. The cutting only
# conceals this, since each part looks like a small batch. *Why does the loss fall at first?* Adam divides a
# gradient by its usual size. So it takes full steps with the gradients that are left, however small they are,
# and the loss does not show that most of them are 0. *Would a larger learning rate help?* No. It multiplies
# gradients after backward, and 0 stays 0; a scale multiplies them before they are rounded.
#
# In the library the scale belongs to the optimizer: `adam.with_master_weights(scale=...)`. `fit` starts
# backward with it, and so does `backend.step(..., loss_scale=adam.loss_scale)`, in your own loop. On the
# command line `minigrad train --net transformer --precision float16` has a dynamic scale (part 6),
# and `--loss-scale 1024` chooses one.
#
# Read: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
#
# ## 4. An update can vanish
# A step changes a weight by a small *update*. If the update is less than half of the gap next to the weight,
# rounding undoes it, in this step and in all others. Take a weight of 1 and updates of 2^-12. The number
# below 1 is 1 - 2^-11, so 1 - 2^-12 is in the middle and becomes the even one, 1. After a hundred updates the
# weight should be 1 - 100 / 4096 = 0.9756, but it is still 1.
#
# The cure is a *master weight*, a copy of the weight in float32. The updates are added up in the copy, and
# after each step the net gets the copy, rounded to float16. In the library the optimizer keeps the copies
# after `with_master_weights()` (`minigrad/master_weights.py`).

# %%
print("\n4. An update can vanish")


def a_hundred_steps(with_masters, momentum=0.0):
    """The path of a float16 weight of 1 whose gradient is 1, with steps of 2^-12."""
    weight = Parameter(np.ones(1, np.float16))
    sgd = optim.SGD([weight], lr=2.0**-12 * (1 - momentum), momentum=momentum)
    if with_masters:
        sgd.with_master_weights(scale=StaticScale(1.0))
    path = [1.0]
    for _ in range(100):
        weight.grad = np.ones(1, np.float16)
        sgd.step()
        path.append(float(weight.data[0]))
    return path


without, masters, velocity = a_hundred_steps(False), a_hundred_steps(True), a_hundred_steps(False, 0.9)
print(f"   after 100 steps: {without[-1]:g} without a master weight, {masters[-1]:.4f} with one")
assert without[-1] == 1 and masters[-1] == np.float16(1 - 100 / 4096), f"{without[-1]}, {masters[-1]}"

# %%
save(drawings.vanishing(without, masters), FIGURES / "vanishing.png")

# %% [markdown]
# Which updates vanish? Gaps are between w / 1024 and w / 2048 wide for a normal weight w, and half of that
# is between w / 2048 and w / 4096. We try it with all normal numbers: updates a little below w / 4096, and a
# little above w / 2048. Then we take the weights that the float32 net of part 3 has learned, rounded to
# float16, and updates of several sizes.

# %%
normal = finite[(finite >= 2.0**-13) & (finite < 2.0**15)]
for share, name in ((0.999 / 4096, "0.999 / 4096"), (1.001 / 2048, "1.001 / 2048")):
    same = [np.mean((normal * (1 + sign * share)).astype(np.float16) == normal) for sign in (1, -1)]
    print(f"   updates of w times {name}: {same[0]:.0%} of all weights stay as they are")
    assert same == [float(share < 1 / 3000)] * 2, f"{same} of the weights stay at a share of {share:.2e}"
w = np.concatenate([p.data.ravel() for p in net32.parameters()]).astype(np.float16)
for step in (1e-3, 1e-4, 1e-5):
    moved = np.mean((w.astype(np.float32) - np.float32(step)).astype(np.float16) != w)
    print(f"   an update of {step:g} changes {moved:.0%} of the learned weights")
assert moved < 0.5, f"{moved:.2f} of the weights change by updates of 1e-5, expected less than 0.5"
rounded_up = np.float16(1)
for _ in range(100):
    rounded_up = np.nextafter(rounded_up, np.float16(0))  # away from the old weight
print(f"   if each update of 2^-12 were rounded up: {rounded_up:.4f} after a hundred steps")
assert rounded_up == 1 - 100 / 2048, f"rounded up: {rounded_up}, expected {1 - 100 / 2048}"
assert velocity[-1] == 1, f"momentum without a master weight moves it to {velocity[-1]}, expected 1"

# %% [markdown]
# A step of Adam is about as large as the learning rate, and at the end of a training the rate is small. Then
# most weights would not change without a copy in float32.
#
# *Which updates are surely lost?* All updates below w / 4096. An update above w / 2048 always changes the
# weight. *Why not round up, to the next number away from the old weight?* Then each update moves the weight
# by a whole gap, 2^-11 here, however small it is: the weight falls twice as far as it should. *Would momentum
# help?* No. The velocity becomes ten times as large as the gradient, but the rate is then ten times smaller.
# The updates are the same, and are lost as before: the last assertion has tried it.
#
# Read: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#
# ## 5. Sixteen bytes, counted
# There are 16-bit weights now, and 32-bit copies of them. So what is saved? We take a step of Adam and add up
# the bytes of all arrays: parameters, gradients, the two numbers that Adam keeps for each parameter
# (*moments*), and the copies.

# %%
print("\n5. Sixteen bytes, counted")
part_bytes, for_backward = {}, {}
for name, dtype in (("float32", np.float32), ("float16", np.float16)):
    net = build(dtype)
    adam = optim.AdamW(net.parameters(), lr=1e-3)
    if dtype == np.float16:
        adam.with_master_weights(scale=StaticScale(1024.0))
    backward(net, batch, adam.loss_scale)
    adam.step()
    part_bytes[name] = measured.bytes_of_a_parameter(net, adam)
    for_backward[name] = measured.bytes_for_backward(net, batch, loss_of)
    shown = " + ".join(f"{nbytes:g}" for nbytes in part_bytes[name].values() if nbytes)
    print(f"   {name}: {shown} = {sum(part_bytes[name].values()):g} bytes a parameter")
expected = {"float32": [4, 4, 4, 4, 0], "float16": [2, 2, 4, 4, 4]}
assert {n: [*b.values()] for n, b in part_bytes.items()} == expected, (
    f"bytes {part_bytes}, expected {expected}"
)
ratio = for_backward["float16"] / for_backward["float32"]
print(f"   held for backward: {for_backward['float32']:,} and {for_backward['float16']:,} bytes: {ratio:.0%}")
assert ratio < 0.6, f"float16 holds {for_backward['float16']:,} bytes, float32 {for_backward['float32']:,}"

# %%
save(drawings.bytes_held(part_bytes, for_backward), FIGURES / "bytes.png")

# %%
stages = [bytes_of_a_parameter(2, ranks=4, stage=stage) for stage in (0, 1, 2, 3)]
print(f"   on 4 ranks, by the stages 0 to 3 of ZeRO: {', '.join(f'{nbytes:g}' for nbytes in stages)} bytes")
formula = [bytes_of_a_parameter(4), stages[0]]
assert formula == [sum(b.values()) for b in part_bytes.values()] == [16, 16], (
    f"{formula} by the formula, not 16"
)
assert stages == [16, 2 + 2 + 12 / 4, 2 + 2 / 4 + 12 / 4, 16 / 4], f"{stages}, expected 16, 7, 5.5 and 4"

# %% [markdown]
# Sixteen bytes, in both cases. What becomes smaller is what grows with the batch: the activations that the
# tape holds for backward. And gradients are sent with half of the bytes (part 7).
#
# *Which of the sixteen can ZeRO share among the ranks?* (Lesson 06.) Stage 1 shares the 12 of the optimizer,
# with the copies among them; stage 2 the gradients, too; stage 3 all of them. *Where are the 16 of Adam in
# float32?* 4 + 4 + 4 + 4. There are no copies, as the weights themselves are float32. *Where are the
# activations?* Not among the sixteen, since they do not belong to parameters. And what about time? A CPU
# becomes no faster, because NumPy has no fast product of float16 and the library computes in float32. GPUs
# have units that multiply float16, and save time, too.
#
# Read: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 3.1.
#
# ## 6. A dynamic loss scale
# Which scale is right? If it is too small, gradients are lost, and nothing shows it. If it is too large,
# gradients are infinite, and that is easy to see. So a *dynamic* scale (`minigrad/loss_scale.py`) is as large
# as it can be. If a gradient is infinite or NaN, the step is left out and the scale is halved. After a number
# of good steps in a row (2,000 by default, 8 here) it is doubled.
#
# All ranks must decide alike. The optimizer asks for the sum of the squares of all gradients, over all ranks;
# clipping needs the same sum (lesson 06). If one gradient of one rank is infinite, so is the sum, on every
# rank. We try two strategies: with `DataParallel` all ranks have all gradients; with `Sharded` (ZeRO, lesson
# 06) only rank r has the gradient of weight r, and no other rank sees that it is infinite. All gradients are
# powers of two that we choose. These are never rounded, so we can say with whole numbers what must happen.

# %%
print("\n6. A dynamic loss scale")
RANKS, INTERVAL, RATE = 4, 8, 2.0**-6
rng = np.random.default_rng(6)
GRADIENTS = rng.integers(-4, 3, size=(100, RANKS))  # the exponents of the gradients, by step and rank
rare = rng.random(100) < 0.1  # steps in which one of the ranks has a larger gradient
GRADIENTS[rare, rng.integers(0, RANKS, size=rare.sum())] += 4


def steps_on_a_rank(comm, strategy):
    """The exponent of the scale after each step, how many were left out, and the weights."""
    net = nn.Linear(RANKS, 1, bias=False, rng=0).to(dtype=np.float16)
    net.weight.data[...] = 0
    backend = strategy(comm)
    net, scale = backend.place(net), DynamicScale(growth_interval=INTERVAL)
    sgd, path = optim.SGD(net.parameters(), lr=RATE).with_master_weights(scale=scale), []
    for exponents in GRADIENTS:
        x = np.diag(RANKS * 2.0**exponents).astype(np.float16)  # sample r has feature r alone
        sgd.zero_grad()
        targets = np.full((RANKS, 1), -1000, np.float16)  # the mean of |out + 1000| rises by 1 with out
        backend.step(net, Batch(x, targets), ops.l1_loss, loss_scale=sgd.loss_scale)
        backend.update(net, sgd)
        path.append(int(np.log2(sgd.loss_scale)))
    backend.finalize(net)
    return path, sgd.skipped_steps, net.weight.data[0].tolist()


# %% [markdown]
# The rule, in whole numbers: a gradient of 2^a times a scale of 2^k is infinite in float16 if a + k is 16 or
# more (`scale_path`). A weight is the sum of the updates of those steps that were taken.

# %%
path, taken = scale_path(GRADIENTS.max(axis=1).tolist(), 16, INTERVAL)
weights = -RATE * (2.0**GRADIENTS)[taken].sum(axis=0)
rule = path, taken.count(False), weights.astype(np.float16).tolist()
for strategy in (DataParallel, Sharded):
    by_rank = run_ranks(RANKS, partial(steps_on_a_rank, strategy=strategy))
    alike = sum(ranks == rule for ranks in by_rank)
    print(
        f"   {strategy.__name__:12}: {alike} of {RANKS} ranks follow the rule; {by_rank[0][1]} steps left out"
    )
    assert alike == RANKS, f"{alike} of {RANKS} ranks follow the rule: {by_rank[0][0][:20]}, {rule[0][:20]}"

# %%
save(drawings.sawtooth(rule[0], GRADIENTS.max(axis=1)), FIGURES / "scale.png")

# %% [markdown]
# *Why must all ranks leave out the step?* A rank that takes it has other weights and another scale than the
# others from then on, and gradients of different nets, times different factors, are added up. *Is the scale
# divided out before gradients are clipped, or after?* Before: the limit is meant for the gradients
# themselves, and times 2^16 nearly all of them would be above it. *Why halve at once, and double late?* As
# long as the scale is too large, no step is taken. A scale that is too small by a factor of 2 loses few
# gradients, and each attempt to double it may cost a step: one of 2,000 is cheap.
#
# Read: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
#
# ## 7. Half of the bytes are sent
# An all-reduce of float16 arrays sends half of the bytes that float32 needs, in as many messages. But each
# addition on the way is rounded. The sum of p numbers takes p - 1 additions. Rounding changes each result by
# a share of at most u. (Subnormal sums are not rounded at all: they are multiples of 2^-24, as their terms
# are.) So in any order the error is at most
#
#     ((1 + u)^(p - 1) - 1) (|x_1| + ... + |x_p|)

# %%
print("\n7. Half of the bytes are sent")
U = UNIT_ROUNDOFF
MANY = (2, 3, 4, 8, 16)


def in_float32(comm, x):
    """The sum of 16-bit messages of all ranks, added up in float32 and rounded once."""
    return sum(y.astype(np.float32) for y in allgather(comm, x)).astype(np.float16)


lines = {"ring, in 16 bits": [], "bound": [], "added up in 32 bits": []}
for p in MANY:
    xs = np.random.default_rng(p).normal(size=(p, 5000)).astype(np.float16)
    exact, total = xs.astype(np.float64).sum(axis=0), np.abs(xs.astype(np.float64)).sum(axis=0)
    bound = ((1 + U) ** (p - 1) - 1) * total
    assert np.array_equal(bound, sum_error_bound(p, total)), f"{bound[0]}, {sum_error_bound(p, total)[0]}"
    sums, sent = measured.sums_of_ranks(ring_allreduce, xs)
    _, sent32 = measured.sums_of_ranks(ring_allreduce, xs.astype(np.float32))
    single, _ = measured.sums_of_ranks(in_float32, xs)
    error, alike = np.abs(sums[0] - exact), all(np.array_equal(sums[0], y) for y in sums)
    for line, e in zip(lines.values(), (error, bound, np.abs(single[0] - exact)), strict=True):
        line.append((e / total).max())
    print(
        f"   {p:2} ranks: error up to {(error / bound).max():.2f} of the bound; {sent:,} of {sent32:,} bytes"
    )
    assert alike and (error <= bound).all(), f"{p} ranks: {(error / bound).max():.2f} of the bound, {alike}"
    assert 2 * sent == sent32, f"{p} ranks: {sent} bytes in float16, {sent32} in float32"

# %%
save(drawings.sums(MANY, lines), FIGURES / "sums.png")

# %% [markdown]
# A sum can also be too large. Four gradients of 20,000 have the sum 80,000, which is infinite. In the library
# this does not happen: the loss is a mean over the batch, so each of four ranks has the seed 1/4, and the sum
# is as large as a gradient of one rank alone would be.

# %%
of_ranks = np.full((4, 3), 20000, np.float16)
(too_large, *_), _ = measured.sums_of_ranks(ring_allreduce, of_ranks)
(of_shares, *_), _ = measured.sums_of_ranks(ring_allreduce, of_ranks / np.float16(4))
print(f"   four times 20,000: {too_large[0]}; with the share in each: {of_shares[0]:g}")
assert np.isinf(too_large).all() and (of_shares == 20000).all(), f"{too_large[0]}, {of_shares[0]}"

# %% [markdown]
# *Why is nothing divided by p after the sum?* It was divided before, by the seed. So gradients are smaller
# while they are sent, and that is what the scale is for. *Do all ranks have the same bits?* Yes. In a ring
# each part of the array is added up once, in one order, and copied to all ranks. *What changes if the sum is
# computed in float32?* Then there is one rounding, whatever p is: see the picture. But our form sends each
# array to all ranks, (p - 1) n numbers from each rank, and a ring sends 2 (p - 1) n / p. A ring that sends
# its sums in float32 needs twice the bytes.
#
# Read: Micikevicius et al. 2018, arXiv:1710.03740, section 3.3.
#
# ## 8. bfloat16: more range, fewer digits
# With more exponents float16 would need no scale. *bfloat16* has them: it is the first half of a float32
# number, with 8 bits for the exponent, as in float32, and 7 for the fraction. So it has the range of
# float32, and u is 2^-8. The three lines below round to it: add a little less than half of what is cut off,
# 0x7fff, and 1 more if the last bit that stays is odd; then cut. So the middle goes to the even neighbor. An
# example: 1 + 2^-8 is in the middle between 1 and 1 + 2^-7, and becomes 1; 1 + 3 2^-8 becomes 1 + 2^-6.

# %%
print("\n8. bfloat16: more range, fewer digits")


def round_by_bits(x):
    bits = x.view(np.uint32)
    odd = (bits >> 16) & 1
    return ((bits + 0x7FFF + odd) & 0xFFFF0000).astype(np.uint32).view(np.float32)


patterns = np.random.default_rng(8).integers(0, 2**32, 10**5, dtype=np.uint32)
floats = patterns.view(np.float32)
floats = np.concatenate([floats[np.abs(floats) < 2.0**127], np.float32([1 + 2.0**-8, 1 + 3 * 2.0**-8])])
below = (floats.view(np.uint32) & 0xFFFF0000).astype(np.uint32)
neighbours = np.stack([n.view(np.float32).astype(np.float64) for n in (below, below + np.uint32(2**16))])
to_each = np.abs(neighbours - floats)
nearest = np.where(to_each[0] == to_each[1], (below >> 16) % 2, to_each[1] < to_each[0])  # 0 or 1
right_ones = np.where(nearest == 1, neighbours[1], neighbours[0])
for name, form in (("by bits", round_by_bits), ("minigrad/bfloat16.py", rounded)):
    wrong = np.sum(form(floats) != right_ones)
    print(f"   {name}: {wrong} of {len(floats):,} numbers are not rounded to the nearer neighbor")
    assert wrong == 0, f"{name}: {wrong} of {len(floats)} numbers are rounded wrongly"
one, two = round_by_bits(floats[-2:])
print(f"   1 + 2^-8 becomes {one:g}, 1 + 3 2^-8 becomes {two:.7g}")
assert (one, two) == (1, 1 + 2.0**-6), f"{one} and {two}, expected 1 and {1 + 2.0**-6}"

# %% [markdown]
# NumPy has no bfloat16. Inside `with bfloat16():` (`minigrad/bfloat16.py`) every op of the library rounds its
# value and its gradients, in float32 arrays. So a net computes what it would compute in bfloat16, but saves
# no byte. We compute the table of part 3 again, and train once more with the seed 2^-12, without a scale.

# %%


def rounded_net():
    """The net of float32, whose weights are rounded to bfloat16."""
    net = build()
    for parameter in net.parameters():
        parameter.data[...] = rounded(parameter.data)
    return net


with bfloat16():
    brain_errors = errors_by_seed(rounded_net)
    losses["bfloat16"] = trained(rounded_net(), SHARE, precision="bfloat16")
print("   seed      " + "".join(f"{f'2^{k}':>7}" for k in POWERS))
for name, errors in (("float16", half_errors), ("bfloat16", brain_errors)):
    print(f"   {name:10}" + "".join(f"{e:7.1g}" for e in errors))
factor = brain_errors[POWERS.index(-12)] / half_errors[POWERS.index(15)]
print(f"   the error of bfloat16 is {factor:.1f} times the least error of float16; 8 u is 2^-8")
assert len(set(brain_errors.tolist())) == 1, (
    f"errors of bfloat16 by seed: {brain_errors.min()} to {brain_errors.max()}"
)
assert 4 < factor < 16, f"bfloat16 has {factor:.1f} times the error of float16, expected about 8"

# %%
save(
    drawings.errors_by_seed(POWERS, {"float16": half_errors, "bfloat16": brain_errors}),
    FIGURES / "two_formats.png",
)

# %%
save(drawings.histograms(gradients.values(), (0, -12), least=-133), FIGURES / "range.png")

# %%

last = {name: float(losses[name][-20:].mean()) for name in ("float32", "float16", "bfloat16")}
print("   last losses: " + ", ".join(f"{name} {loss:.3f}" for name, loss in last.items()))
apart = abs(last["bfloat16"] / last["float32"] - 1)
assert apart < 0.02, f"bfloat16 ends at {last['bfloat16']:.3f}, float32 at {last['float32']:.3f}"

# %% [markdown]
# *Why is there no scale?* bfloat16 has the range of float32, and the gradients are far from its end, for each
# of these seeds. The error is even the same for all of them, to the last bit: a seed of 2^k changes exponents
# and no fraction. *What is the price?* Three bits of the fraction: 8 times the rounding error. And updates
# below w / 512 are surely lost. *What still needs float32?* Sums: the master weights, which are sums of
# updates; Adam's moments; and the sums in products, means and norms.
#
# Read: Kalamkar et al. 2019, "A study of BFLOAT16 for deep learning training", arXiv:1905.12322.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - Gaps, roundoff, lost shares, the path of a dynamic scale and the bound of a sum are as their formulas say,
#   for drawn numbers: [tests](../../tests/minigrad_course/machines/test_half_precision.py).
# - Every op in float16 computes in float32 and rounds its result once:
#   [tests](../../tests/minigrad/test_half.py).
# - Master weights train as float32 with rounded weights, and a dynamic scale follows five lines of Python,
#   for any overflows: [tests](../../tests/minigrad/test_master_weights.py).
# - All strategies leave out the same steps on all ranks, and have the weights of one machine:
#   [tests](../../tests/backends/test_precision.py).
# - `bfloat16` rounds each number to the nearer neighbor, for all ops:
#   [tests](../../tests/minigrad/test_bfloat16.py).
#
# Proved only by this lesson's assertions, for its nets and its text: the shares of gradients that are lost,
# the errors by seed, and the three losses of part 3. Not proved: that the same scale is right for other
# networks; and nothing is said about time, since a CPU computes float16 in float32.
#
# This is the last lesson. Continue with the ten [assignments](../assignments/README.md), with the benchmarks
# (`python benchmarks/gpu_run.py`, on a GPU), or with a strategy of your own: CONTRIBUTING.md says what to
# write and which law it must obey.
