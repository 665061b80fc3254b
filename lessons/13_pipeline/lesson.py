"""Lesson 13. Pipelines: every rank holds some layers, and all work at once, on different samples.

Lecture section: pipelining, which is data and model parallelism at once: layers on several ranks, and samples
on all of them at the same time. Schedules (GPipe, 1F1B, interleaved, zero bubble, Chimera, DualPipe), unequal
layers, and pipelines that never empty (PipeDream). Surveys: Ben-Nun and Hoefler 2019, arXiv:1802.09941,
section 6.

The slide asks: if each rank holds some layers, in which order should the ranks take the micro-batches, so
that they wait little and hold little?

You need: lessons 02 (the tape, backward), 03 (what backward keeps; recomputation), 05 (the virtual clock) and
11 (layers on consecutive ranks).

Time: about 60 minutes; the program runs for about 30 seconds.

After this you can: compute the time and the bubble of GPipe, 1F1B and chunks; compute how many micro-batches
each rank holds; say what each schedule gains and what it pays; cut unequal layers into stages; write a
schedule and have it checked.

    python lessons/13_pipeline/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/13_pipeline/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from itertools import combinations, pairwise

import drawings
import numpy as np
from measured import gpipe_in_real_time, weights_later
from minigrad_course.experiments.experiment import read_result, source_of
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.networks import VGG16
from minigrad_course.shared.style import start_lesson
from one_step import LAYERS, data, in_a_row, library_steps, planned, run

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced, gather_trace
from backends.laws import bound_for, differences_from_serial, trains_like_serial
from backends.partition import optimal
from backends.pipeline import (
    SCHEDULES,
    Backward,
    Costs,
    Forward,
    Pipeline,
    Schedule,
    check_schedule,
    simulate,
)
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.gantt import draw_pair, slots
from backends.pipeline.p2p import PipelineComm
from backends.pipeline.trace import as_trace, bubble_of, instructions_of
from minigrad import mnist, nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.models import mlp
from minigrad.serial import Serial
from minigrad.train import accuracy, fit

FIGURES = start_lesson("13_pipeline")
digits = mnist.load("mnist5k")


def show(text):
    print("   " + text.replace("\n", "\n   "))


# %% [markdown]
# ## 1. Nine slots or five
# Three ranks hold one *stage* each: some consecutive layers. A stage takes one second for each sample. Three
# samples as one batch take three seconds in each stage, while two ranks wait: nine seconds. If every sample
# moves on as soon as it is done, rank 1 works on sample 0 while rank 0 works on sample 1: five seconds. The
# ranks have a *virtual* clock, which only `compute` advances. `Traced` notes what a rank does and when;
# `slots` prints it, a row for each rank.

# %%
print("1. Nine slots or five")
samples = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def forward(comm, parts):
    """Runs this rank's stage on each part of the samples; the trace, and the outputs of the last rank."""
    traced, outputs = Traced(comm), []
    for i, part in enumerate(shares(len(samples), parts)):
        x = traced.recv(comm.rank - 1) if comm.rank > 0 else samples[part]
        with traced.computing(f"forward {i}"):
            comm.compute(len(x))
            y = np.tanh((comm.rank + 1) * x)
        if comm.rank + 1 < comm.size:
            traced.send(y, comm.rank + 1)
        else:
            outputs.append(y)
    return gather_trace(comm, traced), outputs


# %%
traces = {}
for parts, name in ((1, "as one batch"), (3, "sample by sample")):
    cluster = VirtualCluster(3, Link(0.0))
    runs_by_rank = cluster.run(lambda comm, n=parts: forward(comm, n))
    traces[name] = runs_by_rank[0][0]
    print(f"   {name}: {cluster.seconds:g} seconds")
    show(slots(traces[name], unit=1.0))
    expected = 9 if parts == 1 else 5
    assert cluster.seconds == expected, f"{name}: {cluster.seconds} seconds, expected {expected}"
    outputs, alone = np.vstack(runs_by_rank[2][1]), np.tanh(3 * np.tanh(2 * np.tanh(samples)))
    assert np.array_equal(outputs, alone), f"{outputs} instead of {alone}"

# %%
save(drawings.on_one_clock(traces, "Three samples, three stages"), FIGURES / "slots.png")

# %% [markdown]
# m samples in p stages take m + p - 1 slots instead of m p: the last stage begins after p - 1 slots, and from
# then on it completes a sample in each slot.
#
# Read: Ben-Nun and Hoefler 2019, arXiv:1802.09941, the section "Pipelining".
#
# ## 2. Fill and drain
# A training step goes forward and back. A *micro-batch* is a part of the batch whose samples pass the stages
# together. GPipe takes all micro-batches forward, then all back. Their gradients are added, and only then do
# the weights change. A *flush* is the wait until the pipeline is empty, before the weights change. The time
# that a rank waits is called the *bubble*.
#
# `backends/pipeline/naive.py` is GPipe in 65 lines that train like one machine: read that file first.
#
# From here on the network has 16 layers. On four ranks, the four layers of a rank take 1 s for forward, 1 s
# for the gradient of their input, and 1 s for the gradients of their weights. A *schedule* gives each rank
# its order of instructions. `run` (in one_step.py) takes a real step, with messages and gradients. It asserts
# two things of every run in this lesson: each instruction starts when the *plan* says, a simulation that
# knows only times; and all ranks have the gradients of one machine.

# %%
print("\n2. Fill and drain")
MICROS = (1, 2, 4, 8, 16)
filled = {p: [run("gpipe", m, ranks=p) for m in MICROS] for p in (2, 4, 8)}
bubbles = {p: [bubble_of(one.trace) for one in runs] for p, runs in filled.items()}
show(slots(filled[4][2].trace))
for p, runs in filled.items():
    idle = (f"{m}: {share:.0%}" for m, share in zip(MICROS, bubbles[p], strict=True))
    print(f"   {p} ranks, idle by micro-batches: " + ", ".join(idle))
    for m, one, share in zip(MICROS, runs, bubbles[p], strict=True):
        formula = (p - 1) / (m + p - 1)
        assert one.seconds == (m + p - 1) * (1 + 2), f"{one.seconds} s, not {(m + p - 1) * 3}"
        assert np.isclose(share, formula, rtol=1e-9), f"{p} ranks, {m}: idle {share:.4f}, not {formula:.4f}"

# %%
save(drawings.bubbles(MICROS, bubbles), FIGURES / "fill_and_drain.png")

# %% [markdown]
# A step takes m + p - 1 slots of 3 s, and each rank works in m of them. So the bubble is the share
# (p - 1) / (m + p - 1) of the time: more micro-batches make it smaller.
#
# Read: Huang et al. 2019 (GPipe), arXiv:1811.06965, section 2.
#
# ### Two threads and a real clock
# The plan is simulated with the mean times of this run's instructions. The measured bubble depends on the
# machine, so only the order of the instructions is asserted.

# %%
trace = gpipe_in_real_time(digits.train[:1024])
done = instructions_of(trace)
took = {(rank, kind): [] for rank in (0, 1) for kind in (Forward, Backward)}
for span, i in done:
    took[span.rank, type(i)].append(span.stop - span.start)
mean = [[np.mean(took[rank, kind]) for rank in (0, 1)] for kind in (Forward, Backward)]
plan = simulate(SCHEDULES["gpipe"].of(2, 4), Costs(*mean))
print(f"   real threads: planned idle {plan.bubble:.0%}, measured {bubble_of(trace):.0%}")
stops = {(span.rank, i): span.stop for span, i in done}
for span, i in done:  # rank 1 goes forward after rank 0, rank 0 back after rank 1
    first = span.rank == (type(i) is Backward)
    assert first or span.start >= stops[1 - span.rank, i], f"rank {span.rank}: {i} before the other rank's"
for rank in (0, 1):
    ran, expected = [i for span, i in done if span.rank == rank], list(plan.table.instructions[rank])
    assert ran == expected, f"rank {rank}: {ran}, expected {expected}"

# %%
draw_pair(as_trace(plan), trace, FIGURES / "gpipe.png", title="GPipe on two threads, real time")

# %% [markdown]
# ### The proof on digits
# Three ranks train on a batch of 134 digits, then on one of 13, each in 4 micro-batches of unequal sizes.

# %%
train = Batch(digits.train.x.astype(float), digits.train.y)
batches = [train[:134], train[134:147]]


def differences(strategy, ranks, batches=batches):
    """The largest error on any rank of each gradient and weight, relative to its largest element."""
    results = run_ranks(
        ranks, lambda c: differences_from_serial(strategy, c, mlp, ops.cross_entropy, batches)
    )
    return {d.name: d.relative for d in results[0]}


worst = max(differences(lambda comm: Pipeline(comm, "gpipe"), 3).values())
print(f"   digits on three ranks: every gradient is serial to {worst:.0e}")
assert worst <= bound_for(float), f"differs by {worst:.1e}, allowed {bound_for(float):.1e}"

# %% [markdown]
# ## 3. A frequent mistake: one receive buffer
# The tape (lesson 02) refers to the input of a stage until the micro-batch comes back: with GPipe, to the
# inputs of all m micro-batches at once. If a rank receives all of them into the *same* memory, the gradient
# of a weight combines the output gradient of one micro-batch with the input of another. The first rank
# receives no inputs, so its gradients are right.

# %%
print("\n3. A frequent mistake: one receive buffer")


class OneBuffer(PipelineComm):
    """Wrong: every tensor that is received is written into the same memory."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.buffers = {}

    def receive(self, hop, shape):
        x = super().receive(hop, shape)
        buffer = self.buffers.setdefault((hop.kind, x.shape), x)
        buffer[...] = x
        return buffer


class Wrong(Pipeline):
    def place(self, model):
        model = super().place(model)
        self.engine.p2p = OneBuffer(self.comm, self.table, self.stage_map.first)
        return model


# %%
def accuracies(strategy):
    """The accuracies on the test set, before training and after each epoch."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(mlp(np.random.default_rng(0)))
        sgd, accuracies = optim.SGD(model.parameters(), lr=0.02, momentum=0.9), [accuracy(model, digits.test)]
        for epoch in range(3):
            some = {"backend": backend, "batch_size": 50, "seed": epoch}
            fit(model, sgd, ops.cross_entropy, digits.train[:2000], **some)
            accuracies.append(accuracy(model, digits.test))
        return accuracies

    return run_ranks(3, work)[0]


def of(strategy, schedule):
    return lambda comm: strategy(comm, schedule, micro_batches=4, bounds=(0, 3, 5, 6))


# %%
errors = {}
for schedule, wrong_ranks in (("gpipe", (1, 2)), ("1f1b", (1,))):
    result = differences(of(Wrong, schedule), 3, [train[:128]])
    errors[schedule] = [result[f"{layer}.weight"] for layer in (1, 3, 5)]  # one on each rank
    print(f"   {schedule:5}: error by rank " + "  ".join(f"{e:.0e}" for e in errors[schedule]))
    for rank, error in enumerate(errors[schedule]):
        right = error > 0.01 if rank in wrong_ranks else error <= bound_for(float)
        assert right, (
            f"{schedule}, rank {rank}: {error:.1e}; wrong (above 0.01) should be ranks {wrong_ranks}"
        )
curves = {name: accuracies(of(kind, "gpipe")) for name, kind in (("right", Pipeline), ("one buffer", Wrong))}
for name, result in curves.items():
    print(f"   {name:10} accuracy by epoch: " + "  ".join(f"{a:.1%}" for a in result))
rising = curves["one buffer"]
assert rising == sorted(rising) and rising[-1] > 0.65, f"accuracies {rising} do not rise to above 0.65"

# %%
save(drawings.one_buffer(errors, curves), FIGURES / "one_buffer.png")

# %% [markdown]
# The accuracy rises although the gradients are wrong. And the mistake is invisible on a rank that has only
# one micro-batch *in flight* (forward done, backward not yet), as the last rank has with 1F1B, the schedule
# of part 4. On two ranks 1F1B shows no error at all. So test with three ranks or more.
#
# Read: Huang et al. 2019 (GPipe), arXiv:1811.06965, section 2.3 (what all micro-batches keep).
#
# ## 4. One forward, one backward
# 1F1B takes a micro-batch back as soon as possible. It has the same bubble as GPipe, but rank s holds
# min(m, p - s) micro-batches instead of m. We count the bytes that backward needs over time. (The inputs of
# rank 0 are the data, which are in memory anyway; the last rank also holds the loss.)

# %%
print("\n4. One forward, one backward")
P, M = 4, 8
runs = {name: run(name, M) for name in ("naive", "gpipe", "1f1b")}
show(slots(runs["1f1b"].trace, width=77))


def peaks(run):
    return [max(nbytes for _, nbytes in series) for series in run.memory]


one = peaks(runs["naive"])  # of one micro-batch
for name in ("gpipe", "1f1b"):
    print(f"   {name:5}: {runs[name].seconds:g} s, most bytes by rank {peaks(runs[name])}")
    assert runs[name].seconds == 33 == (M + P - 1) * (1 + 2), f"{name}: {runs[name].seconds} s, not 33"
    in_flight = [M if name == "gpipe" else min(M, P - s) for s in range(P)]
    expected = [n * nbytes for n, nbytes in zip(in_flight, one, strict=True)]
    assert peaks(runs[name]) == expected, f"{name}: {peaks(runs[name])} bytes, expected {expected}"

# %%
save(drawings.memory({name: runs[name].memory for name in ("gpipe", "1f1b")}), FIGURES / "memory.png")

# %% [markdown]
# Recomputation (lesson 03, part 4) saves more: a stage keeps only its input, and runs forward again before
# backward. Then GPipe holds m inputs and the activations of one micro-batch. The price is a second forward:
# a step of 44 s instead of 33. The gradients are equal bit by bit.

# %%
came = data.x.nbytes // M  # into a stage, with a micro-batch
for name, in_flight in (("gpipe", M), ("1f1b", P - 1)):
    again = run(name, M, recompute=True)
    print(f"   {name:5} with recomputation: {again.seconds:g} s, most bytes by rank {peaks(again)}")
    assert again.seconds == 44 == (M + P - 1) * (1 + 3), f"{name}: {again.seconds} s, not 44"
    expected = (in_flight - 1) * came + one[1]
    assert peaks(again)[1] == expected, f"{name}, rank 1: {peaks(again)[1]} bytes, expected {expected}"
    assert all(np.array_equal(again.gradients[n], g) for n, g in runs[name].gradients.items()), name

# %% [markdown]
# Read: Narayanan et al. 2021 (Megatron-LM), arXiv:2104.04473, section 2.2, for 1F1B and the next part.

# %% [markdown]
# ## 5. Chunks: more, shorter stages
# The *interleaved* schedule gives every rank v stages (chunks) of 1 / v of the length. The pipeline fills and
# drains v times as fast, so the bubble shrinks to 1 / v of 1F1B's. This has two prices. A micro-batch passes
# p v - 1 boundaries instead of p - 1, so there are more messages. And rank 0 takes more micro-batches forward
# before the first one comes back: it holds p (1 + (p - 1) / (p v)) of them, not p.
#
# A message may take time: we plan and run each schedule for three latencies. The plan lets a rank receive
# several messages at the same time. In the run a rank receives one at a time, so a run can take longer.

# %%
print("\n5. Chunks")
KINDS = {"1f1b": ("1f1b", 1), "2 chunks": ("interleaved", 2), "4 chunks": ("interleaved", 4)}
LATENCIES, SHOWN = np.arange(33) / 32, (0.0, 0.25, 0.5)


def by_latency(kinds):
    """Planned seconds by the seconds that a message takes; and the runs for the latencies of SHOWN."""
    lines = {
        k: [planned(s, M, chunks=v, latency=x).makespan for x in LATENCIES] for k, (s, v) in kinds.items()
    }
    return lines, {k: [run(s, M, chunks=v, latency=x) for x in SHOWN] for k, (s, v) in kinds.items()}


lines, results = by_latency(KINDS)
dots = {name: [one.seconds for one in some] for name, some in results.items()}
print(f"   plan and run: seconds of a step if a message takes {SHOWN} s")
for name, (_, v) in KINDS.items():
    idle, messages = dots[name][0] - M * 3, results[name][0].messages
    plans = [float(lines[name][list(LATENCIES).index(latency)]) for latency in SHOWN]
    print(f"   {name:8}: idle {idle:4} s, {messages:3} messages;")
    print(f"   {'':8}  plan {plans} s, run {dots[name]} s")
    assert all(a <= b for a, b in zip(plans, dots[name], strict=True)), f"plan {plans}, run {dots[name]} s"
    formula = (P - 1) * 3 / v, 2 * (P * v - 1) * M
    assert (idle, messages) == formula, f"{name}: idle and messages {(idle, messages)}, expected {formula}"
    holds = planned(*KINDS[name][:1], M, chunks=v).in_flight(0) / v  # in micro-batches
    print(f"   {'':8}  rank 0 holds {holds:g} micro-batches; most bytes by rank {peaks(results[name][0])}")
    expected = P if v == 1 else P * (1 + (P - 1) / (P * v))
    assert holds == expected, f"{name}: rank 0 holds {holds} micro-batches, expected {expected}"

# %%
full = {name: max(peaks(some[0])) for name, some in results.items()}
assert full["2 chunks"] == 1.5 * full["1f1b"], full
fastest = [min(lines, key=lambda name, i=i: lines[name][i]) for i in range(len(LATENCIES))]
assert fastest[0] == "4 chunks" and fastest[-1] == "2 chunks", fastest
assert dots["4 chunks"][-1] > dots["1f1b"][-1] > dots["2 chunks"][-1], dots
half = (lines["4 chunks"][list(LATENCIES).index(0.5)], dots["4 chunks"][-1])
assert half == (45, 46.25), f"four chunks at half a second: plan and run {half} s, expected 45 and 46.25"

# %%
save(drawings.slow_links(LATENCIES, lines, SHOWN, dots), FIGURES / "slow_links.png")
traces = {name: results[name][0].trace for name in ("1f1b", "2 chunks")}
save(drawings.on_one_clock(traces, "Chunks fill the pipeline faster"), FIGURES / "chunks.png")

# %% [markdown]
# Four chunks are best on fast links only: with half a second a message they are slower than one chunk. The
# plan says 45 s there, and the run takes 46.25 s, since the messages of four chunks arrive close together.
# Two chunks hold 1.5 times the bytes of 1F1B here, not 1.375 = 1 + (p - 1) / (p v) times, because every chunk
# keeps its own input, and rank 0 has two inputs now, of which only the first is the data.
#
# Read: arXiv:2104.04473, section 2.2; Korthikanti et al. 2022, arXiv:2205.05198, for the memory.
#
# ## 6. Zero bubble: backward in two halves
# Backward computes two kinds of gradients. B is the gradient of the stage's input, for which the rank before
# waits. W are the gradients of the weights, for which no rank waits. The *zero bubble* schedules move W into
# the bubble. Let F, B and W also be the seconds that each takes. ZB-H1 takes as many forwards ahead as 1F1B
# and fills the end of the bubble, so that (p - 1) (F + B - W) seconds of it are left. ZB-H2 takes twice as
# many forwards ahead, and no rank waits between its first and its last instruction.

# %%
print("\n6. Zero bubble: backward in two halves")
by_schedule = {name: run(name, M) for name in ("1f1b", "zb-h1", "zb-h2")}
for name, r in by_schedule.items():
    print(f"   {name:7}: {r.seconds:g} s, idle {bubble_of(r.trace):.0%}, most bytes by rank {peaks(r)}")
expected = 3 * M + (P - 1) * (1 + 1 - 1)
assert by_schedule["zb-h1"].seconds == expected == 27, (
    f"zb-h1: {by_schedule['zb-h1'].seconds} s, not {expected}"
)
spans = [
    [span for span, _ in instructions_of(by_schedule["zb-h2"].trace) if span.rank == r] for r in range(P)
]
assert all(mine[-1].stop - mine[0].start == 3 * M for mine in spans), "a rank waits in zb-h2"

# %% [markdown]
# One step of ZB-H2 takes as long as one of ZB-H1: rank 3 begins three seconds late and ends three seconds
# late. ZB-H2 gains only over several steps, where rank 0 begins the next step while rank 3 still works on the
# one before. Then a step takes 24 s, all of them computing.

# %%
for name, each in (("1f1b", 33), ("zb-h1", 27), ("zb-h2", 24)):
    ends = [float(in_a_row(name, M, steps).makespan) for steps in (1, 2, 3)]
    print(f"   {name:5}: 1, 2, 3 steps end at {ends} s: {ends[2] - ends[1]:g} s for one more step")
    assert ends[2] - ends[1] == each, f"{name}: {ends[2] - ends[1]} s for one more step, expected {each}"
waits = library_steps("zb-h2", M, 3)
print(f"   zb-h2 as the library's Pipeline.step: 3 steps end at {waits:g} s")
assert waits == 3 * 27, f"three steps of the library's zb-h2 take {waits:g} s, expected {3 * 27}"

# %%
traces = {name: as_trace(in_a_row(name, M, 2)) for name in ("1f1b", "zb-h1", "zb-h2")}
title = "Two steps: the gradients of the weights fill the bubble; with zb-h2 no rank waits between the steps"
save(drawings.on_one_clock(traces, title), FIGURES / "zero_bubble.png")

# %% [markdown]
# Rank 0 begins the next step while rank 3 still works. So *nothing* between two steps may need all ranks: not
# clipping by the global norm, which needs the sum of the squares of all gradients; not a check for NaN on all
# ranks before the weights change; and not the loss on all ranks. The library's `step` returns the loss on all
# ranks, by an all-gather, so three of its steps take 81 s. Qi et al. let each rank update its weights at
# once, send the checks along with the next forwards, and undo the update where a check fails.
#
# Read: Qi et al. 2023, arXiv:2401.10241, sections 2 to 4.
#
# ## 7. The memory of zero bubbles, and ZB-V
# Qi et al. give ZB-H1 the same peak memory as 1F1B, and ZB-H2 about twice as much. Here the fullest rank of
# ZB-H1 holds 1.5 times as many bytes as the fullest rank of 1F1B, and of ZB-H2 2.6 times. The reason is the
# layer. From forward to B our layer keeps two arrays. From B to W it keeps three: the input and the output
# gradient of its product, for the weight, and the gradient of its own input, for the bias. The published
# numbers hold where W needs no more bytes than B, as in the layers of a Transformer.

# %%
print("\n7. The memory of zero bubbles, and ZB-V")
waiting = 3 * LAYERS // P * came  # bytes of a micro-batch between B and W: three arrays for each layer
for name, ahead in (("zb-h1", 1), ("zb-h2", 2)):
    expected = [ahead * (P - 1 - s) * one[s] + (ahead * s + 1) * waiting for s in range(P)]
    got = peaks(by_schedule[name])
    print(f"   {name}: fullest rank {max(got) / max(peaks(by_schedule['1f1b'])):.2f} times 1f1b's")
    assert got == expected, f"{name}: {got} bytes by rank, expected {expected}"
h1, plain = max(peaks(by_schedule["zb-h1"])), max(peaks(by_schedule["1f1b"]))
assert h1 == 1.5 * plain, f"fullest rank: zb-h1 {h1} bytes, 1f1b {plain}"

# %% [markdown]
# *ZB-V* has no bubble between its first and last instruction either, and holds less than ZB-H2. The stages
# form a V: every rank has a stage of the way down and one of the way up, each half as long. Each rank holds
# 2p micro-batches in half a stage, which counts as p whole ones, as many as the fullest rank of 1F1B holds.
# So *counted in micro-batches* ZB-V needs the memory of 1F1B. *In bytes* its fullest rank holds 1.31 times as
# much here, since our layer keeps three arrays between B and W, not two.

# %%
plan = planned("zb-v", M)
for rank in range(P):
    mine, holds = plan.of(rank), plan.in_flight(rank, until_weight=True)
    span = mine[-1].stop - mine[0].start
    assert (span, holds) == (3 * M, 2 * P), (
        f"rank {rank}: {span} s, {holds} halves; expected {3 * M}, {2 * P}"
    )
ends = [float(in_a_row("zb-v", M, steps).makespan) for steps in (1, 2, 3)]
assert ends[2] - ends[1] == 24, f"zb-v: {ends[2] - ends[1]} s for one more step, expected 24"
fullest = {name: max(peaks(run(name, M))) for name in ("1f1b", "zb-v", "zb-h2")}
print("   most bytes on the fullest rank: " + ", ".join(f"{name} {n}" for name, n in fullest.items()))
print(f"   zb-v: {fullest['zb-v'] / fullest['1f1b']:.2f} times 1f1b's, and 24 s for one more step")
assert fullest["zb-v"] == 1.3125 * fullest["1f1b"] < fullest["zb-h2"], fullest

# %% [markdown]
# Read: Qi et al. 2023, arXiv:2401.10241 (ZB-V); Qi et al. 2024, "Pipeline parallelism with controllable
# memory", arXiv:2405.15362 (other V-shapes).
#
# ## 8. Two directions: Chimera and DualPipe
# *Chimera* has two copies of all weights. Half of the micro-batches enter at the last rank and go the other
# way, so that each half computes in the bubble of the other. The gradients of both copies are added at the
# end.
#
# *DualPipe* (DeepSeek-AI 2024) also has two directions. Its main point is not the bubble. It was made for a
# Transformer with experts on different machines (lesson 18), where each layer sends its tokens away and back
# by an all-to-all. DualPipe pairs a forward of one direction with a backward of the other, so that while one
# of the two communicates, the other computes. Our schedule "dualpipe" has the same order, but it runs the two
# of a pair one after the other, and our stages have no all-to-all. So the table below shows its bubble and
# its memory, and not the overlap that it was made for.

# %%
print("\n8. Two directions: Chimera and DualPipe")
for name in ("chimera", "dualpipe"):
    r = run(name, M)
    print(f"   {name:8}: {r.seconds:g} s, idle {bubble_of(r.trace):.0%}, most bytes by rank {peaks(r)}")
traces = {"chimera": run("chimera", P).trace, "1f1b": run("1f1b", P).trace}
took = [trace.stop - trace.start for trace in traces.values()]
assert took == [3 * P + 2 * (P - 2), 3 * (P + P - 1)], took

# %%
title = "Half of the micro-batches go the other way"
save(drawings.on_one_clock(traces, title, ("down", "up")), FIGURES / "chimera.png")

# %% [markdown]
# Read: Li and Hoefler 2021 (Chimera), arXiv:2107.06925; DeepSeek-AI 2024, "DeepSeek-V3 technical report",
# arXiv:2412.19437, section 3.2 (DualPipe).
#
# ## 9. One large product for the weights
# A delayed W has another use. Small micro-batches make small matrix products, which are slower in most
# libraries, and each product adds its result to the gradient. `Weight((0, ..., 7))` computes W of eight
# micro-batches in one large product. With two or four parts nothing is gained: the parts must be copied into
# one array first. The milliseconds are processor time on your machine; nothing is asserted about them.

# %%
print("\n9. One large product for the weights")
PARTS = (1, 2, 4, 8, 16, 32)
rounds = [[[weights_later(n, together) for n in PARTS] for together in (False, True)] for _ in range(12)]
apart, batched = ([min(r[way][i][0] for r in rounds) for i in range(len(PARTS))] for way in (0, 1))
for n, a, b in zip(PARTS, apart, batched, strict=True):
    print(f"   512 samples as {n:2} x {512 // n:3}: {1e3 * a:5.2f} ms, as one product {1e3 * b:5.2f} ms")
(_, whole), *others = [result for way in rounds[0] for result in way]
worst = max(np.abs(g - whole).max() for _, g in others) / np.abs(whole).max()
assert worst <= bound_for(np.float32), f"differ by {worst:.1e}, allowed {bound_for(np.float32):.1e}"

# %%
save(drawings.products(PARTS, apart, batched), FIGURES / "products.png")

# %% [markdown]
# Read: the measurements of this library in benchmarks/README.md, "Pipelines" (the rows "weights batched").
#
# ## 10. All schedules
# Here are all schedules of the library, with the seconds of a step and the memory of each. Whatever the order
# of the instructions, the gradients equal the gradients of one machine: here on digits, and inside `run`.

# %%
SCHEDULES_IN_WORDS = {
    "naive": "each micro-batch forward and back before the next one starts: one rank works at a time",
    "gpipe": "all forward, then all back (part 2)",
    "1f1b": "one forward, one backward (part 4)",
    "interleaved": "1F1B with 2 chunks on each rank (part 5)",
    "zb-h1": "1F1B with W delayed into the bubble (part 6)",
    "zb-h2": "ZB-H1 with twice the forwards ahead (part 6)",
    "zb-v": "zero bubble in a V, with as many micro-batches held as 1F1B (part 7)",
    "gpipe-batched": "GPipe with W of all micro-batches as one product at the end",
    "1f1b-pairs": "1F1B with W of two micro-batches as one product",
    "1f1b-batched": "1F1B with W of all micro-batches as one product at the end",
    "zb-batched": "1F1B with two products for W: one in the bubble, one at the end",
    "chimera": "two pipelines in opposite directions, all weights twice (part 8)",
    "dualpipe": "two directions, forward and backward in pairs, W delayed (part 8)",
    "dualpipe-v": "DualPipe cut in half, in a V: no second copy of the weights",
}

# %%
print("\n10. All schedules")
assert set(SCHEDULES_IN_WORDS) == set(SCHEDULES), set(SCHEDULES_IN_WORDS) ^ set(SCHEDULES)
for name, words in SCHEDULES_IN_WORDS.items():
    r, worst = run(name, M), max(differences(lambda comm, name=name: Pipeline(comm, name), 2).values())
    kibibytes = " ".join(f"{nbytes / 1024:3.0f}" for nbytes in peaks(r))
    print(f"   {name:13} {words}")
    print(f"   {'':13} {r.seconds:4g} s, most KiB by rank {kibibytes}; serial to {worst:.0e}")
    assert worst <= bound_for(float), f"{name}: differs by {worst:.1e}, allowed {bound_for(float):.1e}"

# %% [markdown]
# Read: DeepSeek-AI 2025, the source of DualPipe and DualPipeV, github.com/deepseek-ai/DualPipe.
#
# ## 11. Unequal layers
# Pipelines have one main disadvantage: *every stage must take the same time*. In a flow of m micro-batches
# the slowest stage sets the pace. If stage s takes t_s for forward, and twice as long for backward, GPipe's
# step takes
#
#     3 (t_1 + ... + t_p + (m - 1) max t)
#
# The layers of a real network are not equal. VGG-16 has 16 layers with weights: the convolutions do nearly
# all of the multiplications, and the linear layers hold nearly all of the weights. We give each of our 16
# layers the time of one layer of VGG-16 (its multiplications, scaled to 4 s in all) and cut them in three
# ways: four layers for each rank; by bytes, so that the largest stage holds as few weights as possible; by
# time, so that the slowest stage is as fast as possible. `optimal` finds the best cut without trying all of
# them.

# %%
print("\n11. Unequal layers")
seconds = [P * layer.work / sum(layer.work for layer in VGG16) for layer in VGG16]
weights = [4 * layer.weights for layer in VGG16]  # bytes


def by_stage(costs, bounds):
    return [sum(costs[a:b]) for a, b in pairwise(bounds)]


cuts = {"equal": (0, 4, 8, 12, 16), "bytes": tuple(optimal(weights, P)), "time": tuple(optimal(seconds, P))}
unequal = {}
for name, bounds in cuts.items():
    unequal[name], stages = run("gpipe", M, seconds=seconds, bounds=bounds), by_stage(seconds, bounds)
    megabytes = [round(nbytes / 1e6) for nbytes in by_stage(weights, bounds)]
    took, formula = unequal[name].seconds, 3 * (sum(stages) + (M - 1) * max(stages))
    shown = " ".join(f"{t:.2f}" for t in stages)
    print(f"   {name:5}: stages of {shown} s, {megabytes} MB: {took:.1f} s a step")
    assert np.isclose(took, formula, rtol=1e-9), f"{name}: {took:.3f} s, the formula says {formula:.3f}"

# %%
one_rank = 3 * M * sum(seconds)
print(f"   one rank alone: {one_rank:.1f} s")
every_cut = [(0, *inner, 16) for inner in combinations(range(1, 16), P - 1)]
for costs, name in ((seconds, "time"), (weights, "bytes")):
    best, mine = min(max(by_stage(costs, cut)) for cut in every_cut), max(by_stage(costs, cuts[name]))
    assert mine == best, f"{name}: the largest stage costs {mine}, the best of {len(every_cut)} cuts {best}"
took = {name: unequal[name].seconds for name in ("time", "equal", "bytes")} | {"one rank": one_rank}
assert list(took.values()) == sorted(took.values()), took

# %%
cut_traces = {f"cut by {n}" if n != "equal" else "four layers each": r.trace for n, r in unequal.items()}
figure = drawings.on_one_clock(cut_traces, "VGG-16's layers: the slowest stage sets the pace")
save(figure, FIGURES / "unequal.png")

# %% [markdown]
# Cut by bytes, the pipeline is hardly faster than one rank: one stage does 99 % of the work. Cut by time,
# one rank holds nearly all of the weights. And even the best cut by time is not equal, since a layer cannot
# be cut: the slowest stage takes 1.2 s, not 1. `minigrad train --pipe 4` measures each layer first and cuts
# by time, and so does `Pipeline` if it is given the shape of a sample; without it, `Pipeline` can only cut by
# bytes. Two other ways help: more ranks for the slow stage (PipeDream, lesson 15), or a layer that is split
# itself (lesson 11).
#
# Read: Narayanan et al. 2019 (PipeDream), doi:10.1145/3341301.3359646; Kim et al. 2020 (torchgpipe),
# arXiv:2004.09910.
#
# ## 12. Pipelines that never empty
# PipeDream has no flush: the next batch goes forward at once, with weights that the batches before it have
# not changed yet. So a gradient is *stale*: it was computed with weights that are some updates old. How many
# updates, on stage s of p?
#
# - weight "stashing" keeps a copy of the weights for each batch in flight: p - 1 - s updates;
# - with "vertical" sync all stages use weights of one age: p - 1 updates;
# - "2bw" keeps two versions of the weights: one update;
# - "no_stash" keeps no copies: p - 1 - s updates. A batch goes back through other weights than it went
#   forward with, and the result is not the gradient of any loss.
#
# We train with each rule, from three seeds:

# %%
print("\n12. Pipelines that never empty")
RULES = {"2bw": [1] * P, "stashing": [P - 1 - s for s in range(P)], "vertical": [P - 1] * P}
RULES["no_stash"] = RULES["stashing"]
some, EPOCHS, SEEDS = Batch(train.x[:4000].reshape(4000, -1), train.y[:4000]), 3, range(3)


def losses(backend, seed):
    """The losses of all steps of four layers at a large learning rate, and the backend."""
    rng, layers = np.random.default_rng(seed), []
    for n_in, n_out in pairwise((784, 64, 64, 64, 10)):
        layers += [nn.Linear(n_in, n_out, rng=rng, bias=False), nn.ReLU()]
        layers[-2].weight.data[...] = rng.normal(0, (2 / n_in) ** 0.5, (n_out, n_in))
    model = backend.place(nn.Sequential(*layers[:-1]).to(dtype=float))
    values, settings = [], {"epochs": EPOCHS, "batch_size": 64}
    settings["on_step"] = lambda step, loss: values.append(loss)
    try:
        fit(model, optim.SGD(model.parameters(), 0.35), ops.cross_entropy, some, backend=backend, **settings)
    except FloatingPointError:  # on all ranks in the same step
        values += [np.inf] * (EPOCHS * -(-len(some) // 64) - len(values))
    return values, backend


# %%
curves = {"serial": [losses(Serial(), seed)[0] for seed in SEEDS]}
VERSIONS = {"2bw": [2, 2, 2, 1], "stashing": [4, 3, 2, 1], "vertical": [4] * 4, "no_stash": [1] * 4}
for versions, staleness in RULES.items():
    options = {"versions": versions, "stale_rate": "naive"}  # by default a stale gradient has a smaller rate
    results = [
        run_ranks(
            P, lambda comm, options=options, seed=seed: losses(AsynchronousPipeline(comm, **options), seed)
        )
        for seed in SEEDS
    ]
    curves[versions] = [of_seed[0][0] for of_seed in results]
    copies = [backend.versions_held for _, backend in results[0]]
    oldest = [max(backend.staleness) for _, backend in results[0]]
    print(f"   {versions:8}: weights are {oldest} updates old, by rank; versions held {copies}")
    assert oldest == staleness, f"{versions}: {oldest} updates old, expected {staleness}"
    assert copies == VERSIONS[versions], f"{versions}: {copies} versions, expected {VERSIONS[versions]}"

# %%
last = {name: [np.median(curve[-50:]) for curve in of_seed] for name, of_seed in curves.items()}
for name, of_seed in last.items():
    print(f"   loss at the end, by seed: {name:8} " + "  ".join(f"{loss:.2f}" for loss in of_seed))
ends = {name: np.median(of_seed) for name, of_seed in last.items()}
assert ends["serial"] < min(ends["2bw"], ends["stashing"]), ends
assert max(ends["2bw"], ends["stashing"]) < min(ends["vertical"], ends["no_stash"]), ends

# %%
save(drawings.versions(curves), FIGURES / "versions.png")

# %% [markdown]
# 2.30 is the loss of guessing. The learning rate is large on purpose: a small one hides the differences.
#
# Read: arXiv:1806.03377 (PipeDream), section 3; Narayanan et al. 2021 (PipeDream-2BW), arXiv:2006.09503.
#
# ## 13. A schedule of your own
# In the library a schedule is a generator of instructions for each rank. This one is 1F1B with twice as many
# forwards ahead, so that a rank has other work while messages are on their way. `check_schedule` checks it
# without running it, `run` takes a step, and `trains_like_serial` trains with it and compares with one
# machine.

# %%
print("\n13. A schedule of your own")


def eager(rank, ranks, micros, chunks):
    ahead = min(2 * (ranks - rank - 1), micros)
    yield from map(Forward, range(ahead))
    for micro in range(micros):
        if ahead + micro < micros:
            yield Forward(ahead + micro)
        yield Backward(micro)


mine = Schedule(eager, most_in_flight=lambda rank, n: min(n.micros, 2 * (n.ranks - rank) - 1))
check_schedule(mine, P, M)
lines, results = by_latency({"gpipe": ("gpipe", 1), "1f1b": ("1f1b", 1), "eager": (mine, 1)})
dots = {name: [one.seconds for one in some] for name, some in results.items()}
peaks_of = {name: peaks(some[0]) for name, some in results.items()}
for name in dots:
    print(f"   {name:5}: {dots[name]} s a step; most bytes by rank {peaks_of[name]}")
assert dots["eager"] == dots["gpipe"] < dots["1f1b"], dots
assert peaks_of["1f1b"] < peaks_of["eager"] < peaks_of["gpipe"], peaks_of

# %%
save(drawings.own(LATENCIES, lines, SHOWN, dots, peaks_of), FIGURES / "own.png")


# %%
def law(comm):
    trains_like_serial(lambda c: Pipeline(c, mine, micro_batches=6), comm, mlp, ops.cross_entropy, batches)


run_ranks(3, law)

# %% [markdown]
# For a broken schedule `check_schedule` says what is wrong. Two examples: the forwards ahead are counted from
# the wrong end, and a rank holds more micro-batches than the bound allows.


# %%
def backwards(rank, ranks, micros, chunks):
    return eager(ranks - 1 - rank, ranks, micros, chunks)


for schedule, promise in ((Schedule(backwards), None), (mine, [P - rank for rank in range(P)])):
    try:
        check_schedule(schedule, P, M, bound=promise)
    except ValueError as error:
        show(str(error).replace("; ", ";\n   "))
    else:
        raise AssertionError("a broken schedule was let through")

# %% [markdown]
# Exercise: change `eager` to take micro-batches back in pairs, or write a schedule with `Weight`. Check it
# with `check_schedule`, take a step with `run`, train with `law`; then print it with `slots`.
#
# A schedule can also be written without Python, as a file with the instructions of each rank
# (backends/pipeline/schedule_file.py):
#
#     {"micro": 2, "ranks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}
#
# `minigrad prove --pipe 2 --schedule-file mine.json` runs it on two ranks and compares every gradient with
# one machine. In the pipeline workshop you place the instructions by hand; it simulates them, and writes the
# file and the command: `python -m minigrad_course.explorables`, then open runs/explorables/pipeline.html.
#
# Read: Qi et al. 2024, arXiv:2405.15362, section 3 (schedules made of repeated blocks).
#
# ## 14. The speed of two processes
# On two ranks m equal micro-batches are at most 2 m / (m + 1) times as fast as one rank: 1.6 times for m = 4,
# 1.78 times for m = 8. How near does a real pipeline come? That depends on the stages and on their work.
#
# - *Equal stages with much work pay.* Two processes trained eight layers of 1024 x 1024. With 512 rows in
#   four micro-batches 1F1B was 1.17 times as fast as one process. With 1024 rows in eight micro-batches it
#   was 1.29 times as fast, and 1.46 times with two large products for W ("zb-batched").
# - *Images pay more.* A convolutional network on 1024 images in eight micro-batches was 1.66 times as fast by
#   1F1B. These numbers are from benchmarks/README.md, "Pipelines" (November 2026, a machine of two cores).
# - *Small nets with unequal stages do not pay:* the two nets below, as `minigrad experiment speedup` measured
#   them; serial training is 1. The experiment measures them on your machine, with a wide net, too.

# %%
print("\n14. The speed of two processes")
print(f"   {source_of(read_result('speedup'))}; serial = 1")
for net, figures in read_result("speedup")["nets"].items():
    one, two = (figures["peers"][f"pipeline, {ranks}"]["speedup"] for ranks in (1, 2))
    print(f"   {net}, batch {figures['batch_size']}: on one process {one:.2f}, on two {two:.2f}")
    difference = figures["largest_difference"]
    assert difference < 1e-12, f"{net}: a loss differs from serial by {difference:.1e}, limit 1e-12"

# %% [markdown]
# Read: Narayanan et al. 2021 (Megatron-LM), arXiv:2104.04473, section 5 (pipelines on hundreds of GPUs).

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - By every schedule of the library a pipeline trains like one machine, for drawn networks, cuts and
#   micro-batches: [tests](../../tests/backends/pipeline/test_pipeline.py).
# - Times, bubbles and micro-batches in flight equal their formulas, for drawn numbers of ranks and
#   micro-batches: [tests](../../tests/backends/pipeline/test_schedules.py). A step on a virtual clock takes
#   exactly the time that is simulated: [tests](../../tests/backends/pipeline/test_pipeline_costs.py). The
#   bytes of chunks and of zero bubbles (parts 5 to 8) are asserted only here, for one network on four ranks.
# - A schedule that deadlocks, leaves out an instruction or holds too much is refused before a rank starts:
#   [tests](../../tests/backends/pipeline/test_validator.py).
# - The cut by time or bytes is the best of all cuts: [tests](../../tests/backends/test_partition.py).
# - Without a flush, training equals a serial loop with weights that are as many updates old as the rule says:
#   [tests](../../tests/backends/pipeline/test_asynchronous.py).
#
# Not proved: the curves of part 12, which are three seeds of one network at one learning rate; and all times
# on real clocks (parts 2, 9 and 14).
#
# Next: [lesson 14](../14_hybrid/lesson.py): samples, neurons and layers can be split at the same time, and a
# formula says which grid of ranks sends least.
