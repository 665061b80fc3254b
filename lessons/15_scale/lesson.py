"""Lesson 15. Scale: what a cluster would do, by formula, beside what was published.

Lecture section: what a cluster would do. Two numbers describe a network: alpha, the seconds of any message,
and beta, the seconds of each byte. First this model is compared with the library's own messages, then with
measurements that were published for hundreds of GPUs; then failures and checkpoints, a planner that chooses a
grid, the share of the peak that is used, and weights gathered ahead. Survey: Ben-Nun and Hoefler 2019,
arXiv:1802.09941.

The slide asks: how fast would training be on hundreds of GPUs, and what limits it?

You need: lessons 05 (alpha and beta, all-reduces), 06 (buckets, ZeRO), 11 (tensor parallelism), 13
(pipelines) and 14 (grids).

Time: about 90 minutes; the program runs for about 5 seconds.

After this you can: compute the efficiency of data parallelism from the speed of a GPU and of its links;
compute the days and the bytes that a large model needs; compute how often to save; tell MFU from HFU; say
which of these numbers are published, computed or guessed.

    python lessons/15_scale/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/15_scale/. The
published numbers, with their sources, are in published.py. In an editor that knows `# %%` cells this file
opens as a notebook.
"""

# %%
import math
import tempfile
import warnings
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import cluster
import drawings
import numpy as np
from minigrad_course.machines.integrated_costs import (
    ALEXNET,
    Network,
    batch_seconds,
    best_rows,
    model_seconds,
)
from minigrad_course.machines.mortal_ranks import run_mortal_ranks
from minigrad_course.machines.prefetch import (
    least_seconds,
    most_held,
    one_ahead_seconds,
    passes_of,
    sequential_seconds,
    step_seconds,
)
from minigrad_course.machines.sharded_step import sharded_step
from minigrad_course.machines.transformer_flops import transformer_flops, utilization
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.checkpoint_interval import daly, waste, young
from minigrad_course.shared.networks import INCEPTION, RESNET50, RESNET101, VGG16
from minigrad_course.shared.style import start_lesson
from minigrad_course.shared.timed_layer import TimedLayer
from published import A100, GOYAL, HOROVOD, MEGATRON, P100, PIPELINES, SELECTIVE, STAGES, V100, ZERO

from backends.checkpoint import Checkpoints
from backends.checkpoint.training_state import gather_state, load_model_state, load_state
from backends.comm import run_ranks
from backends.comm.collectives import rabenseifner_allreduce, ring_allreduce
from backends.comm.collectives.automatic import ALGORITHMS
from backends.comm.collectives.costs import Machine, fastest_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel, Sharded
from backends.data_parallel.elastic import Elastic
from backends.pipeline import SCHEDULES, Costs, Pipeline, simulate
from backends.planner import Hardware, TransformerSizes, best_first
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.figures import save
from minigrad.models import NETS, mlp
from minigrad.optim import Adam
from minigrad.recompute import recomputed
from minigrad.serial import Serial
from minigrad.train import fit

FIGURES = start_lesson("15_scale")

# %% [markdown]
# ## 1. The alpha-beta model, compared with real messages
# A message of n bytes takes alpha + n / B seconds, and a rank sends one message at a time. From this follow
# formulas for whole collectives (`cluster.py`). Before we use them for machines that we do not have, they
# must agree with programs that run. The *virtual cluster* (lesson 05) passes every message; only its clock is
# simulated.

# %%
print("1. The alpha-beta model, compared with real messages")
LINK = Link(latency=20e-6, bandwidth=1.25e9)


def on_virtual_ranks(ranks, allreduce, length):
    """Seconds of an all-reduce of ``length`` float32."""
    cluster = VirtualCluster(ranks, LINK)
    cluster.run(lambda comm: allreduce(comm, np.ones(length, np.float32)))
    return cluster.seconds


LENGTH = 6720  # divides by all numbers of ranks below
for name, allreduce, formula, sizes in (
    ("ring", ring_allreduce, cluster.ring_seconds, (1, 2, 5, 8)),
    ("halving", rabenseifner_allreduce, cluster.halving_seconds, (1, 2, 8)),
):
    for p in sizes:
        actual, expected = on_virtual_ranks(p, allreduce, LENGTH), formula(p, 4 * LENGTH, LINK)
        print(f"   {name:7} on {p} ranks: {1e6 * actual:7.2f} us, by formula {1e6 * expected:7.2f} us")
        assert math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-12), (
            f"{actual} s, formula {expected} s"
        )

# %% [markdown]
# Which all-reduce is the fastest depends on the link and on the size: a ring needs many messages, doubling
# sends many bytes. `minigrad train --allreduce auto` measures the link and takes the algorithm with the least
# cost for each size (`backends/comm/collectives/costs.py`). The virtual cluster agrees with each choice.

# %%
ALIKE = Machine(range(8), LINK, LINK)  # a machine for each rank
for length in (100, 10_000, 1_000_000):
    chosen = fastest_allreduce(4 * length, ALIKE)
    simulated = {
        name: on_virtual_ranks(8, ALGORITHMS[name], length)
        for name in ("doubling", "tree", "ring", "halving")
    }
    print(f"   {4 * length:9,} bytes on 8 ranks: {chosen}, {1e6 * simulated[chosen]:8.1f} us")
    assert simulated[chosen] <= min(simulated.values()) * 1.001, f"{chosen} of {simulated}"

# %% [markdown]
# The bytes must agree, too. `Traced` counts the bytes that each rank sends in a real training step, and they
# must equal the formula exactly. Data parallelism sums all gradients and a few more numbers (losses, and
# which ranks had samples) in one ring. Between two stages of the pipeline 128 numbers a sample go forward and
# back, and at the end each rank sends one loss to each other rank.

# %%
WEIGHTS, SAMPLES = 118_282, 22  # of `mlp`; samples that do not divide by ranks or micro-batches
some = Batch(np.random.default_rng(0).random((SAMPLES, 28, 28), np.float32), np.arange(SAMPLES) % 10)


def sent_in_a_step(ranks, strategy):
    """Bytes sent by each rank in one step of ``mlp``, and its backend."""

    def work(comm):
        traced = Traced(comm)
        backend = strategy(traced)
        model = backend.place(mlp(np.random.default_rng(0)))
        before = traced.record.ledger.sent().bytes
        backend.step(model, some, ops.cross_entropy)
        return traced.record.ledger.sent().bytes - before, backend

    return run_ranks(ranks, work)


# %%
for p in (1, 2, 4, 7):  # the last two do not divide the message
    for rank, (nbytes, backend) in enumerate(sent_in_a_step(p, lambda c: DataParallel(c, ring_allreduce))):
        expected = cluster.ring_bytes(rank, p, WEIGHTS + len(backend.summary))
        assert nbytes == expected, f"rank {rank} of {p}: {nbytes} bytes, formula {expected}"
    print(f"   data parallelism on {p} ranks: {nbytes:9,} bytes sent by rank {p - 1}, as by formula")
for p, schedule in ((2, "gpipe"), (3, "1f1b")):
    per_step = sent_in_a_step(p, lambda c, s=schedule: Pipeline(c, s, micro_batches=4))
    total, losses = sum(nbytes for nbytes, _ in per_step), 8 * p * (p - 1)
    print(f"   {schedule:5} on {p} ranks:            {total:9,} bytes sent by all, as by formula")
    expected = 2 * (p - 1) * 4 * 128 * SAMPLES + losses
    assert total == expected, f"{schedule} on {p} ranks: {total} bytes, formula {expected}"

# %% [markdown]
# Three more things that every such model must satisfy: one rank alone has an efficiency of 1; if messages
# take no time, a pipeline is exactly m p / (m + p - 1) times as fast as one rank; and slower links never
# make anything faster.

# %%
alone = cluster.efficiency(1.0, VGG16, lambda n: cluster.ring_seconds(1, n, LINK), 64 << 20)
nothing = cluster.halving_seconds(1, 1e9, LINK)
assert alone == 1 and nothing == 0, f"one rank: efficiency {alone}, {nothing} s of messages"


def pipeline_speedup(stages, micros, costs):
    """How much faster GPipe, simulated, is than one rank without messages; exact where the costs are."""
    plan = simulate(SCHEDULES["gpipe"].of(stages, micros), costs)
    return sum(plan.busy(rank) for rank in range(stages)) / plan.makespan


for p in (1, 2, 3, 4, 8):
    for m in (1, 4, 7, 32):
        even = Costs(Fraction(1, p), Fraction(2, p))
        speedup, formula = pipeline_speedup(p, m, even), Fraction(m * p, m + p - 1)
        assert speedup == formula, f"{p} stages, {m} micro-batches: {speedup}, formula {formula}"
slower_links = [
    [Link(alpha, 1e9) for alpha in (0.0, 1e-6, 1e-5, 1e-4, 1e-3)],
    [Link(1e-5, bandwidth) for bandwidth in (1e10, 5e9, 1e9, 1e8)],
]
for links in slower_links:
    rings = [lambda n, link=link: cluster.ring_seconds(64, n, link) for link in links]
    speedup = [cluster.efficiency(0.4, VGG16, ring, 64 << 20) for ring in rings]
    assert all(a > b for a, b in pairwise(speedup)), f"slower links, efficiency {speedup}"
speedup = [pipeline_speedup(4, 8, Costs(1, 2, 0, Fraction(i, 4))) for i in range(5)]
assert all(a > b for a, b in pairwise(speedup)), f"slower links, pipeline {speedup}"
print("   one rank: efficiency 1; free messages: m p / (m + p - 1), exactly; slower links: never faster")

# %% [markdown]
# Read: Hockney 1994 (latency and bandwidth), doi:10.1016/S0167-8191(06)80021-9.
#
# ## 2. Data parallelism on hundreds of GPUs
# A step computes forward, then backward. Gradients are summed in buckets (lesson 06): bucket j is ready at
# R_j, its all-reduce takes c_j, and it is done at C_j = max(R_j, C_(j-1)) + c_j. The layers of VGG-16 and the
# ResNets, with their weights, are taken from their papers. *Efficiency* is the speed of n GPUs divided by n
# times the speed of one.
#
# Most numbers below are published. Four are our guesses, which no paper states:
#
# - alpha = 15 microseconds for each message;
# - 10 GB/s between the GPUs of one server (PCI Express) for Horovod, no time at all for Goyal et al.;
# - forward takes a third of a step, backward two thirds, for Horovod (Goyal et al. state their backward);
# - a V100 is 1.4 times as fast as a P100 (part 4).
#
# In two more places a source says less than we need: the speed of ResNet-101, which published.py computes
# from two others, and the places of the weights in Inception-V3, which we spread evenly over its layers.
#
# ### Goyal et al. 2017
# ResNet-50 on servers of 8 GPUs with 50 Gbit/s between them. The servers sum by halving and doubling. A step
# of one server takes 228 ms (from their hour for 90 epochs and their efficiency), 120 of them backward. We
# run the step on 32 virtual servers: each message is really passed, with a thousandth of the bytes on links a
# thousandth as fast.

# %%
print("\n2. Data parallelism on hundreds of GPUs")
ALPHA = 15e-6
counts = [sum(layer.weights for layer in net) for net in (VGG16, RESNET50)]
assert counts == [138_357_544, 25_557_032], f"weights {counts}"
ETHERNET, SERVERS, FORWARD, BACKWARD = Link(ALPHA, 50e9 / 8), 32, 0.108, 0.120
goyal_buckets = cluster.buckets(RESNET50, 25 << 20)  # as large as PyTorch's


def rehearse(servers, link, forward, backward, parts):
    """Seconds of a step whose buckets are summed in the background of virtual ranks."""

    def work(comm):
        background, waits, over = comm.background(), [], 0.0
        comm.compute(forward)
        for nbytes, ready in parts:
            comm.compute((ready - over) * backward)
            over, gradient = ready, np.zeros(nbytes // 4, np.float32)
            waits.append(background.start(lambda comm, g=gradient: rabenseifner_allreduce(comm, g)))
        for wait in waits:
            wait()
        background.close()
        return comm.time()

    return max(VirtualCluster(servers, link).run(work))


def goyal_seconds(servers, parts=goyal_buckets, link=ETHERNET):
    allreduce = lambda n: cluster.halving_seconds(servers, n, link)  # noqa: E731
    return cluster.step_seconds(FORWARD, BACKWARD, parts, allreduce)


# %%
miniature = [(round(nbytes / 1000 / 128) * 128, ready) for nbytes, ready in goyal_buckets]
slow = Link(ALPHA, ETHERNET.bandwidth / 1000)
counts = rehearse(SERVERS, slow, FORWARD, BACKWARD, miniature)
print(
    f"   a step on 32 virtual servers {1e3 * counts:.2f} ms, by formula {1e3 * goyal_seconds(SERVERS):.2f} ms"
)
for expected, bound in ((goyal_seconds(SERVERS, miniature, slow), 1e-9), (goyal_seconds(SERVERS), 1e-3)):
    assert math.isclose(counts, expected, rel_tol=bound), f"{counts:.6f} s, formula {expected:.6f} s"
goyal = {8 * s: goyal_seconds(1) / goyal_seconds(s) for s in (1, 2, 4, 8, 16, 32, 64)}
whole = cluster.halving_seconds(SERVERS, 4 * 25_557_032, ETHERNET)
print(
    f"   all gradients take {1e3 * whole:.0f} ms, backward {1e3 * BACKWARD:.0f} ms: nearly all can be hidden"
)
print(f"   ResNet-50, 256 GPUs: efficiency {goyal[256]:.3f}, published {GOYAL[256]:.2f}")
assert whole < BACKWARD and goyal[256] >= 0.90, f"{whole:.3f} s of messages, efficiency {goyal[256]:.3f}"

# %% [markdown]
# The model is an upper bound: it has no slow ranks, no traffic of other programs and no late input. The
# authors lose 10%; the model explains 3%.
#
# ### Horovod
# Servers of 4 GPUs, 25 Gbit/s, one ring through all GPUs, buckets of 64 MiB. The published points are between
# two extremes: all gradients in one bucket, so that nothing is hidden; and messages without latency.

# %%
NETWORKS = {"Inception-V3": INCEPTION, "ResNet-101": RESNET101, "VGG-16": VGG16}
GPUS = [2**i for i in range(10)]


def horovod(name, gpus, alpha=ALPHA, bucket=64 << 20):
    bandwidth = 25e9 / 8 if gpus > 4 else 10e9  # inside a server: PCI Express
    link = Link(alpha, bandwidth)
    allreduce = lambda n: cluster.ring_seconds(gpus, n, link)  # noqa: E731
    return cluster.efficiency(64 / P100[name], NETWORKS[name], allreduce, bucket)


curves = {name: [horovod(name, p) for p in GPUS] for name in NETWORKS}
lowest = {name: [horovod(name, p, bucket=1 << 40) for p in GPUS] for name in NETWORKS}
highest = {name: [horovod(name, p, alpha=0.0, bucket=1 << 20) for p in GPUS] for name in NETWORKS}
print("   Horovod                GPUs   nothing hidden   model   no latency   published")
for name, points in HOROVOD.items():
    for gpus, true in points.items():
        low, model, high = (curves_of[name][GPUS.index(gpus)] for curves_of in (lowest, curves, highest))
        print(f"   {name:21} {gpus:5} {low:16.2f} {model:7.2f} {high:12.2f} {true:11.2f}")
        assert low < true < high, f"{name}, {gpus} GPUs: published {true}, extremes {low:.2f} and {high:.2f}"
        assert low < model < high, (
            f"{name}, {gpus} GPUs: model {model:.2f}, extremes {low:.2f} and {high:.2f}"
        )

# %%
on_links, computing = 2 * 4 * 138_357_544 / (25e9 / 8), 64 / P100["VGG-16"]
assert [round(on_links, 2), round(computing, 2)] == [0.35, 0.42], (
    f"VGG-16: {on_links:.3f} s, {computing:.3f} s"
)
inception, resnet, vgg = (curves[name][-1] for name in NETWORKS)
curves_of = f"Inception-V3 {inception:.2f}, ResNet-101 {resnet:.2f}, VGG-16 {vgg:.2f}"
assert abs(inception - resnet) < 0.05 and min(inception, resnet) > vgg + 0.1 and 0.55 <= vgg <= 0.85, (
    curves_of
)

# %%
save(drawings.efficiency(GPUS, curves, lowest, highest, HOROVOD, goyal, GOYAL), FIGURES / "efficiency.png")

# %% [markdown]
# VGG-16 has as many weights as five ResNet-50s: its gradients need 0.35 s on the links, and computing takes
# 0.42 s. In a ring of 512 GPUs the latencies are no longer small: each bucket has 1,022 of them. So how much
# of the agreement is due to our guess of alpha?

# %%
ALPHAS = (0.0, 5e-6, 15e-6, 30e-6, 60e-6)
print("   efficiency by alpha (us):    " + "".join(f"{1e6 * alpha:7.0f}" for alpha in ALPHAS) + "  published")
sensitivity = {}
for name, gpus in (("VGG-16", 128), ("VGG-16", 512), ("ResNet-101", 512), ("Inception-V3", 512)):
    values = sensitivity[name, gpus] = [horovod(name, gpus, alpha) for alpha in ALPHAS]
    print(
        f"   {name:13} on {gpus} GPUs{'':5}"
        + "".join(f"{x:7.2f}" for x in values)
        + f"{HOROVOD[name][gpus]:11.2f}"
    )
for i, alpha in enumerate(ALPHAS):  # whatever alpha is, VGG-16 scales worst
    vgg, others = (
        sensitivity["VGG-16", 512][i],
        [sensitivity[name, 512][i] for name in ("ResNet-101", "Inception-V3")],
    )
    assert vgg < min(others), f"alpha {1e6 * alpha:.0f} us: VGG-16 {vgg:.2f}, the others {others}"
by_alpha = sensitivity["VGG-16", 512]
assert round(by_alpha[-1], 2) == 0.40, f"60 us: efficiency {by_alpha[-1]:.3f}, expected 0.40"
assert by_alpha[0] - by_alpha[-1] > 0.2, f"VGG-16, 512 GPUs: {by_alpha[0]:.2f} to {by_alpha[-1]:.2f}"

# %% [markdown]
# For VGG-16 the efficiency depends on alpha: with 60 microseconds the model says 0.40 for 512 GPUs, where
# 0.68 was measured. The order does not depend on alpha: VGG-16 scales worst.
#
# ### Slow links
# ResNet-50 again, on 64 machines. At 1 Gbit/s messages take far longer than computing, unless they are
# compressed: DGC (lesson 10) gathers the largest 0.1% of the gradient, 8 bytes each. Its authors report 0.35
# MB instead of 97.
#
# Read: Goyal et al. 2017, arXiv:1706.02677, section 4; Sergeev and Del Balso 2018 (Horovod),
# arXiv:1802.05799; Li et al. 2020 (PyTorch DDP), arXiv:2006.15704, for the buckets; Lin et al. 2018 (DGC),
# arXiv:1712.01887.

# %%
GIGABIT, computing = Link(ALPHA, 1e9 / 8), 64 / 219  # images, images a second
dense = cluster.ring_seconds(64, 4 * 25_557_032, GIGABIT)
sparse = 63 * GIGABIT.latency + 63 * 8 * 25_557 / GIGABIT.bandwidth
print(
    f"   ResNet-50, 64 machines, 1 Gbit/s: dense {dense:.2f} s, DGC {sparse:.2f} s, "
    f"computing {computing:.2f} s"
)
assert 1.5 < dense < 1.7 and dense > 10 * sparse, f"dense {dense:.2f} s, DGC {sparse:.2f} s"

# %% [markdown]
# ## 3. Pipelines
# K stages with M micro-batches are K M / (M + K - 1) times as fast as one machine (lesson 13). We compare
# this with published speeds, relative to 2 stages with 1 micro-batch (a pipeline without overlap, as fast as
# one machine). A *Transformer* is a network for text: a stack of equal layers, each of attention and two
# linear layers (Vaswani et al. 2017, arXiv:1706.03762; lesson 17). AmoebaNet is a convolutional network whose
# layers are very unequal.

# %%
print("\n3. Pipelines: times as fast as one GPU, measured (and by formula)")
print(f"   {'stages':31}" + "".join(f"{k:5}{'':8}" for k in STAGES).rstrip())
for name, rows in PIPELINES.items():
    for m, speeds in rows.items():
        ideal = [pipeline_speedup(k, m, Costs()) for k in STAGES]
        cells = "".join(f"{s:5.2f} ({i:.2f}) " for s, i in zip(speeds, ideal, strict=True))
        above = " above" if any(s > 1.001 * i for s, i in zip(speeds, ideal, strict=True)) else ""
        print(f"   {name:23} M = {m:2}:{cells}{above}".rstrip())
        formula = [k * m / (m + k - 1) for k in STAGES]
        assert np.allclose(ideal, formula), f"simulated {ideal}, formula {formula}"
        if m == 32:
            assert all(s < i for s, i in zip(speeds, ideal, strict=True)), (
                f"published {speeds}, bound {ideal}"
            )
for measured, k in zip(PIPELINES["GPipe, Transformer-48"][32], STAGES, strict=True):
    bound = pipeline_speedup(k, 32, Costs())
    assert 0.9 < measured / bound < 1, f"{k} stages: published {measured}, bound {bound:.2f}"

# %%
save(drawings.pipelines(PIPELINES, STAGES), FIGURES / "pipelines.png")

# %% [markdown]
# With 32 micro-batches the Transformer, of equal layers, reaches 93 to 96% of the formula. We assert nothing
# about its rows with 1 and 4 micro-batches: they are *above* the formula, since their batch sizes differ from
# the baseline's, and recomputation is partly hidden.
#
# AmoebaNet is far below. If unequal stages are the only reason (lesson 13, "Unequal layers"), how slow is the
# slowest? A pipeline takes sum t + (M - 1) max t, so for a speed of S the slowest stage takes K (M / S - 1)
# / (M - 1) times the mean.
#
# Read: Huang et al. 2019 (GPipe), arXiv:1811.06965, section 3; Kim et al. 2020 (torchgpipe),
# arXiv:2004.09910.

# %%
for name in ("GPipe, AmoebaNet-D", "torchgpipe, AmoebaNet-D"):
    for k, speed in zip(STAGES[1:], PIPELINES[name][32][1:], strict=True):
        slowest = k * (32 / speed - 1) / 31
        stages = [slowest, *[(k - slowest) / (k - 1)] * (k - 1)]
        speedup = pipeline_speedup(k, 32, Costs(stages, [2 * t for t in stages]))
        print(f"   {name:24} {k} stages {speed:.2f}: as if the slowest took {slowest:.2f} means")
        assert math.isclose(speedup, speed) and slowest > 1, (
            f"{speedup:.3f}, published {speed}; slowest {slowest:.2f}"
        )

# %% [markdown]
# ## 4. PipeDream's choice of stages and workers
# A stage may have several workers, which share its mini-batches and sum its gradients. `cluster.plan` tries
# every way to cut the layers and to distribute the workers, and takes the plan whose slowest part is fastest.
# There are 16 GPUs with links of 10 Gbit/s; the time of a layer is proportional to its multiplications.

# %%
print("\n4. PipeDream's choice: 16 workers, 10 Gbit/s; GPUs as fast as a V100, half and twice as fast")
SPEED = 10e9 / 8
for name, net, batch in (("VGG-16", VGG16, 64), ("ResNet-50", RESNET50, 128)):
    for faster in (0.5, 1, 2):  # the choice must not depend on our guess for a V100
        seconds = batch / V100[name] / faster
        each, stages = cluster.plan(net, 16, seconds, batch, SPEED)
        gradients = 2 * 15 / 16 * 4 * sum(layer.weights for layer in net) / SPEED
        hidden, exposed = max(seconds, gradients) / 16 / each, (seconds + gradients) / 16 / each
        cuts = [(net[end - 1].name, workers) for end, workers in stages]
        shown = ", ".join(f"{workers} up to {layer}" for layer, workers in cuts)
        print(f"   {name:9} x {faster:3}: {shown};", end="")
        print(f" {hidden:.1f}-{exposed:.1f} x data parallel")
        published = {"VGG-16": [("conv 5.3", 15), ("linear 3", 1)], "ResNet-50": [("linear", 16)]}[name]
        assert cuts == published, f"{name}: {cuts}, published {published}"

linear = [layer for layer in VGG16 if layer.name.startswith("linear")]
shares = [sum(layer[i] for layer in linear) / sum(layer[i] for layer in VGG16) for i in (1, 2)]
assert [round(100 * share) for share in shares] == [89, 1], f"linear layers: weights and work {shares}"

# %% [markdown]
# These are the published choices: data parallelism for ResNet-50, and 15-1 for VGG-16. There 15 workers share
# the convolutions, which have 11% of the weights, and one worker has all linear layers, with 89% of the
# weights and 1% of the work. The authors measured 5.28 times the speed of data parallelism. This factor
# depends on how much their baseline hides, and on its all-reduce, so we assert only the choice.
#
# Read: Narayanan et al. 2019 (PipeDream), doi:10.1145/3341301.3359646, section 3.1 and table 1.
#
# ## 5. Batch and model together
# We evaluate the formula of lesson 14 for AlexNet with a batch of 2,048: how does the best Pr (the ranks that
# share the model) change as the cluster grows? The formula is published (Gholami et al. 2018); all seconds in
# this table are our evaluation of it.

# %%
print("\n5. Batch and model together: AlexNet, a batch of 2,048")
print("   seconds of messages in a step; Pr ranks share the model")
CRAY, BATCH, RANKS = Network(alpha=2e-6, beta=4 / 6e9), 2048, [2**i for i in range(3, 14)]
LINEAR = [False] * 5 + [True] * 3
shared = [p for p in RANKS if p <= BATCH]  # a rank without a sample has nothing to do
ways = {
    "batch only": [batch_seconds(CRAY, ALEXNET, p, BATCH) for p in shared],
    "model only": [model_seconds(CRAY, ALEXNET, p, BATCH) for p in RANKS],
    "both, all layers alike": [best_rows(CRAY, ALEXNET, p, BATCH) for p in RANKS],
    "both, linear layers only": [best_rows(CRAY, ALEXNET, p, BATCH, only=LINEAR) for p in shared],
}
print("   ranks   batch only   model only     both      linear layers only")
for i, p in enumerate(RANKS):
    batch, linear = f"{'-':>12}", f"{'-':>8}"
    if p in shared:
        batch, (pr, least) = f"{ways['batch only'][i]:12.4f}", ways["both, linear layers only"][i]
        linear = f"{least:8.4f} (Pr = {pr})"
    rows, least = ways["both, all layers alike"][i]
    print(f"   {p:5} {batch} {ways['model only'][i]:12.4f} {least:8.4f} (Pr = {rows:2})   {linear}")
    pure = [ways["model only"][i], *ways["batch only"][i : i + 1]]
    one_way = min(pure)
    assert least <= one_way * (1 + 1e-12), f"{p} ranks: both {least:.4f} s, one way {one_way:.4f} s"

# %%
at = RANKS.index(512)
pure, (rows, both), (pr, linear) = (ways[k][at] for k in ways if k != "model only")
actual = [round(pure, 4), rows, round(both, 4), pr, round(linear, 4)]
by_lesson_14 = [0.0833, 4, 0.0367, 32, 0.0112]
assert actual == by_lesson_14, f"at 512 ranks {actual}, in lesson 14 {by_lesson_14}"
rows, fewest = ways["both, all layers alike"][-1][0], RANKS[-1] // BATCH
assert rows >= fewest, f"{RANKS[-1]} ranks: Pr = {rows}, at least {fewest}"

# %%
save(drawings.split(RANKS, ways), FIGURES / "split.png")

# %% [markdown]
# On 512 ranks messages take 0.083 s if ranks share the batch alone, 0.037 s with Pr = 4 (2.3 times less), and
# 0.011 s if only the linear layers are split (7.4 times less). And 2,048 samples cannot occupy 4,096 ranks:
# with more ranks Pr must grow, or images must be split too (lesson 14).
#
# Read: Gholami et al. 2018, arXiv:1712.04432.
#
# ## 6. A trillion parameters
# A *token* is what a language model reads and predicts, a word or a piece of one; a batch has many sequences
# of (here) 2,048 tokens. Megatron-LM trains Transformers. Its published table has, for each model, the number
# of parameters and the speed of each GPU and of all GPUs. We check that the parameters follow from the sizes
# by formula, and that both speeds agree. With T tokens, P parameters and X operations a second on each of n
# GPUs, training takes
#
#     8 T P / (n X) seconds
#
# The 8 is 2 x (1 + 1 + 2). For each token each parameter is used in a multiplication and an addition: 2. This
# happens once in forward; once more in the forward of recomputation (lesson 03); and twice in backward, for
# the gradient of the input and for the gradient of the weight.
#
# In the output "64 GPUs = 2 x  1 x 32" means tensor x pipe x data: 2 ranks share each layer (lesson 11), 1
# stage (lesson 13), 32 copies that share the batch (lesson 06).

# %%
print("\n6. Megatron-LM: billion parameters, petaFLOP/s, seconds an iteration")
for parameters, hidden, layers, tensor, pipe, gpus, batch, each, together in MEGATRON:
    billions = cluster.transformer_parameters(layers, hidden) / 1e9
    iteration = transformer_flops(layers, hidden, batch).recomputed / (together * 1e15)
    print(
        f"   {billions:6.1f} (published {parameters:6.1f}) {gpus:4} GPUs = {tensor} x {pipe:2} x "
        f"{gpus // tensor // pipe:2} {gpus * each / 1e3:5.1f} ({together:5.1f}) PF/s {iteration:5.1f} s"
    )
    assert abs(billions - parameters) < 0.1, f"{billions:.2f} billion parameters, published {parameters}"
    assert gpus % (tensor * pipe) == 0, f"{gpus} GPUs, {tensor} x {pipe}"
    speed = gpus * each / 1e3  # both are rounded
    assert abs(speed - together) <= 0.5 * gpus / 1e3 + 0.05, f"{speed:.1f} PF/s, published {together}"
assert round(iteration) == 102, f"{iteration:.1f} s an iteration, expected 102"

# %%
operations = 2 * (1 + 1 + 2)  # a multiplication and an addition; forward, forward again, backward
for tokens, parameters, gpus, each, published in (
    (450e9, 1.008e12, 3072, 163e12, 84),
    (300e9, 175e9, 1024, 140e12, 34),
):
    days = operations * tokens * parameters / (gpus * each) / 86_400
    print(
        f"   {parameters / 1e9:5.0f} billion, {tokens / 1e9:.0f} billion tokens: "
        f"{days:.1f} days (published {published})"
    )
    assert abs(days - published) < 1, f"{days:.1f} days, published {published}"

# %% [markdown]
# ### Memory
# In *mixed precision* (lesson 19) forward and backward compute with numbers of 16 bits, and the optimizer
# keeps numbers of 32 bits. With Adam each parameter needs 16 bytes = 2 + 2 + 4 + 4 + 4: the weight and its
# gradient in 16 bits; the weight, the mean of the gradients and the mean of their squares in 32 bits. ZeRO
# (lesson 06) shares first the last three, the optimizer's state, then also the gradients, then also the
# weights. 7.5 billion parameters:

# %%
for stage, published in enumerate(ZERO):
    gigabytes = cluster.zero_bytes(7.5e9, 64, stage) / 1e9
    print(f"   ZeRO stage {stage}: {gigabytes:5.1f} GB on each of 64 GPUs (published {published})")
    assert abs(gigabytes - published) < 0.05, f"stage {stage}: {gigabytes:.2f} GB, published {published}"
    alone = cluster.zero_bytes(7.5e9, 1, stage) / 7.5e9
    assert alone == 2 + 2 + 4 + 4 + 4, f"stage {stage}: {alone} bytes a parameter on one GPU, expected 16"

# %%
save(drawings.zero(cluster.zero_bytes, ZERO), FIGURES / "zero.png")

# %% [markdown]
# Read: Narayanan et al. 2021 (Megatron-LM), arXiv:2104.04473, sections 3 and 5 and table 1; Rajbhandari et
# al. 2019 (ZeRO), arXiv:1910.02054; Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740.
#
# ## 7. Machines fail
# With thousands of GPUs something fails every few hours. A *checkpoint* is a copy of the training state on a
# disk. If you save often, you wait for the disk; if you save rarely, a failure loses much work. With C
# seconds to save and a mean of M seconds between failures, Young's best interval is sqrt(2 C M), and Daly's
# is a little shorter. We draw 200,000 times between two failures: each holds as many whole intervals as fit,
# and the rest is lost.

# %%
print("\n7. Machines fail: 60 s to save, a failure every 3 hours")
SAVE, FAILURES = 60.0, 10_800.0
best = young(SAVE, FAILURES)
lives = np.random.default_rng(0).exponential(FAILURES, 200_000)
intervals = best * np.geomspace(0.2, 5, 25)
simulated = np.array([1 - np.floor(lives / (t + SAVE)).sum() * t / lives.sum() for t in intervals])
formula = waste(intervals, SAVE, FAILURES)
best_interval = intervals[simulated.argmin()]
print(f"   Young {best:.1f} s, Daly {daly(SAVE, FAILURES):.1f} s, simulated about {best_interval:.0f} s")
lost, early, late = (waste(t, SAVE, FAILURES) for t in (best, best / 3, 3 * best))
print(f"   lost at Young's {lost:.1%}, at a third of it {early:.1%}, at three times {late:.1%}")
expected = [round(best, 1), round(daly(SAVE, FAILURES), 1), round(young(240, 21_600) / 60, 1)]
assert expected == [1138.4, 1098.8, 53.7], expected
off = abs(simulated / formula - 1).max()
assert off <= 0.02, f"simulated and formula differ by {off:.1%}, allowed 2%"
assert abs(best_interval / best - 1) <= 0.15, f"simulated best {best_interval:.0f} s, Young {best:.0f} s"
assert formula.argmin() == 12, f"least at {intervals[formula.argmin()]:.0f} s, Young {best:.0f} s"
assert 1.4 < early / lost < late / lost < 1.67, f"{early / lost:.2f} and {late / lost:.2f} times the least"

# %%
save(
    drawings.checkpoints(intervals, simulated, formula, best, daly(SAVE, FAILURES)),
    FIGURES / "checkpoints.png",
)

# %% [markdown]
# The minimum is flat: an interval three times too short or too long costs 1.5 or 1.6 times the least (to
# first order (3 + 1/3) / 2). So a rough guess of M is enough.
#
# Read: Young 1974, doi:10.1145/361147.361115; Daly 2006, doi:10.1016/j.future.2004.11.016.

# %% [markdown]
# ## 8. Atomic checkpoints with checksums
# Power can fail while a file is written, and a disk can return wrong bits. So each rank writes its file into
# a folder with a temporary name and waits until the bytes are on the disk. Then rank 0 writes a manifest with
# all checksums. Last, the folder gets its name, in one operation, so a reader sees the whole checkpoint or
# none. The files together hold what one serial machine would hold, so any number of ranks can continue.
#
# Three ranks train 6 steps with ZeRO stage 2, and save after step 2 and after step 4. Then one bit of a
# newest file changes. One rank alone resumes: it sees the wrong checksum, takes the checkpoint before, and
# continues.

# %%
print("\n8. Atomic checkpoints with checksums")
rng = np.random.default_rng(15)
samples = [Batch(rng.normal(size=(12, 1, 28, 28)), rng.integers(0, 10, 12)) for _ in range(6)]


def trained(comm, folder, resume):
    """Step and model from which this rank's training began, and the weights at its end."""
    files, backend = Checkpoints(folder, comm), Sharded(comm, stage=2)
    model = mlp(np.random.default_rng(0)).to(dtype=np.float64)
    generation, arrays, skipped = files.newest() if resume else (None, {}, [])
    if generation is not None:
        load_model_state(model, arrays)
    model = backend.place(model)
    optimizer = Adam(model.parameters(), 0.01, eps=1e-3)
    if generation is not None:
        load_state(comm, backend, model, optimizer, arrays, generation.facts, same_layout=False)
    start = 0 if generation is None else generation.step
    for step, batch in enumerate(samples[start:], start + 1):
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        backend.update(model, optimizer)
        if not resume and step in (2, 4):
            files.write(step, *gather_state(comm, backend, model, optimizer))
    files.wait()
    return start, skipped, backend.state.full_parameters(model)


# %%
with tempfile.TemporaryDirectory() as folder:
    *_, whole = run_ranks(3, lambda comm: trained(comm, Path(folder), resume=False))[0]
    damaged = Path(folder, "step-00000004", "rank-1.safetensors")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    start, skipped, resumed = run_ranks(1, lambda comm: trained(comm, Path(folder), resume=True))[0]
print(
    f"   one bit of {damaged.name} at step 4 changed: {len(skipped)} checkpoint skipped, "
    f"resumed at step {start}"
)
assert start == 2, f"resumed at step {start}, expected 2: the checkpoint of step 4 has a wrong bit"
furthest = max(float(np.abs(whole[name] - resumed[name]).max()) for name in whole)
print(f"   three ranks to the end, and one rank from step 2: weights within {furthest:.0e}")
assert furthest < 1e-12, f"the weights differ by {furthest:.1e}, allowed 1e-12"

# %% [markdown]
# `minigrad train --checkpoint DIR` writes such folders while it trains, `--resume DIR` continues from them,
# and `minigrad checkpoint show DIR` lists what is in them. Ctrl-C, or a scheduler's signal, stops such a
# training after a step on which all ranks agree (`backends/checkpoint/stop_agreement.py`), and saves that
# step. With `--restarts 3` it starts again when a rank has died (`backends/launch/restarts.py`). Lesson 16
# tries every moment of a crash.
#
# Read: Pillai et al. 2014, "All file systems are not created equal" (OSDI); PyTorch's issue 76395, which asks
# for this order of writes.

# %% [markdown]
# ## 9. A rank dies, and the others continue
# In data parallelism every rank holds the whole model. So if one rank dies in the middle of a step, the
# others need no checkpoint: they agree that no rank has applied the step, leave the dead rank out, share its
# samples and take the step again. The samples of a step depend on the seed and the epoch alone, so the
# training still equals serial training. Here four ranks are started, and the last one waits as a spare. Rank
# 1 dies after some messages, and the spare receives weights, Adam's state and the number of the step from
# rank 0.

# %%
print("\n9. A rank dies, and the others continue")
data = Batch(rng.normal(size=(60, 1, 28, 28)), rng.integers(0, 10, 60))


def train_on(comm=None):
    """Losses, weights, and the steps in which ranks died and joined."""
    backend = Serial() if comm is None else Elastic(comm, spares=1)
    model = backend.place(mlp(np.random.default_rng(0)).to(dtype=np.float64))
    optimizer = Adam(model.parameters(), 0.01, eps=1e-3)
    history = fit(model, optimizer, ops.cross_entropy, data, backend=backend, epochs=2, batch_size=10)
    return history.losses, backend.state.full_parameters(model), backend.declaration.figures(backend)


losses, weights, _ = train_on()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which says what the next lines print
    on_ranks = run_mortal_ranks(4, train_on, {1: 60}, seed=0)
alive = [result for result in on_ranks if result is not None]
death, arrival = alive[0][2]["lost"]["1"]["steps"], alive[0][2]["arrivals"]["3"]
print(f"   of {len(losses)} steps, rank 1 died in step {death}, rank 3 joined in step {arrival}")
assert len(alive) == 3 and 0 < death < len(losses), f"{len(alive)} ranks live, death {death}; expected 3"
furthest = max(float(np.abs(weights[name] - result[1][name]).max()) for result in alive for name in weights)
print(f"   weights of the {len(alive)} ranks that live and of one serial machine: within {furthest:.0e}")
assert furthest < 1e-12, f"the weights differ by {furthest:.1e}, allowed 1e-12"

# %% [markdown]
# `minigrad train --data 4 --strategy elastic --spares 1` does this with processes of Open MPI, whose
# extension ULFM (user-level failure mitigation) has the three calls that it needs: revoke, agree, shrink.
#
# Read: Bland et al. 2013, doi:10.1177/1094342013488238.

# %% [markdown]
# ## 10. A planner chooses the grid
# Samples, layers, tokens and neurons can be shared at the same time: 16 ranks make 35 grids of four axes, and
# some axes have several forms (lesson 17: tokens by a ring, or by all-to-alls as in Ulysses). Which grid
# trains fastest? A *planner* (`backends/planner/planner.py`) computes for each grid what a rank computes,
# sends and holds, by formulas that tests compare with counted bytes and operations. It simulates the
# pipeline, drops the grids that do not fit into memory, and sorts the others by the time of a step.
#
# Here are 16 ranks of 100 TFLOP/s and 24 GB, and a transformer with 1.3 billion parameters in float32: once
# with 64 rows of 2,048 symbols in a step, once with 4 rows of 32,768, each on a fast and a slow link. (The
# speeds and the memory are an example of ours.)

# %%
print("\n10. A planner chooses the grid: data x pipe x sequence x model, 16 ranks")
print(f"   {'':41}step  bound by sent GB  held GB")
LINKS = {"50 GB/s": Link(5e-6, 50e9), "1.25 GB/s": Link(20e-6, 1.25e9)}
best = {}
for rows, length in ((64, 2048), (4, 32_768)):
    net = TransformerSizes(symbols=51_200, length=length, width=2048, heads=16, blocks=24)
    for name, link in LINKS.items():
        hardware = Hardware(flops=100e12, link=link, memory=24e9)
        plans = best_first(net, 16, hardware, rows, most=1000)
        best[rows, name] = first = plans.fitting[0]
        grid = " x ".join(map(str, first.layout.shape))
        form = first.layout.form if first.layout.sequence > 1 else ""
        print(
            f"   {rows:2} rows, {name:>9}: {grid} {form:7}{first.seconds:6.1f} s  {first.bound:9}"
            f"{sum(first.sent.values()) / 1e9:6.1f}{first.memory.total / 1e9:9.1f}"
        )
        shared = min(e.layout.pipe * e.layout.model for e in plans.fitting)
        assert shared > 1, "a rank with the whole model fits into 24 GB; parameters and Adam take 21 GB"
        assert len(plans.over) > len(plans.fitting), f"{len(plans.fitting)} fit, {len(plans.over)} do not"

# %%
short, long = ([best[rows, name] for name in LINKS] for rows in (64, 4))
assert all(e.layout.sequence == 1 for e in short), "64 rows need no sequence axis"
assert [e.layout.form for e in long] == ["ring", "ulysses"], f"forms {[e.layout.form for e in long]}"
for fast, slow in (short, long):
    less, more = (sum(e.sent.values()) for e in (slow, fast))
    assert less < more, f"{less:,} bytes on the slow link, {more:,} on the fast one"
idle = [e.bubble for e in short]
assert idle[0] < idle[1], f"idle {idle[0]:.0%} on fast links, {idle[1]:.0%} on slow ones"

# %% [markdown]
# No rank can hold the whole model and compute with it, so memory decides first: layers or neurons must be
# shared. With many rows, the other axis is the batch. A pipeline sends least, so on a slow link it is deeper,
# although its ranks are idle for longer. Four long rows leave most ranks without a sample, so ranks must
# share the tokens of a row. On a fast link the messages of a ring are hidden by the products of attention,
# however many bytes it sends. On a slow link an all-to-all over heads is better, which sends fewer bytes; but
# there most of a step is spent in sums over the model axis.
#
# `minigrad plan --net transformer --ranks 8 --memory 24GB` (`backends/cli/plan_command.py`) prints such a
# table, and the command that trains in the first grid; with `--measure` it runs the best three on threads.
# An estimate counts only products and messages, and assumes that all ranks are equally fast.
#
# Read: Narayanan et al. 2021, arXiv:2104.04473, section 3, on how the axes share a cluster; Zheng et al. 2022
# (Alpa), arXiv:2201.12023, which also searches for the split of each operation.

# %% [markdown]
# ## 11. The share of the peak that is used: MFU and HFU
# In the table of part 6 each GPU does 135 to 163 TFLOP/s. By its data sheet an A100 can do 312 in 16 bits.
# But which operations are counted? With B rows of s tokens, l blocks of width h and V symbols, one forward
# takes
#
#     24 B s l h^2    products with the 12 h^2 weights of each block, 2 for each weight and token
#      4 B s^2 l h    the core of attention: scores of queries and keys, and means of the values
#      2 B s h V      scores of all symbols
#
# and backward twice as many. So a step *needs* three times the sum. A step with recomputation (lesson 03)
# *executes* the forward of all blocks once more:
#
#     needed      72 B s l h^2 (1 + s / 6 h + V / 12 l h)
#     executed    96 B s l h^2 (1 + s / 6 h + V / 16 l h)      Narayanan et al. 2021, equation 3
#
# Both can be divided by what the GPUs could do at their peak in the same time. For the operations that are
# needed the quotient is called *MFU*, model FLOPs utilization; for those that are executed *HFU*, hardware
# FLOPs utilization. Only MFU says how fast the model is trained. Recomputation keeps the GPUs busy, so HFU
# stays high, while MFU falls.
#
# First we check the count on a transformer of this library, by the weights of its matrices and by the
# planner. A causal mask (each token sees only earlier ones) leaves out s (s - 1) / 2 of the s^2 pairs, and
# the paper counts these too. *6 N D* is the usual rule for N weights and D tokens. It is exactly everything
# but the core, if N are all weights that multiply activations.

# %%
print("\n11. The share of the peak that is used")
TINY = {"symbols": 48, "length": 32, "width": 24, "heads": 4, "blocks": 3}
net, B, pairs = NETS["transformer"].resized(**TINY).build(np.random.default_rng(0)), 5, 32 * 31 // 2
matrices = {name: p.size for name, p in net.named_parameters().items() if p.ndim == 2}
del matrices["0.position"]  # which is added, not multiplied
flops, N, D = transformer_flops(3, 24, B, symbols=48, length=32), sum(matrices.values()), B * 32
by_planner = B * sum(TransformerSizes(**TINY).work())
print(f"   needed {flops.model:,} operations: 6 N D {6 * N * D:,}, core of attention {3 * flops.core:,}")
assert flops.model == 6 * N * D + 3 * flops.core, f"{flops.model} operations, {6 * N * D + 3 * flops.core}"
masked = 4 * B * 3 * 24 * pairs
assert flops.model == 3 * (by_planner + masked), f"{flops.model}, the planner {3 * (by_planner + masked)}"


# %%
def seconds_of_a_step(again):
    """Seconds of a step of four layers; each layer takes 1 s forward and 2 s backward."""

    def work(comm):
        traced = Traced(comm)
        model = nn.Sequential(*(TimedLayer(nn.Linear(3, 3, rng=0), traced, 1.0) for _ in range(4)))
        model = recomputed(model, 4) if again else model
        Serial().step(model, Batch(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)), ops.mse)
        return comm.time()

    return VirtualCluster(1, LINK).run(work)[0]


once, twice = seconds_of_a_step(False), seconds_of_a_step(True)
print(f"   four layers of 1 s: a step takes {once:g} s, with recomputation {twice:g} s")
assert (once, twice) == (12, 16), f"{once} and {twice} s, expected 4 x (1 + 2) and 4 x (1 + 1 + 2)"

# %% [markdown]
# Now the published table again. Its speeds count the operations that are executed, so a speed divided by 312
# is an HFU.

# %%
print("   billion parameters   TFLOP/s     HFU     MFU   share of 6 N D")
used = {}
for parameters, hidden, layers, _, _, gpus, batch, each, _ in MEGATRON:
    flops = transformer_flops(layers, hidden, batch)
    seconds = flops.recomputed / (gpus * each * 1e12)
    hfu, mfu = (utilization(f, seconds, gpus, A100) for f in (flops.recomputed, flops.model))
    used[f"{parameters:,g}"] = mfu, hfu
    six = 6 * (12 * layers * hidden**2 + 51_200 * hidden) * batch * 2048 / flops.model
    print(f"   {parameters:18,.1f} {each:9} {hfu:7.1%} {mfu:7.1%} {six:10.1%}")
    assert math.isclose(hfu, each * 1e12 / A100), f"HFU {hfu:.3f}, {each} of 312 TFLOP/s"
    assert 3 / 4 <= mfu / hfu < 0.8, f"MFU {mfu:.3f}, HFU {hfu:.3f}: a quarter is computed again, or less"
smallest, largest = list(used.values())[0], list(used.values())[-1]
assert round(100 * largest[1]) == 52 and round(100 * largest[0]) == 39, f"MFU and HFU {largest}"

# %%
save(drawings.utilization(used), FIGURES / "utilization.png")

# %% [markdown]
# The largest model reaches an HFU of 52 % and an MFU of 39 %, since a quarter of the operations were done for
# the second time, to save memory. The rest is lost in bubbles (lesson 13), in sums between ranks, in
# operations that are not products of matrices, and in products that do not reach the peak (lesson 04).
#
# A year later Megatron-LM recomputed only the *core*, which holds much of the memory and takes few of the
# operations. Then HFU and MFU are nearly equal. By our count one more forward of the core adds 0.5 % to a
# step of 530 billion weights, and 0.4 % to one of a trillion. The published numbers differ by more, 1.8 % and
# 1.2 %. That is as if all of the core, backward too, were counted twice. So for each utilization, ask which
# operations were counted.

# %%
for name, (layers, hidden, mfu, hfu) in SELECTIVE.items():
    flops = transformer_flops(layers, hidden, 1)
    once, whole = (1 + times * flops.core / flops.model for times in (1, 3))
    print(f"   {name:11}: MFU {mfu:.1%}, HFU {hfu:.1%}, {hfu / mfu:.3f} times; our count {once:.3f}")
    low, high = (hfu - 5e-4) / (mfu + 5e-4), (hfu + 5e-4) / (mfu - 5e-4)  # as they are rounded
    assert once < low < whole < high, f"{name}: {low:.4f} to {high:.4f}, core once {once:.4f}, {whole:.4f}"

# %% [markdown]
# Read: Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, on MFU; Narayanan et al. 2021, arXiv:2104.04473,
# section 5; Korthikanti et al. 2022, arXiv:2205.05198, on recomputing less.
#
# ## 12. Weights gathered ahead: memory against time
# In stage 3 of ZeRO (lesson 06), which PyTorch calls FSDP, no rank has all weights. It gathers the weights of
# a layer, computes, and frees them. In backward it does so again, and then it reduce-scatters the gradients.
# If a rank gathers a layer only when it needs it, it has to wait for each layer. So it starts earlier: while
# it computes layer i, the weights of layer i + 1 are on their way. This is called *prefetch*. Each layer that
# is on its way needs memory, so how many layers ahead are best?
#
# Pass i gathers for g_i seconds, computes for c_i, and reduces for r_i (0 in forward). A rank computes one
# layer at a time. Its link carries one collective at a time, in the order in which they were started.
#
# - prefetch 0: nothing is hidden, and all times add up: the sum of g_i + c_i + r_i.
# - prefetch 1: while pass i computes, the link carries the reduction before it and the gathering after it:
#   g_1 + the sum of max(c_i, r_(i-1) + g_(i+1)) + r_n.
# - any prefetch takes at least g_1 + the sum of c_i + r_n, and at least the sum of g_i + r_i.
#
# We run the library's own stage 3, `Sharded(stage=3, overlap=True, prefetch=...)`, on four virtual ranks. The
# model is three blocks of a transformer, in which a feed-forward has twice the weights of an attention. It
# takes 2 ms to gather an attention and 4 ms to gather a feed-forward, and as long to compute their forward.

# %%
print("\n12. Weights gathered ahead: the real stage 3 on four virtual ranks, three blocks")
BLOCKS, NARROW = [(800, 2e-3), (1600, 4e-3)] * 3, Link(0.0, 1.2e6)  # a thousandth of real layers and links
gathering = [(3 * 4 * numbers / 4 / NARROW.bandwidth, seconds) for numbers, seconds in BLOCKS]
passes, sizes = passes_of(gathering), [numbers for numbers, _ in BLOCKS]
computing, steps = sum(one.compute for one in passes), {}
print(f"   {1e3 * computing:.0f} ms are computing")
print("   prefetch   ms a step   by formula   ms of waiting   weights held")
for prefetch in range(5):
    step = steps[prefetch] = sharded_step(BLOCKS, prefetch, NARROW)
    seconds, most = step_seconds(passes, prefetch), most_held(passes, sizes, prefetch)
    waiting = step.seconds - computing
    print(
        f"   {prefetch:8} {1e3 * step.seconds:11.1f} {1e3 * seconds:12.1f} {1e3 * waiting:15.1f} {most:14,}"
    )
    assert math.isclose(step.seconds, seconds, rel_tol=1e-9), f"{step.seconds} s, formula {seconds} s"
    assert step.most_held == most, f"prefetch {prefetch}: {step.most_held} numbers held, formula {most}"
    assert step.seconds >= least_seconds(passes) - 1e-12, f"{step.seconds} s, bound {least_seconds(passes)}"

# %%
for prefetch, formula in enumerate((sequential_seconds(passes), one_ahead_seconds(passes))):
    ours = steps[prefetch].seconds
    assert math.isclose(ours, formula, rel_tol=1e-9), f"prefetch {prefetch}: {ours} s, formula {formula} s"
milliseconds = [round(1e3 * step.seconds) for step in steps.values()]
assert milliseconds == [108, 72, 60, 62, 66], f"{milliseconds} ms, expected the least with prefetch 2"

# %%
save(drawings.prefetch(steps), FIGURES / "prefetch.png")

# %% [markdown]
# Prefetch 1 hides two thirds of the waiting. It cannot hide all of it, since a small layer computes for a
# short time, in which only half of the large layer after it arrives. Then, while the large layer computes,
# the link has nothing to do. Prefetch 2 starts the large gathering there. It is the best here, and holds 800
# weights more than prefetch 1. Prefetch 3 and 4 hold still more and are *slower*: in backward they put
# gatherings into the queue before reductions, so the last reductions end later. If all layers are equal,
# prefetch 2 gains nothing over prefetch 1:

# %%
equal = passes_of([(3, 3)] * 6)
times = [step_seconds(equal, prefetch) for prefetch in range(4)]
print(f"   six equal layers of 3 ms: {times} ms with prefetch 0 to 3")
assert times[0] == 108 and times[1] == times[2] == least_seconds(equal) == 60, f"{times} ms, bound 60"

# %% [markdown]
# Read: Zhao et al. 2023 (PyTorch FSDP), arXiv:2304.11277, on prefetching; "FSDP notes", docs.pytorch.org;
# Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 7.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - On equal links each all-reduce takes exactly the seconds of its formula, on a virtual clock that real
#   messages advance: [tests](../../tests/minigrad_course/machines/test_virtual_times.py); no algorithm is
#   much faster than the one that `auto` chooses: [tests](../../tests/backends/test_cluster.py). The counted
#   bytes of part 1 and the rehearsed step of part 2 are proved only here, for the cases shown.
# - The planner's bytes, operations and memory equal the counts of ranks that run, for drawn transformers and
#   grids: [tests](../../tests/backends/planner/test_planner.py).
# - A count of operations equals the weights, the planner and the paper, exactly:
#   [tests](../../tests/minigrad_course/machines/test_transformer_flops.py); the time and the memory of
#   prefetch equal the ones of real ranks, for drawn layers:
#   [tests](../../tests/minigrad_course/machines/test_prefetch.py).
# - Whichever rank dies, and whenever, elastic training equals serial training, and every sample counts once:
#   [tests](../../tests/backends/data_parallel/test_elastic.py). Checkpoints are tried in lesson 16.
#
# Not proved: that a cluster takes these seconds. Of the published measurements the lesson asserts only that
# they are inside the model's extremes (Horovod), or below its bound (pipelines, Goyal et al.). Four numbers
# of part 2 are guesses, and all seconds of part 5 are our evaluation of a published formula.
#
# Next: [lesson 16](../16_failures/lesson.py): checkpoints that survive a crash at any moment, which part 8
# only tried once.
