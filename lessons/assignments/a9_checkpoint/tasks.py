"""What assignment a9 is held to: after every crash, and with any file damaged, one whole generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
from minigrad_course.crashes.crash_states import kills
from minigrad_course.crashes.recorded_disk import RecordedDisk
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.submission import on_rank

from backends.comm import Communicator

HERE = Path(__file__).parent
program = load_file(HERE / "program.py", "program_of_a9")
Bytes, Run, Damage = program.Bytes, program.Run, program.Damage


# Task 1


def check_seal(submission: Any, case: Any, comm: Communicator) -> None:
    data = submission.seal(case.content)
    if type(data) is not bytes:
        raise Wrong(f"seal returned {type(data).__name__}, not bytes")
    for what, changed, right in case.changes(data):
        content = on_rank(submission, program.LOADER).unseal(changed)
        if content is not None and type(content) is not bytes:
            raise Wrong(f"unseal returned {type(content).__name__}, not bytes or None")
        if content != right:
            raise Wrong(f"{what}: unseal gives {content!r}, it should be {right!r}; the file is {changed!r}")


# Task 2


def check_save_and_load(submission: Any, case: Any, comm: Communicator) -> None:
    """The newest generation comes back, a generation's number is a number, and old files go."""
    disk, files = RecordedDisk(), 0
    program.gives(submission, disk, case, [None], "on an empty disk")
    for number, step in enumerate(case.steps(case.saves + 3), 1):
        program.save(submission, disk, case, step)
        program.gives(submission, disk, case, [step], f"after the save of step {step}")
        there = len(disk.files())
        if number == 3:
            files = there
        if number > 3 and there > files:
            raise Wrong(
                f"after {number} saves there are {there - 1} files and folders, after 3 there were "
                f"{files - 1}: two generations stay, and older ones go"
            )


# Tasks 3 and 4


def check_kill(submission: Any, case: Any, comm: Communicator) -> None:
    """Killed at each moment; then another run, of other ranks, saves what is next, and that is whole."""
    recorded = program.record(submission, case)
    states: set[Any] = set()
    for length in range(recorded.begun, len(recorded.disk.operations) + 1):
        for number, disk in enumerate(kills(recorded.disk, length)):
            allowed = recorded.allowed(length - (number > 0))
            when = recorded.moment("the program is killed", length, number > 0)
            if program.is_new(states, disk, allowed):
                newest = recorded.gives(submission, disk, allowed, when)
                following = case.steps(1)[0] if newest is None else newest + 1
                goes_on(submission, recorded, disk, following, when, cleans=len(states) % 3 == 1)


def goes_on(
    submission: Any, recorded: Any, disk: RecordedDisk, step: int, when: str, *, cleans: bool
) -> None:
    """Another run saves on what was left, and that is whole; two saves later nothing else is left."""
    other = recorded.case.other_run()
    left = disk.killed(len(disk.operations))
    said = f"{when}, and another run on {program.counted(other.workers, 'rank')} saves step {step}"
    try:
        program.save(submission, disk, other, step)
    except OSError as error:
        raise Wrong(recorded.story(left, f"{said}: save raises {type(error).__name__}: {error}")) from None
    recorded.of_run(other).gives(submission, disk, [step], said)
    if cleans:
        for later in (step + 1, step + 2):
            program.save(submission, disk, other, later)
        there = len(disk.files())
        if there > recorded.files_of_a_run(submission, other):
            said = f"{when}; three saves later there are {there - 1} files and folders, more than without it"
            raise Wrong(recorded.story(disk, said))


def check_power(submission: Any, case: Any, comm: Communicator) -> None:
    """Each subset of what was not synced is lost, and files are cut or zero."""
    recorded = program.record(submission, case)
    states: set[Any] = set()
    for length in range(recorded.begun, len(recorded.disk.operations) + 1):
        for disk in recorded.disk.power_losses(length, draws=30):
            allowed = recorded.allowed(length)
            if program.is_new(states, disk, allowed):
                recorded.gives(submission, disk, allowed, recorded.moment("the power fails", length))


# Task 5


def check_damage(submission: Any, case: Any, comm: Communicator) -> None:
    """One file is another after the last save: a whole generation comes back, if one is left."""
    recorded = program.record(submission, case)
    steps = case.steps(case.saves)
    allowed = [*steps[-2:], *([None] if case.saves == 1 else [])]
    for what, disk in damaged(recorded.disk, case):
        recorded.gives(submission, disk, allowed, what)


def damaged(disk: RecordedDisk, case: Any) -> Iterator[tuple[str, RecordedDisk]]:
    """The disk with one file changed in the way of the case, and what was changed."""
    contents = {path: content for path, content in disk.files().items() if content is not None}
    for path, content in contents.items():
        if case.kind == "missing":
            yield f"{path} is missing", disk.damaged({path: None})
        elif case.kind == "cut":
            for length in range(len(content)):
                yield f"{path} is cut to {length} bytes", disk.damaged({path: content[:length]})
        elif case.kind == "flip":
            for place, byte in enumerate(content):
                flipped = bytes([byte ^ 1 << (place + case.seed) % 8])
                changed = content[:place] + flipped + content[place + 1 :]
                yield f"one bit of byte {place} of {path} is flipped", disk.damaged({path: changed})
        else:
            for other, instead in contents.items():
                if other != path:
                    yield f"{path} holds what {other} held", disk.damaged({path: instead})


# What the tasks have in common

SIZES = st.lists(st.sampled_from([1, 0, 3]), min_size=1, max_size=3).map(tuple)
SAVES, SEEDS = st.integers(1, 3), st.integers(0, 2**16)
RUNS = st.builds(Run, SIZES, SAVES, st.integers(1, 2), SEEDS)
KINDS = st.sampled_from(["missing", "cut", "flip", "swap"])
DAMAGES = st.builds(Damage, SIZES, SAVES, st.integers(1, 2), SEEDS, KINDS)
CONTENTS = st.builds(Bytes, st.binary(max_size=8), st.sampled_from(["cut", "flip", "zero"]))


def nothing_is_saved(name: str) -> Any:
    """A wrong answer: what was saved is in a variable, which a crash does not survive."""
    return SimpleNamespace(
        seal=lambda content: content,
        unseal=lambda data: data,
        save=lambda comm, disk, step, shard: disk.write(f"/{name}", b""),
        load=lambda disk: None,
    )


def task(
    name: str,
    points: int,
    title: str,
    cases: Any,
    check: Callable[[Any, Any, Communicator], None],
    *parts: Part,
    examples: int = 12,
) -> Task:
    return Task(name, points, title, cases, check, nothing_is_saved(name), examples=examples, parts=parts)


SUPPLIED = Part("with seal and unseal of the answers", 1.0, supplied=("seal", "unseal"))
ALONE = Part("on one rank", 0.5, lambda case: case.workers == 1)

TASKS = (
    task(
        "seal",
        15,
        "a file that tells whether it is whole",
        CONTENTS,
        check_seal,
        Part("where a file was cut", 0.4, lambda case: case.kind == "cut"),
        examples=30,
    ),
    task("save_and_load", 15, "the newest generation, of all ranks", RUNS, check_save_and_load, SUPPLIED),
    task("kill", 20, "killed at any moment", RUNS, check_kill, SUPPLIED, ALONE),
    task("power", 30, "a loss of power at any moment", RUNS, check_power, SUPPLIED, ALONE),
    task(
        "damage",
        20,
        "a file is damaged",
        DAMAGES,
        check_damage,
        SUPPLIED,
        Part("where a file is missing", 0.3, lambda case: case.kind == "missing"),
        examples=24,
    ),
)
