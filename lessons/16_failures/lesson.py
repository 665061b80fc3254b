"""Lesson 16. Failures: what is left when the lights go out.

Lecture section: parallelism at scale, what fails. A training of a week on a thousand machines sees failures
every day. First a file that was written in part, in its bytes. Then every state in which a crash can leave
four programs that save, of which three lose all. Then how often to save, with times that are measured; and
checkpoints that never touch a disk: a partner's copy, and parity. Last, four ranks go on as three.
Survey: Elnozahy et al. 2002, doi:10.1145/568522.568525.

    python lessons/16_failures/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/16_failures/.
The four programs are in saving.py, the trainings in training.py. In an editor that knows `# %%` cells this
file opens as a notebook.
"""

# %%
import math
import tempfile
from pathlib import Path
from time import perf_counter
from zlib import crc32

import drawings
import numpy as np
import saving
import training
from minigrad_course.crashes.crash_states import files_in_words
from minigrad_course.shared.checkpoint_interval import daly, waste, young
from minigrad_course.shared.style import start_lesson
from safetensors import SafetensorError
from safetensors.numpy import load, save

from backends.checkpoint import Checkpoints, Lost, PartnerCopies, XorParity
from backends.comm import run_ranks
from backends.comm.trace import Traced
from minigrad import figures

FIGURES = start_lesson("16_failures")

# %% [markdown]
# ## 1. A torn write
# A program that writes a file gives its bytes to the operating system, which puts them onto the disk some
# seconds later, in blocks, in any order. If the power fails in between, a part is there. This is a *torn
# write*. Here a rank's file of a checkpoint, in the format safetensors: 8 bytes say how long the header is,
# the header says which numbers stand where, and then come the numbers. The last 20 bytes get lost.
#
# (`backends/checkpoint/naive.py` saves the parts of all ranks in 20 lines: read that file first.)

# %%
print("1. A torn write")
WEIGHTS = {"weight": np.arange(1, 9, dtype=np.float32), "bias": np.full(4, 0.5, np.float32)}
with tempfile.TemporaryDirectory() as folder:
    [disk_files] = run_ranks(1, lambda comm: Checkpoints(Path(folder), comm))
    disk_files.write(1, WEIGHTS, {"loss": 2.25})
    disk_files.wait()
    [generation] = [path for path in Path(folder).iterdir() if path.name.startswith("step-")]
    written = (generation / "rank-0.safetensors").read_bytes()
    manifest = disk_files.newest()[0].manifest["files"]["rank-0.safetensors"]

    LENGTH = len(written) - 20
    tail_of_zeros = written[:LENGTH] + bytes(len(written) - LENGTH)
    (generation / "rank-0.safetensors").write_bytes(tail_of_zeros)
    nothing, _, reasons = disk_files.newest()
for name, content in (("written", written), ("cut", written[:LENGTH]), ("zeros", tail_of_zeros)):
    print(
        f"   {name:7} {len(content)} bytes, CRC-32 {crc32(content):08x}, at the end {content[-12:].hex(' ')}"
    )
print(f"   the manifest says {manifest['bytes']} bytes, CRC-32 {manifest['crc32']:08x}")
assert (len(written), crc32(written)) == (manifest["bytes"], manifest["crc32"]), (
    f"{len(written)} bytes, {manifest}"
)
figures.save(drawings.torn(written, LENGTH), FIGURES / "torn.png")

# %% [markdown]
# A reader of the format alone sees that the cut file is too short. But a disk may also have made room for the
# whole file, and not have filled it: then the end is zeros, the length is right, and the weights load.
# Nothing complains, and the training goes on with them.
#
# The manifest of a checkpoint has a checksum of each file, and sees both. So a checksum is not there for the
# rare cosmic ray: it is what tells a whole file from a torn one.

# %%
try:
    load(written[:LENGTH])
    refused = 0
except SafetensorError as error:
    refused = 1
    print(f"   cut, read by safetensors: refused, {str(error).partition(': ')[2]}")
loaded = np.concatenate([load(tail_of_zeros)[name] for name in WEIGHTS])
right = np.concatenate(list(WEIGHTS.values()))
wrong = int((loaded != right).sum())
print(f"   zeros, read by safetensors: no error, {wrong} of {len(right)} weights are wrong")
print(f"   zeros, read by the library: {len(reasons)} checkpoint refused, its checksum differs")
assert (refused, wrong) == (1, 5), f"refused {refused}, {wrong} weights wrong; expected 1 and 5"
assert nothing is None and len(reasons) == 1, f"restored {nothing}, {len(reasons)} refused, expected 1"

# %% [markdown]
# Read: Pillai et al. 2014, "All file systems are not created equal" (OSDI), section 2.
#
# ## 2. Every state after a crash
# A checksum finds what is broken; it does not bring the old file back. Which program keeps the old state
# until the new one is safe? We do not argue, we count. A *recorded disk* keeps a list of what a program does:
# make a name, write, *sync* (wait until it is safe), rename, remove. A crash may come after any operation.
# What was synced stays; of all else any part may be lost, in any order. The list is short, so we try all of
# it.
#
# Four programs save the second generation of two ranks over the first:
#
# - *over the old files*: each rank writes into its old file, and syncs it;
# - *rename without sync*: each rank writes a new file, and renames it over the old one;
# - *remove, then rename*: all files into a new folder, synced; the old folder is removed, the new one
#   renamed;
# - `Checkpoints`, the library's: a new folder, a manifest with checksums, syncs, one rename, and only then
#   the old folder goes.

# %%
print("\n2. Every state after a crash")
crashes = {name: saving.crashes_of(program) for name, program in saving.PROGRAMS.items()}
print(f"   {'program':20} operations  states" + "".join(f"{outcome:>9}" for outcome in saving.OUTCOMES))
for name, outcomes in crashes.items():
    counts = "".join(f"{outcomes.total[outcome]:9}" for outcome in saving.OUTCOMES)
    print(f"   {name:20} {len(outcomes.words):10} {outcomes.total.total():7}{counts}")
lost = {name: outcomes.total["mix"] + outcomes.total["nothing"] for name, outcomes in crashes.items()}
assert lost["Checkpoints"] == 0, (
    f"{lost['Checkpoints']} of {crashes['Checkpoints'].total.total()} states are lost"
)
assert min(n for name, n in lost.items() if name != "Checkpoints") > 10, f"lost states: {lost}"
assert crashes["remove, then rename"].total["mix"] == 0, f"{crashes['remove, then rename'].total}, mixes: 0"
figures.save(drawings.crash_states(crashes), FIGURES / "crash_states.png")

# %% [markdown]
# The first program gives a *mix*: rank 0's weights of one generation and rank 1's of the other, each file
# whole. It loads without an error. The second is a surprise: rename is atomic, and yet the new name may be on
# the disk before the bytes that it names. In the third all bytes are safe at every moment, and for a moment
# nothing has the name. PyTorch's distributed checkpoint (version 2.13) removes its list of files before it
# renames the new one into its place. Here is that moment:

# %%
name = "remove, then rename"
done, left = crashes[name].example["nothing"]
for number, words in enumerate(crashes[name].words, 1):
    if number > done - 4:
        print(f"   {'done' if number <= done else '    '} {number:2}. {words}")
for words in files_in_words(left, left):
    print(f"   left: {words}")
assert "remove" in crashes[name].words[done - 1], (
    f"operation {done}: {crashes[name].words[done - 1]}, not remove"
)

# %% [markdown]
# How the fourth one does it: the bytes are safe before a name says that they are there, and the old ones go
# after the new name is safe. Assignment [a9](../assignments/a9_checkpoint/README.md) asks you to write it.
#
# Read: Pillai et al. 2014, sections 3 and 4; Mohan et al. 2018, "Finding crash-consistency bugs with bounded
# black-box crash testing" (OSDI): short programs, tried in full, find most bugs of file systems.
#
# ## 3. How often to save, with measured times
# Lesson 15 has Young's interval: with C seconds to save and M seconds between failures, sqrt(2 C M) loses the
# least time. There C was a number on paper. Now we measure it, for a network with Adam, in three ways: a save
# on the disk while the training waits; a save in the background, for which the training waits only until its
# arrays are copied; and a copy in the memory of another rank, which part 4 explains. (Here that rank is a
# thread; between hosts a link would add the time of n bytes.)

# %%
print("\n3. How often to save, with measured times")
rng = np.random.default_rng(0)
STATE = {name: rng.random(118_282, dtype=np.float32) for name in ("weights", "mean", "square")}


def seconds_of(work, times=7):
    """The median time of a call."""
    measured = []
    for _ in range(times):
        start = perf_counter()
        work()
        measured.append(perf_counter() - start)
    return sorted(measured)[times // 2]


with tempfile.TemporaryDirectory() as folder:
    [files] = run_ranks(1, lambda comm: Checkpoints(Path(folder), comm))

    def save_and_wait():
        files.write(1, STATE, {})
        files.wait()

    on_disk = seconds_of(save_and_wait)
    copied = []
    for _ in range(7):
        copied.append(seconds_of(lambda: files.write(1, STATE, {}), 1))
        files.wait()
    background = sorted(copied)[3]


def save_in_memory(comm):
    memory = PartnerCopies()
    return seconds_of(lambda: memory.save(comm, 1, save(STATE)))


in_memory = max(run_ranks(2, save_in_memory))
COSTS = {"on the disk": on_disk, "in the background": background, "in a partner's memory": in_memory}
FAILURES = 200 * on_disk  # seconds between two failures, on average
lives = np.random.default_rng(0).exponential(FAILURES, 100_000)
kinds = {}
megabytes = len(save(STATE)) / 1e6
print(f"   {megabytes:.1f} MB; a failure every {FAILURES:.2f} s, 200 times as long as a save on the disk")
print("                              a save    Young's     Daly's  best found     lost")
for name, cost in COSTS.items():
    best = young(cost, FAILURES)
    seconds = best * np.geomspace(0.15, 7, 27)
    simulated = np.array([1 - np.floor(lives / (t + cost)).sum() * t / lives.sum() for t in seconds])
    formula = waste(seconds, cost, FAILURES)
    kinds[name] = seconds, formula, simulated, best
    least = seconds[simulated.argmin()]
    times = "".join(f"{1e3 * t:8.1f} ms" for t in (cost, best, daly(cost, FAILURES), least))
    print(f"   {name:22}{times}{simulated.min():9.1%}")
    off = abs(simulated - formula).max()
    assert off < 0.01, f"{name}: simulated and formula differ by {off:.1%}, allowed 1%"
    assert 0.6 < least / best < 1.6, f"{name}: best {least:.4f} s, Young {best:.4f} s"
figures.save(drawings.intervals(kinds, FAILURES), FIGURES / "intervals.png")

# %% [markdown]
# To first order the least loss is sqrt(2 C / M): a save that takes a hundredth of the time costs a tenth. So
# systems save often in memory, and seldom on the disk, for the failures that memory does not survive.
#
# Does it hold for a training? This one runs on a virtual clock on which a step takes a quarter of a save. Its
# hosts fail at times that are drawn, 30 saves apart on average. Each failure ends the program; the next host
# reads the newest checkpoint and goes on. The weights at the end must be those of a training without
# failures, bit for bit: a resume that forgets anything, as the mean of Adam's gradients, would show.

# %%
STEPS, LIFETIME = 240, 30.0
lifetimes = np.random.default_rng(3).exponential(LIFETIME, 1000)
undisturbed = training.train_with_failures(STEPS, STEPS, [math.inf], Path("/run"))
best = young(1.0, LIFETIME) / training.STEP
print(f"   {STEPS} steps on hosts that fail; Young's interval is {best:.0f} steps")
print("   interval   failures   steps computed     time      lost")
shares = {}
for interval in (2, round(best), 120):
    night = training.train_with_failures(STEPS, interval, lifetimes, Path("/run"))
    shares[interval] = 1 - STEPS * training.STEP / night.time
    print(
        f"   {interval:5} steps {night.failures:7} {night.steps:14} {night.time:11.1f} saves "
        f"{shares[interval]:7.1%}"
    )
    same = all(np.array_equal(night.weights[name], undisturbed.weights[name]) for name in night.weights)
    assert same and night.steps >= STEPS, f"{night.steps} steps, {night.failures} failures: other weights"
assert shares[round(best)] == min(shares.values()), (
    f"lost by interval: {shares}, least expected at {best:.0f}"
)

# %% [markdown]
# Read: Young 1974, doi:10.1145/361147.361115; Daly 2006, doi:10.1016/j.future.2004.11.016.
#
# ## 4. Lose a host, lose nothing
# If a host fails, its memory is gone; that of the others is not. So each rank can give what it has to save,
# its *piece* of n bytes, to another host:
#
# - a **partner's copy**: n bytes are sent, and each rank holds 2 n;
# - **parity**: with h hosts, a piece is cut into h - 1 parts. Each other host gets one of them, and holds
#   only the *exclusive or* of all that it gets: n / (h - 1) bytes. If one host is missing, the exclusive or
#   of the parity and of all parts that are left is the part that is lost. Disks of a RAID 5 do this.
#
# A ring reduce-scatter (lesson 05) with exclusive or in the place of the sum computes the parity, and sends n
# bytes. `PartnerCopies` and `XorParity` are two short classes. Six ranks, two on each host:

# %%
print("\n4. Lose a host, lose nothing")
HOSTS, OF_HOST = 3, 2
RANKS = HOSTS * OF_HOST
pieces = [np.random.default_rng(rank).bytes(9_992) for rank in range(RANKS)]


def saved_in_memory(kind):
    """Each rank's part of the checkpoint, and the bytes that it sent."""
    memories = [kind(OF_HOST) for _ in range(RANKS)]

    def work(comm):
        traced = Traced(comm)
        memories[comm.rank].save(traced, 1, pieces[comm.rank])
        return traced.record.ledger.sent().bytes

    return memories, run_ranks(RANKS, work)


n = len(pieces[0])
width = math.ceil((8 + n) / (HOSTS - 1))  # a piece carries its length, 8 bytes
FORMULAS = {
    PartnerCopies: (n, n),
    XorParity: ((HOSTS - 1) * (width + 8), width),
}
print("                  sent by a rank   formula   held for others   formula")
for kind, (sends, holds) in FORMULAS.items():
    memories, sent = saved_in_memory(kind)
    stored = memories[0].generations[-1].redundancy.nbytes
    print(f"   {kind.__name__:14} {sent[0]:10,} bytes {sends:9,} {stored:11,} bytes {holds:9,}")
    assert set(sent) == {sends} and stored == holds, (
        f"sent {set(sent)}, stored {stored}; formulas {sends}, {holds}"
    )
    for host in range(HOSTS):
        left = [memory for rank, memory in enumerate(memories) if rank // OF_HOST != host]
        step, contents = run_ranks(len(left), lambda comm, left=left: left[comm.rank].restore(comm))[0]
        assert contents == pieces, (
            f"host {host} lost: {sum(map(len, contents))} bytes, not {n * RANKS} as saved"
        )
figures.save(drawings.holders(RANKS, HOSTS), FIGURES / "holders.png")

# %% [markdown]
# Each host in turn was lost, and all pieces came back, byte for byte. With two hosts lost one cannot know
# what was there, and a program must say so rather than give something. It does:

# %%
memories, _ = saved_in_memory(XorParity)
try:
    run_ranks(OF_HOST, lambda comm: memories[comm.rank].restore(comm))
    words = ""
except Lost as error:
    words = str(error)
print(f"   hosts 1 and 2 lost: {words.partition(';')[0]}")
assert "[2, 3, 4, 5]" in words, f"4 ranks are lost, of {RANKS}, and it says {words!r}"

# %% [markdown]
# A crash can also come while the ranks save. So each rank holds two generations until all have the new one:
# the rule of part 2, in memory.
#
# Read: Moody et al. 2010 (SCR), "Design, modeling, and evaluation of a scalable multi-level checkpointing
# system" (SC), sections 2 and 3; Patterson, Gibson and Katz 1988 (RAID), doi:10.1145/50202.50214.
#
# ## 5. Four ranks go on as three
# The lost host need not be replaced. A piece holds a share of what *one* machine would save, so any number of
# ranks can share it again (lesson 15). Four ranks train with ZeRO and Adam; each saves its piece in its
# memory and its partner's, every 4 steps. Rank 2 ends in the middle of a step. The other three restore all
# four pieces, share them by three, and repeat the steps since. Compare all losses with those of one machine.

# %%
print("\n5. Four ranks go on as three")
serial: dict[int, float] = {}
[(_, reference)] = run_ranks(1, lambda comm: training.train(comm, None, serial))
memories = [PartnerCopies() for _ in range(4)]
before, lost = {}, (2, 10)  # rank 2, after ten steps
try:
    run_ranks(4, lambda comm: training.train(comm, memories[comm.rank], before, lost=lost), seed=0)
except training.Failure:
    print(f"   four ranks: rank 2 is lost after {lost[1]} steps; rank 0 has seen {len(before)} losses")
survivors = [memory for rank, memory in enumerate(memories) if rank != 2]
after = {}
results = run_ranks(3, lambda comm: training.train(comm, survivors[comm.rank], after, resumes=True))
start, weights = results[0]
print(f"   three ranks: from the checkpoint of step {start} to step {len(training.BATCHES)}")
off = max(abs(serial[step] - loss) for losses in (before, after) for step, loss in losses.items())
furthest = max(float(np.abs(weights[name] - reference[name]).max()) for name in weights)
print(f"   losses within {off:.0e} of one machine, weights within {furthest:.0e}")
assert (start, len(after)) == (8, 10), f"from step {start}, {len(after)} steps; expected 8 and 10"
assert len(before) >= start, f"{len(before)} losses of four ranks, and their checkpoint is of step {start}"
assert off < 1e-12 and furthest < 1e-12, (
    f"losses differ by {off:.1e}, weights by {furthest:.1e}, allowed 1e-12"
)
figures.save(
    drawings.shrunk([*serial.values()], [*before.values()], [*after.values()], lost[1], start),
    FIGURES / "shrunk.png",
)

# %% [markdown]
# Under MPI the ranks that are left must first agree who they are, and get a communicator without the lost
# one: ULFM's *shrink*. A job without it starts again on fewer ranks: `minigrad train --resume DIR`.
#
# Read: Bland et al. 2013, "Post-failure recovery of MPI communication capability" (ULFM),
# doi:10.1177/1094342013488238; Wang et al. 2023 (Gemini), "Fast failure recovery in distributed training with
# in-memory checkpoints" (SOSP), doi:10.1145/3600006.3613145.

# %% [markdown]
# Everything in this lesson can also fail together. `minigrad storm --seed 97` trains, with the code of the
# library, on a simulated cluster: the seed draws which ranks are killed and when, also while they save or
# load, which links are cut, and when the power fails. After each recovery the weights must be those of the
# undisturbed training, bit for bit.

# %%
print(f"\nFigures: {FIGURES}/")
