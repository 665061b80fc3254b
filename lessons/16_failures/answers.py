"""The answers to the questions on lesson 16, and the laws that show them."""

from collections import Counter
from itertools import combinations
from pathlib import Path

from minigrad_course.crashes.recorded_disk import RecordedDisk
from minigrad_course.lesson.questions import Question

from backends.checkpoint.memory_checkpoints import Lost, PartnerCopies, XorParity
from backends.comm import run_ranks
from backends.comm.trace import Traced

OLD, NEW = Path("/old"), Path("/new")
OPERATIONS = {
    "write new": lambda disk: disk.fill(NEW, b"new generation"),
    "sync new": lambda disk: disk.fsync(NEW),
    "rename new to old": lambda disk: disk.rename(NEW, OLD),
    "sync folder": lambda disk: disk.sync_folder(Path("/")),
}


def after_the_save(operations):
    """What is in the file after a loss of power at the end, and how many states have it."""
    disk = RecordedDisk()
    disk.write(OLD, b"old generation")
    disk.sync_folder(Path("/"))
    for name in operations:
        OPERATIONS[name](disk)
    states = Counter()
    for state in disk.power_losses():
        content = state.files().get(OLD, b"")
        states[{b"new generation": "new", b"old generation": "old"}.get(content, "neither")] += 1
    return states


def one_sync_less(student):
    outcomes = after_the_save(student.SAVE)
    shown = ", ".join(f"{count} with {name}" for name, count in outcomes.items())
    words = f"{sum(outcomes.values())} states after the save: {shown}"
    assert student.SAVE == ["write new", "rename new to old", "sync folder"], f"{words}; leave out 'sync new'"
    return f"{words}: the sync of a folder makes its names safe, and the bytes of a file need a sync, too"


def sent_and_held(hosts, n):
    """Bytes that each rank sends, and that it holds for others."""
    memories = [XorParity() for _ in range(hosts)]

    def work(comm):
        traced = Traced(comm)
        memories[comm.rank].save(traced, 1, bytes(n))
        return traced.record.ledger.sent().bytes

    return run_ranks(hosts, work)[0], memories[0].generations[-1].redundancy.nbytes


def more_hosts(student):
    n = 1_000_000
    sent, stored = sent_and_held(student.HOSTS, n)
    words = f"with {student.HOSTS} hosts a rank sends {sent:,} bytes and holds {stored:,}"
    assert student.HOSTS == 11, f"{words}; take 11 hosts"
    return f"{words}: each of its ten parts goes once around the ring, and ten parts are one piece"


def comes_back(lost, ranks):
    """Whether the library restores all pieces."""
    memories = [PartnerCopies() for _ in range(ranks)]
    run_ranks(ranks, lambda comm: memories[comm.rank].save(comm, 1, bytes([comm.rank])))
    left = [memory for rank, memory in enumerate(memories) if rank not in lost]
    try:
        run_ranks(len(left), lambda comm: left[comm.rank].restore(comm))
    except Lost:
        return False
    return True


def survived(student):
    for ranks in (2, 3, 5):
        for count in range(ranks):
            for lost in map(set, combinations(range(ranks), count)):
                own, expected = student.is_restored(lost, ranks), comes_back(lost, ranks)
                assert own is not None and bool(own) == expected, (
                    f"{ranks} ranks, lost {sorted(lost) or 'none'}: your function says {own}, the library "
                    f"{'restores all' if expected else 'cannot'}; write is_restored"
                )
    pairs = [set(pair) for pair in combinations(range(8), 2)]
    bad = sum(not student.is_restored(pair, 8) for pair in pairs)
    return f"{bad} of {len(pairs)} pairs of 8 hosts lose a piece: the neighbors, and 7 and 0 are neighbors"


QUESTIONS = [
    Question("c", one_sync_less, (('["write new", "sync new", "rename', '["write new", "rename'),)),
    Question("a", more_hosts, (("HOSTS = 3", "HOSTS = 11"),)),
    Question(
        "b",
        survived,
        (
            (
                "    return len(lost) < 2\n",
                "    return not any((rank + 1) % ranks in lost for rank in lost)\n",
            ),
        ),
    ),
]
