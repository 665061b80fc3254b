"""Lesson 18. Experts: many networks, of which each token uses a few.

Lecture section: experts, model parallelism whose messages depend on the data. This lesson shows a gate that
chooses and learns; experts with a limited number of places; a penalty that keeps them balanced; experts on
several ranks, and the messages that carry tokens to them and back; when all of this pays; and how the
messages can be hidden. Survey: Fedus, Dean and Zoph 2022, "A review of sparse expert models in deep
learning", arXiv:2209.01667.

The slide asks: how can a network have many times more weights without more work for each token?

You need: lesson 05, all-to-alls; lesson 13, the virtual clock; lesson 17, the block of a transformer; what a
binomial distribution is.

Time: about 70 minutes; the program runs for about 5 seconds.

After this you can: compute a gate and its gradient; compute the places of an expert and the share that chance
drops; say what the penalty rewards; count the messages and bytes of a mixture on several ranks; decide when
experts pay; compute how much of an all-to-all is hidden.

    python lessons/18_experts/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/18_experts/.
In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from functools import partial

import drawings
import measured
import numpy as np
from minigrad_course.machines.expert_costs import MixtureSize, capacity_of, dropped_by_chance, exchange_bytes
from minigrad_course.machines.overlap import AllToAll, Compute, in_sequence, in_turns
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.style import start_lesson
from training import EXPERTS, LENGTH, trained

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import allgather, alltoall, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.expert_parallel import ExpertParallel
from backends.laws import bound_for
from backends.pipeline import SCHEDULES, Backward, Forward
from minigrad import Tensor, nn, ops, text
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.models import transformer
from minigrad.routing import route

FIGURES = start_lesson("18_experts")

# %% [markdown]
# ## 1. A gate chooses, and learns through the weight
# In a block of a transformer (lesson 17) the feed-forward net transforms each token alone, and it has most of
# the block's weights. A *mixture of experts* has several such nets, the *experts*, and each token goes to one
# or two of them. So there can be many times more weights, and a token needs no more work than before.
#
# A *gate* chooses. It is a matrix with a row for each expert. The products of a token with the rows, through
# a softmax, are the token's gates: positive numbers with the sum 1, one for each expert. The token goes to
# the expert with the largest gate, and the expert's result is multiplied by this gate.
#
# An example with four tokens of two numbers and three experts. The rows of the gate are (ln 4, 0), (0, ln 4)
# and (0, 0). For the token (1, 0) the products are ln 4, 0 and 0, the exponentials 4, 1 and 1, and the gates
# 2/3, 1/6 and 1/6. The experts are as simple as can be: they multiply by 3, by 6 and by 9.

# %%
print("1. A gate chooses, and learns through the weight")
TOKENS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
GATE = np.log(4) * np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
FACTORS = 3, 6, 9


def best_expert(x, gate):
    exponentials = np.exp(x @ gate.T)
    gates = exponentials / exponentials.sum(axis=1, keepdims=True)
    chosen = gates.argmax(axis=1)  # of equal gates the first
    return gates, chosen, np.array([gates[t, e] * FACTORS[e] * x[t] for t, e in enumerate(chosen)])


gates, chosen, results = best_expert(TOKENS, GATE)
for x, row, e, y in zip(TOKENS, gates, chosen, results, strict=True):
    shown_gates = " ".join(f"{gate:.3f}" for gate in row)
    print(f"   token ({x[0]:2g},{x[1]:2g}): gates {shown_gates}, expert {e}, result ({y[0]:.4g}, {y[1]:.4g})")
off = np.abs(results - [[2, 0], [0, 4], [4 / 3, 4 / 3], [-6, -6]]).max()
assert off < 1e-13 and list(chosen) == [0, 1, 0, 2], f"results are off by {off:.0e}, experts {chosen}"

# %%
save(drawings.four_tokens(TOKENS, gates, chosen, FACTORS), FIGURES / "gates.png")

# %% [markdown]
# Now with real experts: nets of two layers. `transform` takes tokens that are sorted by expert.
# `mixture_by_hand` sorts the tokens, and undoes this at the end. On the tape of lesson 02 it has gradients.
# The library's mixture is `nn.Experts` (`minigrad/nn/experts.py`; `grouped_linear.py` is the product of each
# expert with its own tokens). Part 2 explains its `capacity`; here there is room for all tokens.

# %%
WIDTH, HIDDEN, FEW = 8, 16, 3
rng = np.random.default_rng(18)


def transform(rows, counts, w):
    """The experts' results for rows that are sorted: the first counts[0] are for expert 0, and so on."""
    parts = []
    for e, end in enumerate(np.cumsum(counts)):
        h = ops.gelu(ops.linear(rows[end - counts[e] : end], w["weight1"][e], w["bias1"][e]))
        parts.append(ops.linear(h, w["weight2"][e], w["bias2"][e]))
    return ops.concatenate(*parts, axis=0)


def mixture_by_hand(w, weighted=True):
    gates = ops.softmax(ops.linear(w["x"], w["gate"]), axis=1)
    chosen = gates.data.argmax(axis=1)
    order = np.argsort(chosen, kind="stable")  # tokens, sorted by expert
    y = transform(w["x"][order], np.bincount(chosen, minlength=FEW), w)
    if weighted:
        y = y * ops.reshape(gates[order, chosen[order]], shape=(len(order), 1))
    return y[np.argsort(order)]  # this permutation undoes the first one


experts = nn.Experts(WIDTH, FEW, hidden=HIDDEN, capacity=FEW, rng=0, dtype=np.float64)
arrays = {"x": rng.normal(size=(12, WIDTH))} | experts.state_dict()
by_hand = measured.gradients(mixture_by_hand, arrays)
y, x_gradient = measured.of_layer(experts, arrays["x"][None])
library = {"y": y[0], "x": x_gradient[0]} | {n: p.grad for n, p in experts.named_parameters().items()}
off = measured.largest_error(by_hand, library)
print(f"   nn.Experts: result and all gradients are off by {off:.0e} from those by hand")
assert off <= 1e-13, f"nn.Experts is off by {off:.1e}, limit 1e-13"

# %% [markdown]
# How can the gate learn? A choice has no gradient: if the gate changes a little, the choice is the same, and
# so is the result. But the result is multiplied by the gate. If the expert's result makes the loss smaller, a
# larger gate makes it smaller still, and so the gate learns that this expert suits this token. We compare the
# gradient of the gate with differences of the loss, with and without the factor.

# %%
for weighted in (True, False):
    form = partial(mixture_by_hand, weighted=weighted)
    tape = measured.gradients(form, arrays)["gate"]
    steps = measured.differences(form, arrays, "gate")
    off, largest = np.abs(tape - steps).max(), np.abs(tape).max()
    name = "with the weight" if weighted else "without it"
    print(f"   {name:15}: largest gradient of the gate {largest:.3f}, off by {off:.0e} from differences")
    assert off < 1e-8 and (largest > 0.1) == weighted, f"{name}: gradient {largest:.1e}, off by {off:.1e}"

# %% [markdown]
# *Why is the gate a factor, although only one expert is used?* Without it the gate has no gradient at all, as
# the last line shows. *What if two gates are equal?* Then the lower expert comes first, as for the third
# token of the example. The rule must be fixed, so that all ranks choose alike. *What is the gate of a single
# expert?* The softmax of one number, which is always 1, and its gradient is 0: the mixture is an ordinary
# net. With two experts for each token (`choices=2`) their gates are divided by their sum.
#
# Read: Shazeer et al. 2017, "Outrageously large neural networks", arXiv:1701.06538, section 2.
#
# ## 2. A capacity drops tokens
# Nothing ensures that the experts get equally many tokens. On several ranks the expert with the most tokens
# decides how long all ranks wait, and how many it gets is not known in advance. So an expert has a
# *capacity*: for a row of S tokens it has C = ceil(f k S / E) places, where E is the number of experts, k the
# number of experts that a token chooses, and f the *capacity factor*. At f = 1 there are just enough places
# for all, if they are evenly used. A token whose expert has no place left is *dropped*: the mixture gives 0
# for it, and the block's residual (lesson 17) passes it on unchanged.
#
# Places are given in a fixed order: the first choices of all tokens, from the first token to the last, then
# the second choices. In the example of part 1 the experts are 0, 1, 0 and 2. With f = 3/4, C is 1, and the
# third token is dropped. `route` (`minigrad/routing.py`) does this for many rows.

# %%
print("\n2. A capacity drops tokens")


def places_by_hand(choices, experts, capacity):
    """Which choices (token, which of its k) have a place, and how many have none."""
    used, with_place, dropped = [0] * experts, set(), 0
    for c in range(choices.shape[1]):  # all first choices, then all second ones
        for t, e in enumerate(choices[:, c]):
            if used[e] < capacity:
                used[e] += 1
                with_place.add((t, c))
            else:
                dropped += 1
    return with_place, dropped


# %%
with_place, dropped = places_by_hand(chosen[:, None], 3, capacity_of(4, 3, 1, 0.75))
print(
    f"   f = 0.75: tokens {sorted(t for t, _ in with_place)} of the example have a place, {dropped} has none"
)
assert with_place == {(0, 0), (1, 0), (3, 0)} and dropped == 1, (
    f"{len(with_place)} kept, {dropped} dropped; expected 3, 1"
)

# %%
rows, length, choices = 50, 12, 2
drawn = rng.random((rows, length, FEW))
for factor in (0.0, 0.5, 1.0, 1.25):
    routes = route(drawn, choices=choices, capacity=factor)
    places, total = capacity_of(length, FEW, choices, factor), 0
    for row in range(rows):
        with_place, dropped = places_by_hand(routes.experts[row], FEW, places)
        slots = routes.slots[routes.slots // (length * choices) == row] % (length * choices)
        assert {divmod(slot, choices) for slot in slots} == with_place, (
            f"row {row}: {len(slots)} slots, {len(with_place)} kept"
        )
        total += dropped
    print(f"   f {factor:4}: {len(routes.slots):4} kept + {total:4} dropped = {choices * rows * length}")
    counts = len(routes.slots) + total, routes.dropped
    assert counts == (choices * rows * length, total), (
        f"{counts}, expected {choices * rows * length}, {total}"
    )

# %% [markdown]
# How many tokens are dropped? Suppose that all experts are equally probable for each token. Then the number
# of tokens that choose an expert has a binomial distribution, and x - C of x tokens are dropped if x > C:
#
#     share dropped = E / S  sum over x > C of (x - C) Binomial(x; S, 1 / E)
#
# Below, this formula is compared with gates that are drawn at random, for rows of 64 tokens and 8 experts,
# and with a gate that has learned. `trained` (in training.py) trains a small transformer, which has 8 experts
# in place of its feed-forward net, for a hundred steps on the prose of this course.

# %%
FACTORS = 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0, 8.0
without, balanced = trained(0.0), trained(0.01)
drawn = rng.random((4000, LENGTH, EXPERTS))


def shares_dropped(gates, factor):
    """The mean share of a row that has no place, and its standard error."""
    routes = route(gates, choices=1, capacity=factor)
    with_place = np.bincount(routes.tokens // LENGTH, minlength=len(gates))
    return 1 - with_place.mean() / LENGTH, with_place.std() / LENGTH / np.sqrt(len(gates))


formula = [dropped_by_chance(LENGTH, EXPERTS, capacity_of(LENGTH, EXPERTS, 1, f)) for f in FACTORS]
uniform = [shares_dropped(drawn, f) for f in FACTORS]
learned = [shares_dropped(without.gates, f)[0] for f in FACTORS]
print("   f               " + "".join(f"{f:7.2f}" for f in FACTORS))
for name, line in (("formula", formula), ("drawn", [share for share, _ in uniform]), ("learned", learned)):
    print(f"   {name:8} dropped" + "".join(f"{share:7.1%}" for share in line))
for f, share, (mean, error), own in zip(FACTORS, formula, uniform, learned, strict=True):
    assert abs(mean - share) <= 3 * error + 1e-12, f"f {f}: {mean:.4f} dropped, {share:.4f} by the formula"
    assert own > share or f > 2, f"f {f}: {own:.4f} dropped by the learned gate, {share:.4f} by chance"

# %%
save(drawings.dropped(FACTORS, formula, uniform, learned), FIGURES / "dropped.png")

# %% [markdown]
# Even at f = 1, where there are places for all, chance alone drops 13 %. The learned gate drops about half of
# the tokens: it prefers a few experts. Only f = E is safe, with places for all tokens in each expert, and
# most of these places stay empty. Part 3 shows a better way.
#
# *Where does a dropped token go?* To no expert: the mixture gives 0, and the block's residual adds this 0 to
# the token. *Who is dropped first, and is that fair?* The last tokens of a row, whatever their gates are:
# with a causal mask these are the tokens that know most. *Does a token depend on later ones?* With several
# choices, yes: the first choice of a later token takes a place before the second choice of an earlier one.
# The net is then not causal, and its training loss is a little too good. With one choice only the row's
# length matters, since C depends on it: the beginning of a row, taken alone, has another C than the whole
# row. And generation reads the last token, which is dropped most often. *Why are places given in each row,
# and not in the whole batch?* So it does not matter which rank has which row; with places for the whole batch
# all ranks would have to agree, in every step, on which tokens come first.
#
# Read: Fedus et al. 2021 (Switch Transformer), arXiv:2101.03961, section 2.2.
#
# ## 3. A penalty keeps the experts balanced
# An expert that gets more tokens learns faster, becomes better, and gets more tokens still: the gate prefers
# a few experts, and the others learn nothing. So the loss has one more term, the *penalty*
#
#     alpha E  sum over the experts e of f_e P_e
#
# where f_e (not the capacity factor f) is the share of the tokens whose first choice is
# e, and P_e is the mean gate of e. If tokens and gates are the same for all experts, all f_e and P_e are 1 /
# E, and the penalty is alpha. If all tokens go to one expert, with the gate 1, it is alpha E. f_e is a count
# and has no gradient; the penalty makes the gates P_e smaller where f_e is large. `nn.Experts` adds it
# in the steps of a strategy (`backend.step`, `fit`), and not with a tape by hand; `penalty` is alpha. The op
# `with_penalty` (`minigrad/ops/penalty.py`) leaves the layer's value as it is and carries the term to the
# loss.

# %%
print("\n3. A penalty keeps the experts balanced")
ALPHA = 0.01
ends = nn.Experts(EXPERTS, EXPERTS, penalty=ALPHA, rng=0, dtype=np.float64)
ends.gate.data[...] = 1000 * np.eye(EXPERTS)  # token e, which is 1 at e and else 0, chooses expert e
for name, tokens, expected in (
    ("each expert has one token", np.eye(EXPERTS), ALPHA),
    ("expert 0 has all tokens", np.eye(EXPERTS)[[0] * EXPERTS], ALPHA * EXPERTS),
):
    value = measured.penalty(ends, tokens[None])
    print(f"   {name}: penalty {value:g}")
    assert abs(value - expected) < 1e-15, f"{name}: the penalty is {value}, expected {expected}"

# %%
two = nn.Experts(2, 2, penalty=ALPHA, rng=0, dtype=np.float64)
two.gate.data[...] = np.eye(2)
hesitant = np.array([[np.log(0.51 / 0.49), 0.0]] * 9 + [[0.0, 1000.0]])  # nine gates (0.51, 0.49), one (0, 1)
below = measured.penalty(two, hesitant[None])
print(f"   nine tokens choose expert 0 by a small margin, one expert 1 for certain: penalty {below:.5f}")
assert abs(below / (ALPHA * 2 * (0.9 * 0.459 + 0.1 * 0.541)) - 1) < 1e-12, (
    f"the penalty is {below}, not 0.00934"
)
random = nn.Experts(WIDTH, EXPERTS, penalty=ALPHA, rng=0, dtype=np.float64)
x = rng.normal(size=(5, 20, WIDTH))
exponentials = np.exp(x @ random.gate.data.T)
p = exponentials / exponentials.sum(axis=2, keepdims=True)
f = np.mean(p.argmax(axis=2)[..., None] == np.arange(EXPERTS), axis=1)
expected = ALPHA * EXPERTS * np.mean(np.sum(f * p.mean(axis=1), axis=1))  # the mean over rows
off = abs(measured.penalty(random, x) / expected - 1)
print(f"   random gates: penalty {expected:.5f} by hand, off by {off:.0e}")
assert off < 1e-13, f"the penalty of random gates is off by {off:.1e}, limit 1e-13"

# %% [markdown]
# In part 2 the net was trained twice, and the two trainings differ in the penalty alone: alpha is 0 in the
# first and 0.01 in the second. The picture shows which share of the tokens each expert gets, step by step.

# %%
for name, run in (("penalty off", without), ("penalty on", balanced)):
    late, drop = run.shares[-20:].max(axis=1).mean(), shares_dropped(run.gates, 1.25)[0]
    print(f"   {name:11}: the fullest expert has {late:.0%}, {drop:.0%} dropped, test loss {run.loss:.2f}")
fullest = [run.shares[-20:].max(axis=1).mean() for run in (without, balanced)]
assert fullest[0] > 0.4 and fullest[1] < 0.35, f"fullest experts: {fullest[0]:.2f} and {fullest[1]:.2f}"

# %%
save(drawings.shares_of_experts(without.shares, balanced.shares), FIGURES / "balance.png")

# %% [markdown]
# The test loss is about the same after so few steps. But with the penalty every expert gets tokens and
# learns, and fewer are dropped.
#
# *Why has f_e no gradient?* It is a count, and a small change of the gates changes no count. It is multiplied
# by P_e, which has a gradient. *What is the penalty at balance?* alpha. *Is that its least value?* No. It is
# also alpha if all gates are nearly equal and all tokens choose the same expert by a small margin. In the
# third line above it is even less than alpha: a few tokens choose, with certainty, the expert that many
# others almost choose. So the penalty does not measure balance. But its gradient makes the gates of crowded
# experts smaller, and over many steps the counts become more even.
#
# Read: Fedus et al. 2021, arXiv:2101.03961, section 2.2, equations 4 to 6.
#
# ## 4. Experts on ranks: tokens go to their experts and come back
# The experts have most of the weights, so they are shared among the ranks: with 6 experts on 4 ranks two
# ranks have 2 and two have 1. All else is data parallelism: each rank has some rows of the batch, and its own
# copy of the gate. A token must go to the rank of its expert, and its result must come back. Who sends how
# much to whom depends on the tokens, so it is different in each step. The messages are all-to-alls (lesson
# 05):
#
# - *counts*: how many rows come from each rank for each expert. These are integers, without a gradient.
# - *dispatch*: the rows, one for each token that has a place. There is no padding.
# - the experts of each rank compute;
# - *combine*: each result goes back to the rank of its token.
#
# Backward sends gradients the opposite ways: an all-to-all for combine, and one for dispatch. So there are
# five all-to-alls, each with p - 1 messages from a rank; the counts are small. The rows that arrive are
# sorted by sender, and must be sorted by expert. Here is all of it by hand, with three samples on four ranks,
# so that rank 0 has no tokens.

# %%
print("\n4. Experts on ranks: tokens go to their experts and come back")
RANKS, B, S, E, K = 4, 3, 8, 6, 2
OF_RANKS = shares(E, RANKS)  # the experts of each rank
layer = nn.Experts(WIDTH, E, hidden=HIDDEN, choices=K, capacity=1.0, rng=1, dtype=np.float64)
samples = rng.normal(size=(B, S, WIDTH))


def dispatch(rows, counts, comm):
    """Send rows to the ranks of their experts; return the rows received, and how many by rank and expert."""
    arrived = np.array(alltoall(comm, [counts[experts] for experts in OF_RANKS]))
    sizes = [int(counts[experts].sum()) for experts in OF_RANKS]
    return differentiable.all_to_all(rows, comm=comm, axis=0, sizes=sizes), arrived


def by_own_experts(rows, arrived, w):
    """The results of this rank's experts for rows that are sorted by sender, in the same order."""
    expert_of = np.repeat(np.tile(np.arange(arrived.shape[1]), len(arrived)), arrived.ravel())
    order = np.argsort(expert_of, kind="stable")
    return transform(rows[order], arrived.sum(axis=0), w)[np.argsort(order)]


def combine(results, arrived, comm):
    """Send results back to the ranks of their rows, where they arrive in the order of the rows."""
    return differentiable.all_to_all(results, comm=comm, axis=0, sizes=arrived.sum(axis=1).tolist())


# %%
def mixture_on_ranks(w, comm, counts):
    gates = ops.softmax(ops.matmul(w["x"], ops.transpose(w["gate"])), axis=2)
    routes = route(gates.data, choices=K, capacity=1.0)
    counts.append(routes.counts)
    tokens = ops.reshape(w["x"], shape=(-1, WIDTH)) if len(w["x"].data) else w["x"][:, 0]
    rows, arrived = dispatch(tokens[routes.tokens], routes.counts, comm)
    back = combine(by_own_experts(rows, arrived, w), arrived, comm)
    best = ops.gather(gates, routes.experts, axis=2)
    weights = ops.reshape(best / ops.sum(best, axis=2, keepdims=True), shape=(best.data.size, 1))
    y = ops.segment_sum(back * weights[routes.slots], routes.tokens, count=len(tokens.data))
    return ops.reshape(y, shape=w["x"].shape)


def on_a_rank(comm):
    comm, counts = Traced(comm), []
    own = OF_RANKS[comm.rank]
    mine = {n: a if n == "gate" else a[own] for n, a in layer.state_dict().items()}
    mine["x"] = samples[shares(B, comm.size)[comm.rank]]
    arrays = measured.gradients(lambda w: mixture_on_ranks(w, comm, counts), mine)
    sent = comm.record.ledger.sent()
    for name in ("y", "x"):  # to compare with one machine
        arrays[name] = np.concatenate(allgather(comm, arrays[name]))
    arrays["gate"] = ring_allreduce(comm, arrays["gate"])
    return arrays, counts[0], sent


# %%
y, x_gradient = measured.of_layer(layer, samples)
serial = {"y": y, "x": x_gradient} | {n: p.grad for n, p in layer.named_parameters().items()}
results = run_ranks(RANKS, on_a_rank)
counts = np.array([routed for _, routed, _ in results])
print(f"   {counts.sum()} of {K * B * S} choices have a place; rows of each rank for each expert:")
print("   expert                " + "".join(f"{e:4}" for e in range(E)))
for rank, row in enumerate(counts):
    own = ", ".join(map(str, range(E)[OF_RANKS[rank]]))
    print(f"   rank {rank}, which has {own:4} " + "".join(f"{n:4}" for n in row))
sizes = [share.stop - share.start for share in OF_RANKS]
for rank, (arrays, _, sent) in enumerate(results):
    whole = {n: a[OF_RANKS[rank]] if n[:-1] in ("weight", "bias") else a for n, a in serial.items()}
    off = measured.largest_error(whole, arrays)
    expected = 5 * (RANKS - 1), exchange_bytes(counts, sizes, rank, WIDTH)
    print(f"   rank {rank}: off by {off:.0e}; sent {sent.messages} messages, {sent.bytes} bytes")
    assert off <= 1e-12, f"rank {rank} is off by {off:.1e}, limit 1e-12"
    assert (sent.messages, sent.bytes) == expected, f"rank {rank} sent {sent}, by the formula {expected}"

# %%
save(drawings.counts(counts, [range(E)[own] for own in OF_RANKS]), FIGURES / "counts.png")

# %% [markdown]
# The bytes of a rank, forward and backward, agree with the formula (`exchange_bytes`): a row of h numbers
# goes to its expert, a result comes back, and the two gradients go the opposite ways; so 2 h numbers for each
# row that a rank sends to others, 2 h for each that it receives from others, and 8 bytes for each expert of
# the others.
#
# *Why have the messages different sizes?* A message has as many rows as tokens chose the experts of its rank.
# With the same capacity for all, some systems send full messages padded with zeros, and need no counts. *What
# does a rank without tokens send?* Counts of 0, no rows, and the results of its own experts for the others.
# *Which order is undone, and by which permutation?* Two orders: by expert, for the rows of a rank
# (`routes.slots`, undone by `segment_sum`), and by expert for what arrived (`order`, undone by
# `argsort(order)`, its inverse).
#
# Read: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3.
#
# ## 5. As on one machine, also with dropped tokens
# The library's strategy is `ExpertParallel` (`backends/expert_parallel/expert_parallel.py`). `exchange.py`,
# in the same folder, has the all-to-alls of part 4, and `naive.py`, which is to be read first, sends all
# tokens to all ranks. It is data parallelism for all parameters but the experts: the gradient of an expert
# needs no sum over ranks, since the tokens of all ranks have come to it. Everything is as on one machine:
# which tokens are dropped, the penalty, all gradients, and the parameters after three steps. Here is a
# transformer of two blocks with 6 experts on 4 ranks, and capacity factor 1. The last batch has one sample,
# so three ranks have none.

# %%
print("\n5. As on one machine, also with dropped tokens")
loss = nn.CrossEntropyLoss(ignore_index=text.PADDING, class_axis=-1)
sizes = {"symbols": 20, "length": S, "width": 16, "heads": 2, "blocks": 2}
build = partial(transformer, **sizes, experts=E, choices=K, capacity=1.0)
batches = [Batch(*rng.integers(0, 20, size=(2, n, S))) for n in (7, 5, 1)]
net = build(np.random.default_rng(0))
net(batches[0].x)
lost = [(block.feed_forward.dropped, block.feed_forward.routed) for block in net[1:3]]
print("   dropped in the first batch: " + ", ".join(f"{dropped} of {routed}" for dropped, routed in lost))
errors = {}
for per in ("sample", "rank"):
    strategy = partial(ExpertParallel, capacity_per=per)
    errors[per] = measured.errors_in_training(strategy, RANKS, build, loss, batches)
    worst = max(errors[per], key=errors[per].get)
    print(f"   capacity per {per}: off from one machine by {errors[per][worst]:.0e}, in {worst}")
assert all(dropped > 0 for dropped, _ in lost), f"dropped in two blocks: {lost}"
worst = [max(of.values()) for of in errors.values()]
assert worst[0] <= bound_for(float) and worst[1] > 0.01, f"off by {worst[0]:.0e} and {worst[1]:.0e}"

# %%
save(drawings.errors(errors, bound_for(float)), FIGURES / "errors.png")

# %% [markdown]
# With `capacity_per="rank"` all samples of a rank share their places. Many systems do this, and it is
# another function: with another number of ranks other tokens are dropped, the penalty has another value, and
# the training differs.
#
# *Why are experts' gradients not all-reduced?* They are whole where the expert is; a sum over ranks would add
# up the gradients of different experts. *What must be counted once in a norm?* The gate and everything else
# that every rank has: its square counts once, while the squares of experts are summed over the ranks. *What
# would a capacity for the whole batch cost?* One more step before each dispatch, in which the ranks agree on
# the places: each needs to know how many tokens of the ranks before it have chosen each expert.
#
# Read: Lepikhin et al. 2020, arXiv:2006.16668, algorithm 1.
#
# ## 6. When it pays
# What does a mixture cost? With h the width, m the neurons of an expert, E experts, k choices, in one layer:
#
# - *parameters*: E (2 m h + m + h), and E h for the gate. They grow with E.
# - *operations for a token*: 4 k m h forward, and 2 E h for the gate. The first, larger term does not depend
#   on E.
# - *bytes between ranks*: at most 4 k h numbers for each token, whatever E is. Copies of the experts on all
#   ranks would need an all-reduce of all their gradients, which grows with E.
#
# The table is for a layer of GPT-2's size, h = 768 and m = 3072 (`MixtureSize` in
# minigrad_course/machines/expert_costs.py has the formulas).

# %%
print("\n6. When it pays")
NUMBERS = 1, 2, 4, 8, 16, 32, 64
costs = [MixtureSize(768, 3072, n) for n in NUMBERS]
print("   experts                " + "".join(f"{n:7}" for n in NUMBERS))
print("   million parameters     " + "".join(f"{size.parameters / 1e6:7.1f}" for size in costs))
print("   million operations     " + "".join(f"{size.flops / 1e6:7.2f}" for size in costs))
growth = costs[-1].parameters / costs[0].parameters, costs[-1].flops / costs[0].flops
assert abs(growth[0] - 64) < 1e-9 and growth[1] < 1.02, (
    f"64 experts: {growth[0]:.2f} and {growth[1]:.3f} times"
)
dense, mixture = MixtureSize(768, 2 * 3072, 1), MixtureSize(768, 3072, 8, choices=2)
same = (mixture.flops - 2 * mixture.gate) / (dense.flops - 2 * dense.gate)
print(
    f"   8 experts, 2 choices: {mixture.parameters / dense.parameters:.1f} times the parameters of a net that"
)
print(f"   is twice as wide, for {same:g} times its operations")
assert same == 1, f"{same} times the operations of a dense net of twice the width, expected 1"

# %% [markdown]
# Now we count, on four ranks, in a small layer: the parameters of `nn.Experts`, the rows that experts
# compute, and the bytes that a rank sends in forward and backward of part 4 (the mean over the ranks). If
# tokens choose evenly, 3/4 of them go to another rank, and the rank sends 4 h numbers for each of these.

# %%
MANY, small = NUMBERS[2:], []
x = rng.normal(size=(8, 32, WIDTH))
for n in MANY:
    layer = nn.Experts(WIDTH, n, hidden=HIDDEN, capacity=n, rng=0, dtype=np.float64)
    gates = layer.gates(Tensor(x)).data
    counts = np.array([route(gates[own], choices=1, capacity=n).counts for own in shares(len(x), RANKS)])
    own_experts = [share.stop - share.start for share in shares(n, RANKS)]
    nbytes = np.mean([exchange_bytes(counts, own_experts, rank, WIDTH) for rank in range(RANKS)])
    parameters = sum(array.data.size for array in layer.parameters())
    reduced = 2 * 8 * (RANKS - 1) / RANKS * parameters
    small.append((nbytes, reduced))
    print(
        f"   {n:2} experts: {counts.sum()} rows, {nbytes:6,.0f} bytes, all-reduce of copies {reduced:9,.0f}"
    )
    assert counts.sum() == 8 * 32, f"{n} experts compute {counts.sum()} rows, expected {8 * 32}"
    size = MixtureSize(WIDTH, HIDDEN, n)
    assert parameters == size.parameters, f"{parameters} parameters, by the formula {size.parameters}"
even = 4 * 8 * WIDTH * 64 * (RANKS - 1) / RANKS
for n, (nbytes, _) in zip(MANY, small, strict=True):
    assert abs(nbytes / even - 1) < 0.15, f"{n} experts: {nbytes:,.0f} bytes, evenly {even:,.0f}"

# %%
save(drawings.costs(NUMBERS, costs, MANY, small, even), FIGURES / "costs.png")

# %% [markdown]
# *What grows with E?* Parameters, the gate's small product, and what chance drops at the same capacity
# factor: each expert has fewer tokens, and their number varies more. *What grows with p?* The number of
# messages, and the share (p - 1) / p of rows that leave their rank. The weights that a rank holds become
# fewer. *When is a dense net of k times the width better?* It does as many operations, drops nothing, and
# sends nothing. A mixture pays if its additional parameters lower the loss enough: with much data, and with a
# fast network.
#
# Read: Rajbhandari et al. 2022 (DeepSpeed-MoE), arXiv:2201.05596.
#
# ## 7. Hiding the all-to-all
# While the rows travel, the rank has nothing to compute: each half of a block waits for the one before it.
# But a rank often has two micro-batches at hand that do not depend on each other. While the rows of one
# travel, it can compute for the other. Then the processor of the rank and its link are both busy.
#
# We use the virtual clock of lesson 13. A *forward* alternates computing and all-to-alls: attention,
# dispatch, experts, combine. A *backward* does the same in the opposite order: an all-to-all comes first, and
# computing takes twice as long. `in_turns` (minigrad_course/machines/overlap.py) takes a step of one and a
# step of the other, with the all-to-alls in the background; `in_sequence` does all steps of one, and then all
# of the other.

# %%
print("\n7. Hiding the all-to-all")
N, FORWARD, BACKWARD = 6, 2, 4  # halves of blocks, and seconds that a half takes


def clock(form, micros):
    """Seconds until the last of three ranks is done, and what the first one did."""
    cluster = VirtualCluster(3, Link(0.0, 2.0))  # two messages of n bytes at 2 bytes a second: n seconds
    done = cluster.run(lambda comm: form(comm, micros))
    return cluster.seconds, done[0]


lanes, times = {}, {}
print("   all-to-all  in sequence    in turns   computing  all-to-alls  two forwards")
for exchange in range(9):
    forward = [Compute(FORWARD), AllToAll(exchange)] * N
    backward = [AllToAll(exchange), Compute(BACKWARD)] * N
    one_after_the_other, first = clock(in_sequence, [forward, backward])
    alternating, second = clock(in_turns, [forward, backward])
    two_forwards, _ = clock(in_turns, [forward, [None, *forward]])
    times[exchange] = one_after_the_other, alternating
    if exchange == 2:
        lanes = {"in sequence": first, "in turns": second}
    expected = (
        N * (FORWARD + BACKWARD + 2 * exchange),
        N * (max(FORWARD, exchange) + max(BACKWARD, exchange)),
        2 * N * max(FORWARD, exchange) + min(FORWARD, exchange),
    )
    clocks = one_after_the_other, alternating, two_forwards
    assert clocks == expected, f"all-to-alls of {exchange} s: {clocks} s, by the formulas {expected}"
    if exchange in (1, 2, 3, 4, 6):
        numbers = *clocks[:2], N * (FORWARD + BACKWARD), 2 * N * exchange, clocks[2]
        print(f"   {exchange} s" + "".join(f"{number:13g}" for number in numbers))

# %%
save(drawings.lanes(lanes), FIGURES / "lanes.png")

# %%
save(drawings.hidden(times, N * (FORWARD + BACKWARD), 2 * N), FIGURES / "hidden.png")

# %% [markdown]
# In sequence the time is the sum. In turns each step takes as long as the longer of the two: N times
# max(forward, all-to-all) + max(backward, all-to-all). All-to-alls that are shorter than the computing at the
# same time cost nothing; if they are longer, the computing costs nothing. At 3 s, longer than a forward's
# half and shorter than a backward's, each hides a part of the other.
#
# Two forwards can hide each other's messages as well. But both begin with computing: in the first step
# nothing is sent, and in the last one nothing is computed. So there is a *fill* of min(forward, all-to-all)
# besides the maximum. A forward and a backward have no fill, since one begins with computing and the other
# with an all-to-all.
#
# Where do a forward and an independent backward come from at the same time? From a pipeline. *DualPipe* sends
# half of the micro-batches through the ranks from each end (lesson 13), so that a rank has forwards of one
# direction together with backwards of the other. We count, for 8 ranks and 20 micro-batches, how many
# forwards of a rank are followed by a backward of another micro-batch.

# %%


def pairs(instructions):
    """How many forwards are followed by a backward of another micro-batch."""
    return sum(
        isinstance(one, Forward) and isinstance(other, Backward) and one.micro != other.micro
        for one, other in zip(instructions, instructions[1:], strict=False)
    )


by_schedule = {
    name: [pairs(rank) for rank in SCHEDULES[name].of(8, 20).instructions] for name in ("dualpipe", "1f1b")
}
for name, of_ranks in by_schedule.items():
    print(f"   {name:8}: pairs on the 8 ranks, of 20 forwards: {', '.join(map(str, of_ranks))}")
least = [min(of_ranks) for of_ranks in by_schedule.values()]
assert least == [9, 0], f"the least pairs of a rank are {least}, expected 9 and 0"

# %% [markdown]
# In 1F1B the last rank has none: there each backward follows the forward of the same micro-batch and needs
# it. DualPipe has pairs on all ranks. (Its authors also split the computing into smaller pieces, to fit
# the messages better; our clock does not.)
#
# *What is the most that can be gained?* Half of the time, if each computing takes as long as the all-to-all
# beside it. Equal totals are not enough: at 3 s both take 36 s, and the 72 s become 42 s, not 36 s, since a
# forward computes for 2 s and a backward for 4 s. *What does it cost?* Two micro-batches at once hold their
# activations, and DualPipe holds each stage's weights twice. *Why can a micro-batch not hide its own
# messages?* Each step needs the result of the step before it. Only computing that does not depend on the
# message can fill the time.
#
# Read: DeepSeek-AI 2024, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.2.1.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - A mixture on any number of ranks, with any number of experts and any capacity, has the results, dropped
#   tokens and gradients of one machine, also in stacks with other strategies:
#   [tests](../../tests/backends/expert_parallel/test_expert_parallel.py).
# - `nn.Experts` has the values, dropped tokens, penalties and gradients of three loops over tokens and
#   experts: [tests](../../tests/minigrad/nn/test_experts.py).
# - Capacities, the share that chance drops, parameters, operations and bytes agree with a count:
#   [tests](../../tests/minigrad_course/machines/test_expert_costs.py).
# - A forward and a backward in turns last as long as the formula says, and two forwards have a fill:
#   [tests](../../tests/minigrad_course/machines/test_overlap.py).
#
# Proved only by this lesson's assertions, for its cases: what a gate drops that has learned for a hundred
# steps, and that the penalty makes its choices more even. Not proved: that experts lower the loss, and all
# speeds.
#
# Next: [lesson 19](../19_sixteen_bits/lesson.py): with 16 bits for each number, messages and activations
# become half as large.
