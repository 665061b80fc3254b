"""What must hold of a training in a storm, compared with the undisturbed run while it goes on.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from backends.checkpoint.checkpoints import Damaged, generation_names, numbers_in, read_generation
from backends.checkpoint.disk import Disk
from minigrad.train import History

from .event import Event
from .job import FOLDER, STEPS, Job, RankState
from .undisturbed import contents_of, undisturbed
from .unreliable_cluster import UnreliableComm

AT_RISK = 2  # checkpoint intervals that a failure may cost: the one in work, and the one being written


class Oracle:
    """Watches a job; ``problems`` holds a sentence for each thing that is not as in the undisturbed run.

    - The state of each rank after a recovery, and after each step, is the undisturbed run's, bit for bit.
    - Each checkpoint on the disk is the undisturbed run's at its step, unless a fault changed it; then it is
      refused.
    - Each step whose checkpoint is due is written, unless a message says why not.
    - The newest ``keep`` checkpoints that were written and synced are there after the failure.
    - A recovery goes on from the newest checkpoint that no fault changed, or a newer one.
    - It loses at most two intervals between checkpoints, and one more for each that could not be written.
    """

    def __init__(self, job: Job, events: list[Event]):
        self.job, self.events = job, events
        self.run = undisturbed(replace(job, every=1, keep=STEPS))
        self.problems: list[str] = []
        self.damaged: set[str] = set()  # names of checkpoints that a fault changed
        self.begins = [0] * job.ranks  # the step at which each rank began its attempt
        self.trains: dict[int, float] = {}  # when each rank had loaded in this attempt
        self.reached = 0  # the last step of rank 0 in this attempt
        self.named: list[str] = []  # checkpoints that got their names in this attempt
        self.safe: list[str] = []  # those of them whose names are synced
        self.unwritten: set[int] = set()  # steps whose checkpoints could not be written in this attempt
        self.whole: dict[str, int | None] = {}  # the steps of the checkpoints when the attempt began
        self.may_lose = 0  # steps that this recovery may lose
        self.before = 0  # the step that the attempt before reached

    # Between attempts

    def begin(self, disk: Disk) -> None:
        """Look at all checkpoints before an attempt."""
        self.may_lose = (AT_RISK + len(self.unwritten)) * self.job.every
        self.whole = {name: self.check_generation(disk, name) for name in generation_names(disk, FOLDER)}
        self.check_safe()
        self.before, self.reached, self.trains = self.reached, 0, {}
        self.named, self.safe, self.unwritten = [], [], set()

    def check_safe(self) -> None:
        """The newest steps that this attempt made safe are whole, but for those that a fault changed."""
        last = {step_of(name): name for name in self.safe}
        for name in list(last.values())[-self.job.keep :]:
            if name not in self.damaged and self.whole.get(name) is None:
                self.say(f"{name} was written and synced, {self.job.keep} are to be kept, and it is gone")

    @property
    def newest(self) -> int:
        """The step of the newest checkpoint before the attempt that no fault has changed; 0 without any."""
        return max((step or 0 for name, step in self.whole.items() if name not in self.damaged), default=0)

    def check_generation(self, disk: Disk, name: str) -> int | None:
        """The step of a checkpoint, None for one that is refused; it must be as it was written."""
        folder = FOLDER / name
        try:
            generation = read_generation(folder, disk)
            arrays, facts = generation.arrays(), generation.facts
        except Damaged as error:
            if name not in self.damaged:
                self.problems.append(f"a checkpoint has its name and is not whole: {error}")
            return None
        step, history = generation.step, facts["history"]
        if contents_of(arrays, facts) != self.run.contents.get(step):
            self.problems.append(f"{name} does not hold what the undisturbed run has at step {step}")
        elif history["losses"] != self.run.losses[0][:step]:
            self.problems.append(f"the losses in {name} are {history['losses']}, not the first {step} ones")
        return step

    # During an attempt

    def on_start(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        step = self.begins[comm.rank] = len(history.losses)
        self.trains[comm.rank] = comm.time()
        if comm.rank == 0:
            self.reached = step
            self.note(comm, "resume", f"trains from step {step}")
            if step < self.newest:
                self.say(f"the training goes on from step {step}, and step {self.newest} is on the disk")
            elif not self.damaged and (lost := self.before - step) > self.may_lose:
                self.say(f"{lost} steps are lost from {self.before} to {step}, and {self.may_lose} may be")
        self.check(comm, history, state, "after a recovery")

    def on_step(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        if comm.rank == 0:
            self.reached = len(history.losses)
            self.note(comm, "step", f"step {self.reached}: loss {history.losses[-1]:.6f}")
        self.check(comm, history, state, "after a step")

    def on_end(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        self.check(comm, history, state, "at the end")
        if len(history.losses) != STEPS:
            self.say(f"rank {comm.rank} ended after {len(history.losses)} of {STEPS} steps")
        if comm.rank == 0:
            steps = range(self.begins[0] + 1, STEPS + 1)
            due = {step for step in steps if step % self.job.every == 0 or step == STEPS}
            if missing := due - self.unwritten - set(map(step_of, self.named)):
                self.say(f"no checkpoint of the steps {sorted(missing)} was written, and no message says why")

    def on_message(self, comm: UnreliableComm, text: str) -> None:
        if failed := re.match("the checkpoint of step ([0-9]+) cannot be written", text):
            self.unwritten.add(int(failed[1]))
            if not re.search("No space left on device|has not written its part within", text):
                self.say(text)
        self.note(comm, "message", text)

    def check(self, comm: UnreliableComm, history: History, state: RankState, when: str) -> None:
        rank, step = comm.rank, len(history.losses)
        begin = self.begins[rank]  # the losses before are those in the checkpoint, which are rank 0's
        if step > STEPS or history.losses != [
            *self.run.losses[0][:begin],
            *self.run.losses[rank][begin:step],
        ]:
            self.say(f"rank {rank} has other losses {when}: {history.losses}")
        elif state != (
            expected := self.run.final(rank) if when == "at the end" else self.run.states[rank][step]
        ):
            self.say(
                f"rank {rank} at step {step}, {when}, has another state in {differences(state, expected)}"
            )

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def note(self, comm: UnreliableComm, kind: str, text: str) -> None:
        self.events.append(Event(comm.time(), comm.rank, kind, text))


def differences(state: RankState, expected: RankState) -> str:
    """The names of what differs."""
    names = [
        name
        for one, other in zip(state, expected, strict=True)
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]
    return ", ".join(names)


def step_of(name: str) -> int:
    """The step of a checkpoint by its name, such as step-00000006.1."""
    return numbers_in(name)[0]


def is_of_generation(path: Path) -> bool:
    """Whether a file belongs to a checkpoint that has its name."""
    return FOLDER in path.parents and path.parent.name.startswith("step-")
