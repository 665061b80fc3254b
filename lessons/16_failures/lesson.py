"""Lesson 16. Failures: checkpoints that survive crashes.

Lecture section: parallelism at scale, what fails. A training of a week on a thousand machines sees failures
every day. This lesson shows a file that was written in part; every state in which a crash can leave four
programs that save; how often to save, by measured times; checkpoints in the memory of other ranks; and a
training of four ranks that continues on three. Survey: Elnozahy et al. 2002, doi:10.1145/568522.568525.

The slide asks: what remains of a training when a machine fails in the middle of a step, or of a save?

You need: lesson 05, the ring; lesson 06, ZeRO; lesson 15, Young's interval; what a file and a folder are.

Time: about 40 minutes; the program runs for about 5 seconds.

After this you can: list the states in which a crash can leave a program that saves; order writes, syncs and
renames so that no crash loses a checkpoint; compute how often to save; compute what copies and parity in the
memory of other ranks send, hold and survive.

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
# A *checkpoint* is the state of a training, saved so that another program can continue from it: weights, the
# optimizer's numbers, the step. A program that writes a file gives its bytes to the operating system, which
# puts them onto the disk some seconds later, in blocks, in any order. If the power fails before the last
# block is written, only a part of the file is there. This is a *torn write*.
#
# Here is the file of one rank, in the format safetensors: 8 bytes give the length of the header, the header
# gives the name, the shape and the place of each array, and then come the numbers. The last 20 bytes get
# lost. Next to the files of all ranks a checkpoint has a *manifest*, a list of these files with their sizes
# and *checksums*. A checksum is a number computed from all bytes of a file, here the CRC-32: if any bytes
# change, it almost surely changes, too.
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

# %%
figures.save(drawings.torn(written, LENGTH), FIGURES / "torn.png")

# %% [markdown]
# A program that only knows the format sees that the cut file is too short. But the disk may have reserved
# room for the whole file without filling it. Then the last bytes are zeros, the length is right, and the
# weights load without an error: the training continues with wrong weights.
#
# The checksum in the manifest detects both. So checksums are not there for the rare cosmic ray; they tell a
# whole file from a torn one.

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
# A checksum detects a torn file; it does not bring the old file back. All files that are saved after the same
# step are one *generation*. Which programs keep the old generation until the new one is safe? We need not
# argue, we can count. A *recorded disk* keeps the list of a program's operations: make a name, write, rename,
# remove, and *sync*, which returns when the bytes of a file, or the names in a folder, are safe on the disk.
# A crash may come after any operation. What was synced stays; of everything else any part may be lost, in any
# order. The list is short, so all these states can be tried.
#
# Four programs save the second generation of two ranks, while the first one is on the disk:
#
# - *over the old files*: each rank writes into its old file, and syncs it;
# - *rename without sync*: each rank writes a new file, and renames it over the old one;
# - *remove, then rename*: all files go into a new folder, synced; the old folder is removed, and the new one
#   gets its name;
# - `Checkpoints`, the library's: each rank writes and syncs a file in a new folder; rank 0 adds a manifest
#   with checksums, renames the folder once, syncs the name, and only then removes the old folder.
#
# After each crash a reader loads what is there. It gets the *old* generation, the *new* one, a *mix* of both,
# or *nothing*.

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

# %%
figures.save(drawings.crash_states(crashes), FIGURES / "crash_states.png")

# %% [markdown]
# The first program can leave a mix: rank 0's weights of one generation and rank 1's of the other, in two
# whole files. It loads without an error. The second program is a surprise: a rename is atomic, and yet the
# new name may be on the disk before the bytes that it names. In the third program all bytes are safe at every
# moment, but for a moment no name leads to them. (PyTorch's distributed checkpoint does the same: in version
# 2.13 it removes its list of files before it renames the new one.) Here is that moment:

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
# The fourth program follows two rules. The bytes are safe before a name leads to them; and the old generation
# goes only after the new name is safe. Assignment [a9](../assignments/a9_checkpoint/README.md) asks you to
# write such a program. (In the count rank 1 writes before rank 0, so that the list of operations is the same
# in each run. Other orders of the ranks are tried by the tests.)
#
# Read: Pillai et al. 2014, sections 3 and 4; Mohan et al. 2018, "Finding crash-consistency bugs with bounded
# black-box crash testing" (OSDI): short programs, tried in full, find most bugs of file systems.
#
# ## 3. How often to save, with measured times
# With C seconds to save and M seconds between failures, on average, an interval of sqrt(2 C M) between two
# saves loses the least time: this is Young's interval (lesson 15). There C was given. Now we measure it on
# this machine, for a network with Adam, in three ways:
#
# - a save *on the disk*, while the training waits;
# - a save *in the background*: the training waits only until its arrays are copied, and another thread writes
#   them to the disk;
# - a copy *in a partner's memory*: another rank keeps it (part 4). Here that rank is a thread; between hosts
#   a link would add the time to send n bytes.

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
megabytes = len(save(STATE)) / 1e6
print(f"   {megabytes:.1f} MB; a failure every {FAILURES:.2f} s, 200 times as long as a save on the disk")

# %% [markdown]
# The table compares Young's interval, and Daly's, which is computed to a higher order, with the best of 27
# intervals in a simulation of 100,000 failures. One thing is easily forgotten: a copy in the background is
# not a checkpoint yet. It is durable only when the disk has it, a time d later. A failure before that moment
# falls back to the generation before. The formula of the lost time, `waste`, has no such delay; with it the
# share of useful time is multiplied by exp(-d / M), whatever the interval is. (Intervals shorter than d are
# left out: there the training would have to wait for the disk.)

# %%
LATE = {"in the background": on_disk - background}  # seconds from the copy until it is durable
lives = np.random.default_rng(0).exponential(FAILURES, 100_000)
kinds = {}
print("                              a save    Young's     Daly's  best found     lost")
for name, cost in COSTS.items():
    best, late = young(cost, FAILURES), LATE.get(name, 0.0)
    seconds = best * np.geomspace(0.15, 7, 27)
    seconds = seconds[seconds > late]
    durable = np.maximum(lives - late, 0)
    simulated = np.array([1 - np.floor(durable / (t + cost)).sum() * t / lives.sum() for t in seconds])
    formula = 1 - (1 - waste(seconds, cost, FAILURES)) * math.exp(-late / FAILURES)
    kinds[name] = seconds, formula, simulated, best
    least = seconds[simulated.argmin()]
    times = "".join(f"{1e3 * t:8.1f} ms" for t in (cost, best, daly(cost, FAILURES), least))
    print(f"   {name:22}{times}{simulated.min():9.1%}")
    off = abs(simulated - formula).max()
    assert off < 0.01, f"{name}: simulated and formula differ by {off:.1%}, allowed 1%"
    assert 0.6 < least / best < 1.6, f"{name}: best {least:.4f} s, Young {best:.4f} s"

# %%
figures.save(drawings.intervals(kinds, FAILURES), FIGURES / "intervals.png")

# %% [markdown]
# To first order the least loss is the share sqrt(2 C / M) of the time: if a save takes 1/200 of the time
# between failures, a tenth is lost. So systems save often in memory, and seldom on the disk, for the failures
# that memory does not survive. (Which of the last two ways costs less depends on the machine.)
#
# Does this hold for a training? The next one runs on a virtual clock on which a step takes a quarter of a
# save. Its hosts fail at drawn times, 30 saves apart on average. Each failure ends the program; the next host
# reads the newest checkpoint and continues. At the end the weights must equal the weights of a training
# without failures, bit for bit. A program that forgets to save anything, for example the mean of Adam's
# gradients, would end with other weights.

# %%
STEPS, LIFETIME = 240, 30.0
lifetimes = np.random.default_rng(3).exponential(LIFETIME, 1000)
undisturbed = training.train_with_failures(STEPS, STEPS, [math.inf], Path("/run"))
best = round(young(1.0, LIFETIME) / training.STEP)
INTERVALS = 2, best, 120
print(f"   {STEPS} steps on hosts that fail; Young's interval is {best} steps")
print("   interval   failures   steps computed     time      lost")
for interval in INTERVALS:
    run = training.train_with_failures(STEPS, interval, lifetimes, Path("/run"))
    lost_time = 1 - STEPS * training.STEP / run.time
    print(f"   {interval:5} steps {run.failures:7} {run.steps:14} {run.time:11.1f} saves {lost_time:7.1%}")
    same = all(np.array_equal(run.weights[name], undisturbed.weights[name]) for name in run.weights)
    assert same and run.steps >= STEPS, f"{run.steps} steps, {run.failures} failures: other weights"
    clock = training.clock_with_failures(STEPS, interval, lifetimes)
    assert clock == (run.steps, run.failures, run.time), f"{clock} from the times alone"

# %% [markdown]
# One draw of failures proves little: with luck no host fails at all. The clock alone, without the training,
# is fast enough for 400 draws. (`clock_with_failures` in training.py; the cell above has compared it with the
# training.)

# %%
draws = np.random.default_rng(16).exponential(LIFETIME, (400, 1000))
lost_times = np.array(
    [
        [1 - STEPS * training.STEP / training.clock_with_failures(STEPS, n, draw).time for n in INTERVALS]
        for draw in draws
    ]
)
means = lost_times.mean(axis=0)
wins = np.mean(lost_times.argmin(axis=1) == INTERVALS.index(best))
print(f"   {len(draws)} draws, lost on average: " + ", ".join(f"{share:.1%}" for share in means))
print(f"   Young's interval is the best of the three in {wins:.0%} of the draws")
assert means.argmin() == INTERVALS.index(best), f"lost on average by {INTERVALS}: {means}"

# %% [markdown]
# Read: Young 1974, doi:10.1145/361147.361115; Daly 2006, doi:10.1016/j.future.2004.11.016.
#
# ## 4. Lose a host, lose nothing
# If a *host*, one of the machines, fails, its memory is gone; the memory of the other hosts is not. So each
# rank can give what it has to save, its *piece* of n bytes, to another host:
#
# - a **partner's copy**: a rank sends n bytes, and holds the copy of another rank's piece, n bytes;
# - **parity**: with h hosts, a piece is cut into h - 1 parts. Each other host gets one part, and holds only
#   the *exclusive or* of all parts that it gets: n / (h - 1) bytes. (The exclusive or of two bits is 1 if
#   they differ. So x xor y xor y is x.) If one host is missing, the exclusive or of the parity and of all
#   parts that are left is the lost part. Disks of a RAID 5 work like this.
#
# A ring reduce-scatter (lesson 05) with exclusive or in place of the sum computes the parity, and sends n
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


# %%
n = len(pieces[0])
width = math.ceil((8 + n) / (HOSTS - 1))  # a piece carries its length, 8 bytes
FORMULAS = {PartnerCopies: (n, n), XorParity: ((HOSTS - 1) * (width + 8), width)}
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

# %%
figures.save(drawings.holders(RANKS, HOSTS), FIGURES / "holders.png")

# %% [markdown]
# Each host in turn was lost, and all pieces came back, byte for byte. If two hosts are lost, parity cannot
# bring their pieces back, and a program must say so instead of returning wrong bytes. The library does:

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
# A host can also fail while the ranks save. So each rank holds two generations until all ranks have the new
# one: this is the second rule of part 2, in memory.
#
# Read: Moody et al. 2010 (SCR), "Design, modeling, and evaluation of a scalable multi-level checkpointing
# system" (SC), sections 2 and 3; Patterson, Gibson and Katz 1988 (RAID), doi:10.1145/50202.50214.
#
# ## 5. Four ranks continue as three
# The lost host need not be replaced. A piece holds a share of what *one* machine would save, so any number of
# ranks can divide the whole again (lesson 15). Four ranks train with ZeRO and Adam; every 4 steps each rank
# saves its piece in its own memory and in its partner's. Rank 2 fails in the middle of a step: it has
# computed its forward pass, and the other ranks wait for its gradients. These three restore all four pieces,
# divide them by three, and repeat the steps since the checkpoint. All losses are compared with those of one
# machine.

# %%
print("\n5. Four ranks continue as three")
serial: dict[int, float] = {}
[(_, reference)] = run_ranks(1, lambda comm: training.train(comm, None, serial))
memories = [PartnerCopies() for _ in range(4)]
before, lost = {}, (2, 10)  # rank 2, in the step after ten
try:
    run_ranks(4, lambda comm: training.train(comm, memories[comm.rank], before, lost=lost), seed=0)
except training.Failure:
    print(f"   four ranks: rank 2 fails in step {lost[1] + 1}; rank 0 has seen {len(before)} losses")
survivors = [memory for rank, memory in enumerate(memories) if rank != 2]
after = {}
results = run_ranks(3, lambda comm: training.train(comm, survivors[comm.rank], after, resumes=True))
start, weights = results[0]
print(f"   three ranks: from the checkpoint of step {start} to step {len(training.BATCHES)}")
off = max(abs(serial[step] - loss) for losses in (before, after) for step, loss in losses.items())
furthest = max(float(np.abs(weights[name] - reference[name]).max()) for name in weights)
print(f"   losses within {off:.0e} of one machine, weights within {furthest:.0e}")
assert (start, len(after)) == (8, 10), f"from step {start}, {len(after)} steps; expected 8 and 10"
assert len(before) == lost[1], f"{len(before)} losses of four ranks, expected {lost[1]}"
assert off < 1e-12 and furthest < 1e-12, (
    f"losses differ by {off:.1e}, weights by {furthest:.1e}, allowed 1e-12"
)

# %%
figures.save(
    drawings.shrunk([*serial.values()], [*before.values()], [*after.values()], lost[1], start),
    FIGURES / "shrunk.png",
)

# %% [markdown]
# Under MPI the three ranks must first agree on who is left, and get a communicator without the lost rank: the
# *shrink* of ULFM, an extension of MPI. A job without it starts again on fewer ranks, with
# `minigrad train --resume DIR`.
#
# All failures of this lesson can also come together. `minigrad storm --seed 97` trains, with the code of the
# library, on a simulated cluster. The seed draws which ranks are killed and when, also while they save or
# load, which links are cut, and when the power fails. After each recovery the weights must equal the
# weights of the undisturbed training, bit for bit.
#
# Read: Bland et al. 2013, "Post-failure recovery of MPI communication capability" (ULFM),
# doi:10.1177/1094342013488238; Wang et al. 2023 (Gemini), "Fast failure recovery in distributed training with
# in-memory checkpoints" (SOSP), doi:10.1145/3600006.3613145.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - After a loss of power at any operation of a training's saves, on one rank or several, `Checkpoints`
#   restores the old or the new generation, whole: [tests](../../tests/backends/checkpoint/test_power.py).
# - A file that is cut, zeroed, changed or missing is refused, and the generation before it is restored:
#   [tests](../../tests/backends/checkpoint/test_corruption.py).
# - A resumed training has the weights of an undisturbed one, bit for bit, on as many ranks, and up to
#   rounding on another number: [tests](../../tests/backends/checkpoint/test_resume.py).
# - Copies and parity restore all pieces after the loss of any one host, and send and hold as many bytes as
#   their formulas: [tests](../../tests/backends/checkpoint/test_memory.py).
# - Daly's interval loses the least time by the formula, for any save and any failures, and Young's is its
#   limit for short saves: [tests](../../tests/minigrad_course/shared/test_lesson_formulas.py).
#
# Proved only by this lesson's assertions, for its cases: what the three wrong programs lose; that the formula
# of the lost time agrees with a simulation, also for a save in the background; and that Young's interval is
# the best of three on average over 400 draws. Nothing is proved about speed: the seconds of part 3 are
# measured on your machine.
#
# Next: [lesson 17](../17_sequences/lesson.py): a transformer, the network of large trainings today, whole
# and on several ranks.
