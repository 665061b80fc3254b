"""A training in a storm: faults drawn from a seed end it again and again, until they stop.

Lecture section: parallelism at scale, what fails. Everything that trains and saves is the
code that ``minigrad train --checkpoint`` runs: the strategies, ``fit``, the checkpoints. Simulated are the
clock, the order in which ranks run, the links, and the disk. The same seed gives the same trace, byte for
byte. FoundationDB and TigerBeetle are tested in this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from random import Random

from backends.checkpoint.checkpoints import generation_names
from backends.comm.collectives.link import Link
from backends.registry import MakeStrategy
from backends.words import counted

from ..crashes.recorded_disk import RecordedDisk
from .event import Event, Life
from .fault import LASTING, Fault, draw_faults
from .host_disk import HostDisk, SharedStorage, power_loss
from .job import FOLDER, STRATEGIES, Job, registered
from .oracle import Oracle, is_of_generation
from .unreliable_cluster import LIMIT, NOTICE, Killed, UnreliableCluster, UnreliableComm

RESTART = 5.0  # seconds from the end of one attempt to the begin of the next
CALM = 120.0  # seconds in which the training ends when no fault is left and no rank waits in vain
LINK = Link(1e-3, 1e8)
JITTER = 0.3  # each computing, message and operation on the disk takes up to 30 % longer


@dataclass(frozen=True)
class Storm:
    """A job and the faults that it meets; ``seed`` draws all else, such as how long things take."""

    seed: int
    job: Job
    faults: tuple[Fault, ...]

    @classmethod
    def of(
        cls,
        seed: int,
        strategy: str | None = None,
        ranks: int | None = None,
        find: Callable[[str], MakeStrategy] = registered,
    ) -> Storm:
        """The storm of a seed, on the strategy and number of ranks that it draws, or on these.

        ``find`` gives the strategy of each name in ``STRATEGIES``.
        """
        random = Random(seed)
        job = Job(
            strategy=random.choice([*STRATEGIES]),
            ranks=random.choice((2, 2, 2, 3)),
            every=random.choice((2, 2, 3)),
            keep=random.choice((1, 2, 2, 3)),
            find=find,
        )
        job = replace(job, strategy=strategy or job.strategy, ranks=ranks or job.ranks)
        return cls(seed, job, tuple(draw_faults(random, job.ranks)))

    def only(self, places: Iterable[int]) -> Storm:
        """The storm with some of its faults, by their places in the list."""
        return replace(self, faults=tuple(self.faults[place] for place in places))

    def run(self) -> Report:
        """Train until the end, or until something is wrong."""
        return Supervisor(self).run()

    def fewest_faults(self) -> list[int]:
        """The places of a part of the faults with which a storm that fails still fails, and no smaller part.

        Faults are left out one by one, again and again, until none of them can be.
        """
        places, before = list(range(len(self.faults))), -1
        while before != len(places):
            before = len(places)
            for place in list(places):
                fewer = [other for other in places if other != place]
                if self.only(fewer).run().problem is not None:
                    places = fewer
        return places


@dataclass
class Report:
    """What happened in a storm; ``problem`` is the first thing that was wrong, or None."""

    storm: Storm
    events: list[Event]
    lives: list[Life]
    problem: str | None
    seconds: float  # of the simulated clock
    restarts: int
    faults: Counter[str]  # those that happened, by kind

    @property
    def share(self) -> str:
        """How many of the storm's faults happened.

        Those after the training's end do not, a bit flip without a checkpoint, nor a kill in a recovery that
        never was.
        """
        return f"{self.faults.total()} of {counted(len(self.storm.faults), 'fault')}"

    @property
    def trace(self) -> str:
        """A line for each event."""
        return "".join(f"{event}\n" for event in self.events)


@dataclass
class Supervisor(SharedStorage):
    """Starts the job, ends it when a rank has failed, and starts it again from the newest checkpoint."""

    storm: Storm
    disk: RecordedDisk = field(default_factory=RecordedDisk)
    events: list[Event] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    now: float = 0.0
    restarts: int = 0
    failures: int = 0  # restarts after a rank had failed; the others were refused, and nothing was lost

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.storm.job, self.events)
        self.pending = [fault for fault in self.storm.faults if fault.kind in ("power failure", "bit flip")]
        self.recovery_kills = [fault for fault in self.storm.faults if fault.kind == "kill in recovery"]
        self.happened: Counter[str] = Counter()
        self.cluster = UnreliableCluster(
            self.storm.job.ranks, LINK, jitter=JITTER, seed=self.storm.seed, faults=self.storm.faults
        )
        self.random = Random(self.storm.seed)
        self.calm = max((fault.end for fault in self.storm.faults), default=0.0)  # when all faults are over
        self.errors: dict[int, BaseException] = {}
        self.kills: dict[int, tuple[float, Fault]] = {}
        self.was_full = False  # whether this attempt has met a full disk

    def run(self) -> Report:
        anew = False
        while True:
            self.advance(self.now)
            self.oracle.begin(self.disk)
            resume = bool(generation_names(self.disk, FOLDER)) and not anew
            self.note(
                None, "start", f"attempt {self.restarts + 1} begins" + (", with --resume" if resume else "")
            )
            ended = self.attempt(resume)
            if ended or self.problem() is not None:
                break
            anew = any(isinstance(error, ValueError) for error in self.refusals())
            self.restarts += 1
            self.failures += not self.refusals()
            self.now += RESTART
        self.advance(self.now)
        self.oracle.begin(self.disk)
        problem = self.problem()
        if ended and problem is None:
            self.note(None, "end", f"the training has ended, after {counted(self.restarts, 'restart')}")
        self.note_lasting_faults()
        self.events.sort(key=lambda event: event.at)  # stable: what happens at once stays in order
        return Report(self.storm, self.events, self.lives, problem, self.now, self.restarts, self.happened)

    def attempt(self, resume: bool) -> bool:
        """Run the job until its end or its failure; whether it has ended as it should."""
        self.errors, self.was_full = {}, False
        self.kills = self.kills_from(self.now)
        self.cluster.notice = self.random.uniform(0.0, NOTICE)
        self.cluster.horizon = self.latest_end
        start, self.cluster.seed = self.now, self.random.getrandbits(32)
        try:
            kills = {rank: at for rank, (at, _) in self.kills.items()}
            self.cluster.attempt(start, kills, lambda comm: self.work(comm, resume))
        except (Exception, Killed) as error:
            if not self.errors:  # no rank's, as of messages that were never received
                self.errors[0] = error
        self.now = self.cluster.seconds
        return not self.errors

    def work(self, comm: UnreliableComm, resume: bool) -> None:
        """One rank's process."""
        disk = HostDisk(self, comm, Random(self.storm.seed + 1000 * self.restarts + comm.rank))
        start, end = comm.time(), "done"
        try:
            self.storm.job.run(comm, disk, self.oracle, resume=resume)
        except Killed as error:
            self.errors[comm.rank], end = error, "stopped"
            at, fault = self.kills.get(comm.rank, (inf, None))
            if fault is not None and at == comm.time():
                end = "killed"
                if fault.kind != "power failure":  # which is noted once
                    self.happen(fault, at)
            raise
        except Exception as error:
            self.errors[comm.rank], end = error, "failed"
            self.note(comm.rank, "error", f"{type(error).__name__}: {error}", comm.time())
            raise
        finally:
            trains = self.oracle.trains.get(comm.rank)
            self.lives.append(Life(comm.rank, start, trains, comm.time(), end))

    def kills_from(self, start: float) -> dict[int, tuple[float, Fault]]:
        """When each rank's process is killed in an attempt that begins at ``start``, and by which fault."""
        kills: dict[int, tuple[float, Fault]] = {}

        def kill(rank: int, at: float, fault: Fault) -> None:
            if rank not in kills or at < kills[rank][0]:
                kills[rank] = at, fault

        for fault in self.storm.faults:
            if fault.kind == "kill" and fault.at >= start:
                kill(fault.rank, fault.at, fault)
        for fault in self.pending:
            for rank in range(self.storm.job.ranks if fault.kind == "power failure" else 0):
                kill(rank, fault.at, fault)
        for fault in [fault for fault in self.recovery_kills if fault.at <= start]:
            self.recovery_kills.remove(fault)
            kill(fault.rank, start + fault.seconds, fault)
            self.calm = max(self.calm, start + fault.seconds)
        return kills

    # What may be

    @property
    def latest_end(self) -> float:
        """When the training must have ended: a wait may last until its limit, then the job starts again."""
        return self.calm + LIMIT + CALM

    @property
    def most_restarts(self) -> int:
        """A kill costs a restart at most, a pause or partition one for each time limit of a wait."""
        costs = {"kill": 1, "kill in recovery": 1, "power failure": 1}
        lasting = ("pause", "partition")
        return sum(
            1 + int(fault.seconds // LIMIT) if fault.kind in lasting else costs.get(fault.kind, 0)
            for fault in self.storm.faults
        )

    def problem(self) -> str | None:
        """The first thing that is wrong, in one sentence."""
        if self.oracle.problems:
            return f"not safe: {self.oracle.problems[0]}"
        for rank, error in sorted(self.errors.items(), key=lambda item: item[0]):
            if not (isinstance(error, Killed | TimeoutError) or self.is_refusal(error)):
                return f"not safe: rank {rank} ended with {type(error).__name__}: {error}"
        if self.now >= self.latest_end:
            return f"not live: the training has not ended {LIMIT + CALM:.0f} s after the last fault"
        if self.failures > self.most_restarts:
            return (
                f"not live: ranks failed {self.failures} times, and these faults explain {self.most_restarts}"
            )
        return None

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the job rightly did not begin: nothing is whole to resume from, or the disk is full."""
        if isinstance(error, ValueError):
            return "no checkpoint in" in str(error) and self.oracle.newest == 0
        return isinstance(error, OSError) and "cannot write into" in str(error) and self.was_full

    def refusals(self) -> list[BaseException]:
        return [error for error in self.errors.values() if self.is_refusal(error)]

    # The shared file system

    def advance(self, now: float) -> None:
        while self.pending and self.pending[0].at <= now:
            fault = self.pending.pop(0)
            if fault.kind == "bit flip":
                self.flip_bit(fault)
            else:
                self.disk = power_loss(self.disk, Random(fault.draw))
                self.happen(fault, fault.at)

    def flip_bit(self, fault: Fault) -> None:
        """Change one bit of a file of a checkpoint, if there is one."""
        files = {file: x for file, x in self.disk.files().items() if x and is_of_generation(file)}
        if not files:
            return
        random = Random(fault.draw)
        file = random.choice(sorted(files))
        content = bytearray(files[file] or b"")
        place = random.randrange(8 * len(content))
        content[place // 8] ^= 1 << place % 8
        self.disk.fill(file, bytes(content))
        self.disk.fsync(file)
        self.oracle.damaged.add(file.parent.name)
        self.happen(fault, fault.at, f": bit {place} of {file.parent.name}/{file.name}")

    def is_full(self, now: float) -> bool:
        full = any(f.kind == "disk full" and f.at <= now < f.end for f in self.storm.faults)
        self.was_full |= full
        return full

    # Events

    def note(self, rank: int | None, kind: str, text: str, at: float | None = None) -> None:
        self.events.append(Event(self.now if at is None else at, rank, kind, text))

    def note_checkpoint(self, now: float, rank: int, name: str) -> None:
        self.note(rank, "checkpoint", f"wrote {name}", now)
        self.oracle.named.append(name)
        self.oracle.damaged.discard(name)  # of a checkpoint before, which is gone

    def note_sync(self, folder: Path) -> None:
        if folder == FOLDER:
            self.oracle.safe = list(self.oracle.named)

    def happen(self, fault: Fault, at: float, more: str = "") -> None:
        self.happened[fault.kind] += 1
        self.note(None, "fault", fault.text(self.storm.job.ranks) + more, at)

    def note_lasting_faults(self) -> None:
        """Note the lasting faults that began before the end."""
        for fault in self.storm.faults:
            if fault.kind in LASTING and fault.at <= self.now:
                self.happen(fault, fault.at)
