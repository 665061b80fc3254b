"""What never ends elsewhere ends here: each rank that waits says for whom, with which tag, at which line."""

import json
import re

import pytest

from .conftest import Processes

START = """import sys, time
import numpy as np
from backends.comm import broadcast
from backends.comm.collectives import alltoall, gather, naive_allreduce, reduce_scatter
from backends.comm.mpi import MPIComm
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
comm = MPIComm()
rank, other, x = comm.rank, 1 - comm.rank, np.ones(3)
"""
# Each program, the line marked "# here" at which it stops, and what each rank that waits must say.
DEADLOCKS = {
    "both receive first": (
        "comm.recv(other, tag=3)  # here\ncomm.send(x, other, tag=3)",
        {0: "to receive from rank 1 (tag 3)", 1: "to receive from rank 0 (tag 3)"},
    ),
    "tags differ": (
        "comm.send(x, other, tag=5 + rank)\ncomm.recv(other, tag=5 + rank)  # here",
        {0: "to receive from rank 1 (tag 5)", 1: "to receive from rank 0 (tag 6)"},
    ),
    "declared and posted, never sent": (
        "done = comm.start_recv(other, tag=4, expect=np.zeros(100_000))\ndone()  # here",
        {0: "to receive from rank 1 (tag 4)", 1: "to receive from rank 0 (tag 4)"},
    ),
    "nobody sends to anyone": (
        "comm.recv_any(tag=8)  # here",
        {0: "to receive from any rank (tag 8)", 1: "to receive from any rank (tag 8)"},
    ),
    "nobody receives": (
        "done = comm.start_send(np.zeros(4_000_000), other, tag=2)\ndone()  # here",
        {0: "to send to rank 1 (tag 2)", 1: "to send to rank 0 (tag 2)"},
    ),
    "a rank is missing in a collective": (
        "comm.allreduce(x) if rank == 0 else time.sleep(60)  # here",
        {0: "for all ranks to all-reduce float64(3,)"},
    ),
    "a rank is missing in MPI's broadcast": (
        "time.sleep(60) if rank == 0 else comm.collective(broadcast, x)  # here",
        {1: "for all ranks to broadcast from rank 0"},
    ),
    "a rank is missing in MPI's gather": (
        "comm.collective(gather, x) if rank == 0 else time.sleep(60)  # here",
        {0: "for all ranks to gather on rank 0"},
    ),
    "a rank is missing in MPI's all-to-all": (
        "comm.collective(alltoall, [x, x]) if rank == 0 else time.sleep(60)  # here",
        {0: "for all ranks to exchange all-to-all"},
    ),
    "a rank is missing in the window": (
        "window = SharedMemoryAllreduce(comm)\nwindow(comm, x) if rank == 0 else time.sleep(60)  # here",
        {0: "for rank 1 to all-reduce"},
    ),
    "a rank is missing in a split": (
        "comm.split(0) if rank == 0 else time.sleep(60)  # here",
        {0: "for all ranks to split"},
    ),
    "a rank returns early": (
        "if rank == 1: sys.exit()\ncomm.recv(other, tag=1)  # here",
        {0: "to receive from rank 1 (tag 1)"},
    ),
    "two collectives in another order": (
        "comm.allreduce(x) if rank == 0 else broadcast(comm, x)  # here",
        {0: "for all ranks to all-reduce float64(3,)", 1: "to receive from rank 0 (tag"},
    ),
    "one waits long before the other does": (
        "time.sleep(0.4 * rank)\ncomm.recv(other, tag=3)  # here",
        {0: "to receive from rank 1 (tag 3)", 1: "to receive from rank 0 (tag 3)"},
    ),
}


EARLY = "a rank returns early"
ENDS = ("both receive first", EARLY)
IN_A_JOB = [kind if kind in ENDS else pytest.param(kind, marks=pytest.mark.thorough) for kind in DEADLOCKS]


def every_rank_that_waits_says_for_what(text, waits, number):
    lines = [line for line in text.splitlines() if line.startswith("minigrad: rank")]
    assert len(lines) == len(waits), text
    for rank, what in waits.items():
        start = rf"minigrad: rank {rank} waited [\d.]+ s, since [\d:]+, "
        pattern = rf"{start}{re.escape(what)}.* at script.py:{number}$"
        assert any(re.match(pattern, line) for line in lines), (pattern, lines)


def marked_line(program):
    return next(i for i, text in enumerate(program.splitlines(), 1) if "# here" in text)


@pytest.mark.parametrize("kind", IN_A_JOB)
def test_a_deadlock_ends_and_every_rank_that_waits_says_for_what(processes, kind):
    program, waits = DEADLOCKS[kind]
    job = processes.ranks(2, START + program, seconds=30, MINIGRAD_TIMEOUT="0.5")
    assert job.status != 0
    every_rank_that_waits_says_for_what(job.err, waits, marked_line(START + program))


# One job runs many programs, where an error ends no rank: each rank notes what it says, and its error.
IN_TURN = """
import contextlib, io, json, os
from backends.comm import mpi_wait
from backends.comm.mpi import MPI
mpi_wait.GRACE = 0.0
world, alarm, notes = MPI.COMM_WORLD, comm.last_tag + 1, {{}}
for program in {programs!r}:
    comm, text = MPIComm(world.Dup()), io.StringIO()
    with contextlib.redirect_stderr(text):
        try:
            exec(compile(program, "script.py", "exec"))
        except Exception as error:
            print(error, file=sys.stderr)
    notes[program] = text.getvalue()
    world.Barrier()  # whatever alarms there are have come
    while world.Iprobe(tag=alarm):
        world.Recv(bytearray(0), tag=alarm)
    world.Barrier()
with open(f"notes.{{rank}}", "w") as file:
    json.dump(notes, file)
world.Barrier()
sys.exit(1)  # so MPI ends the job, and does not wait for the messages that no rank receives
"""


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """Runs programs one after the other on two ranks; what the two said in each."""

    def run(programs, **variables):
        processes = Processes(tmp_path_factory.mktemp("in_turn"))
        processes.ranks(2, START + IN_TURN.format(programs=programs), **variables)
        notes = [
            json.loads((processes.folder / f"notes.{rank}").read_text(encoding="utf-8")) for rank in range(2)
        ]
        return {program: notes[0][program] + notes[1][program] for program in programs}

    return run


HERE = {  # a rank that is missing waits for the other one at the end
    kind: (program.replace("time.sleep(60)", "None"), waits)
    for kind, (program, waits) in DEADLOCKS.items()
    if kind != EARLY
}


@pytest.fixture(scope="module")
def reports(in_turn):
    return in_turn([program for program, _ in HERE.values()], MINIGRAD_TIMEOUT="0.5")


@pytest.mark.parametrize("kind", HERE)
def test_every_rank_that_waits_says_for_what(reports, kind):
    program, waits = HERE[kind]
    every_rank_that_waits_says_for_what(reports[program], waits, marked_line(program))


@pytest.mark.thorough
def test_a_circle_of_three(processes):
    script = START + "comm.recv((rank + 1) % 3, tag=rank)\n"
    job = processes.ranks(3, script, seconds=30, MINIGRAD_TIMEOUT="0.5")
    assert job.status != 0
    for rank in range(3):
        assert f"to receive from rank {(rank + 1) % 3} (tag {rank}) at script.py:9" in job.err


MISMATCHES = {
    "comm.allreduce(np.ones(3 + rank, 'float32'))": "rank 0 has float32(3,), rank 1 has float32(4,)",
    "comm.allreduce(np.ones(3, f'float{32 + 32 * rank}'))": "rank 0 has float32(3,), rank 1 has float64(3,)",
    "comm.collective(reduce_scatter, [x, np.ones(3 + rank)])": "float64(4,) in one reduce-scatter",
    "comm.collective(reduce_scatter, [x, np.ones(3, f'f{4 + 4 * rank}')])": "float64(3,), float32(3,)",
    "comm.collective(alltoall, [x] * 3)": "an all-to-all among 2 ranks needs 2 parts, got 3",
    "SharedMemoryAllreduce(comm)(comm, np.ones((50_000, 2 + rank)))": "rank 0 has float64(50000, 2), rank 1",
    "comm.allreduce(np.ones(50_000 + rank))": "rank 0 has float64(50000,), rank 1 has float64(50001,)",
    "comm.recv(0, expect=x) if rank else comm.send(np.ones(4), 1)": "rank 0 sent float64(4,) with tag 0",
    "comm.recv(0, expect=x) if rank else comm.send(np.ones(70_000), 1)": "sent float64(70000,) with tag 0",
    "comm.recv(0, expect=np.ones(70_000)) if rank else comm.send(x, 1)": "rank 0 sent float64(3,) with tag 0",
    "comm.recv(0, expect=np.ones(70_000)) if rank else comm.send(np.ones(80_000), 1)": "sent float64(80000,)",
    "comm.recv(0, expect=np.ones(80_000)) if rank else comm.send(np.ones(70_000), 1)": "sent float64(70000,)",
    "comm.recv(0, expect=np.ones(7000)) if rank else comm.send(np.ones(7000, 'i8'), 1)": "sent int64(7000,)",
}


@pytest.fixture(scope="module")
def mismatches(in_turn):
    return in_turn(list(MISMATCHES), MINIGRAD_TIMEOUT="5", MINIGRAD_CHECK="messages")


@pytest.mark.parametrize("call", MISMATCHES)
def test_sizes_that_differ_are_named_on_both_sides(mismatches, call):
    assert MISMATCHES[call] in mismatches[call]


def test_sizes_that_differ_end_the_job(processes):
    call = next(iter(MISMATCHES))
    job = processes.ranks(2, START + call, seconds=30, MINIGRAD_CHECK="messages")
    assert job.status != 0
    assert MISMATCHES[call] in job.err


def test_a_tag_that_mpi_cannot_carry_is_refused(processes):
    job = processes.ranks(1, START + "comm.send(x, 0, tag=-1)")
    assert job.status != 0 and "an MPI tag must be 0 to " in job.err and "got -1" in job.err
