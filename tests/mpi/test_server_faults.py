"""Processes that are killed while servers train: without a worker the rest goes on, without a server none."""

import inspect
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.backends.data_parallel import trained_apart
from tests.backends.lanes import thorough
from tests.interrupts.interrupted import finish, memory, started

from .conftest import alive, until

SURVIVING = "train --net mlp --batch 250 --transport mpi --data 3 --strategy server --option survive=True"
RUN = [sys.executable, "-m", "backends", "run", "--survive", "-n"]

TRAINING = """
import json, warnings
from backends.data_parallel import ParameterServer


def telling(call):
    def told(*given):
        try:
            return call(*given)
        except RuntimeError as error:
            open(f"{comm.rank}.error", "w").write(str(error))
            raise

    return told


backend = ParameterServer(comm, survive=True, **SETTINGS)
model = backend.place(built(Net, comm.rank))
backend.pull = telling(backend.pull)
backend.update = telling(backend.update)
optimizer = OPTIMIZERS["momentum"](model.parameters())
(batch,) = batches_of([9])
for t in range(STEPS):
    if t == 10:
        open(f"{comm.rank}.steps", "w").close()
    while t == STEPS // 2 and (comm.rank == VICTIM or not os.path.exists("killed")):
        time.sleep(0.01)  # no rank trains on before the signal, and the victim comes no further
    step(backend, model, optimizer, batch)
    time.sleep(0.001)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    backend.finalize(model)
lost = {rank: [one.steps, one.applied, one.reason] for rank, one in backend.lost.items()}
comm.close()
values = np.concatenate([v.reshape(-1) for v in model.state_dict().values()])
result = [backend.staleness_counts.total(), lost], [str(w.message) for w in told], values.tolist()
json.dump(result, open(f"{comm.rank}.json", "w"))
"""


def job(processes, n, victim, settings, steps=60):
    """Training of which rank ``victim`` is killed: the exit status, what each rank told, stderr."""
    script = inspect.getsource(trained_apart).replace("import numpy as np\n", "", 1)
    for name, value in (("SETTINGS", settings), ("STEPS", steps), ("VICTIM", victim)):
        script += f"{name} = {value!r}\n"
    with processes.running(n, script + TRAINING, *RUN, str(n)) as (process, pids):
        until(lambda: all((processes.folder / f"{rank}.steps").exists() for rank in range(n)), 30)
        os.kill(pids[victim], signal.SIGKILL)
        (processes.folder / "killed").touch()
        status = process.wait(30)
        until(lambda: not any(alive(pid) for pid in pids), 5)
    files = {rank: processes.folder / f"{rank}.json" for rank in range(n)}
    return status, {
        rank: json.loads(f.read_text(encoding="utf-8")) for rank, f in files.items() if f.exists()
    }


@pytest.mark.parametrize(
    ("servers", "settings"), [pytest.param(1, {}, marks=pytest.mark.thorough), (2, {"staleness": 1})]
)
def test_the_others_finish_without_a_worker_that_was_killed(processes, servers, settings):
    n, steps = 3 + servers, 60
    status, report = job(processes, n, 1, {"servers": servers, **settings}, steps)
    assert status == 0 and set(report) == set(range(n)) - {1}
    for (total, lost), _, values in report.values():
        ((rank, (made, applied, reason)),) = lost.items()
        assert (rank, reason) == ("1", "it ended without a message")
        assert 10 <= made < steps and made - 1 <= applied <= made
        assert total == 2 * steps + applied
        assert values == report[0][2]
    (warning,) = report[n - servers][1]
    assert warning.startswith("worker 1 left after") and "it ended without a message" in warning


@pytest.mark.parametrize("servers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_all_end_where_a_server_was_killed(processes, servers):
    status, report = job(processes, 2 + servers, 1 + servers, {"servers": servers})
    assert status != 0 and not report
    errors = [file.read_text(encoding="utf-8") for file in processes.folder.glob("*.error")]
    assert errors and all(f"rank {1 + servers}, a server, has ended" in error for error in errors), errors


def test_a_rank_killed_before_anybody_watches_takes_the_others_with_it(processes):
    with processes.running(3, "comm.recv(1) if comm.rank != 1 else time.sleep(60)\n", *RUN, "3") as (
        job,
        pids,
    ):
        os.kill(pids[1], signal.SIGKILL)
        assert job.wait(10) != 0
        until(lambda: not any(alive(pid) for pid in pids), 5)


def test_the_launcher_ends_such_a_job_where_mpiexec_does_not(processes):
    """mpiexec and its proxy are stopped here: they see no end of a rank."""
    with processes.running(3, "comm.recv(1) if comm.rank != 1 else time.sleep(60)\n", *RUN, "3") as (
        job,
        pids,
    ):
        (mpiexec,) = (
            pid
            for pid in children(job.pid)
            if "mpiexec" in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
        )
        for pid in (mpiexec, *children(mpiexec)):
            os.kill(pid, signal.SIGSTOP)
        os.kill(pids[1], signal.SIGKILL)
        assert job.wait(10) == 128 + signal.SIGKILL
        until(lambda: not any(alive(pid) for pid in pids), 5)


def children(pid: int) -> list[int]:
    return [
        int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    ]


def test_what_ends_run_ends_all(processes):
    with processes.running(2, "time.sleep(60)\n", *RUN, "2") as (job, pids):
        job.send_signal(signal.SIGTERM)
        assert job.wait(15) == 128 + signal.SIGTERM
        until(lambda: not any(alive(pid) for pid in pids), 5)


@pytest.mark.parametrize(
    ("rank", "number", "reason"),
    [
        (0, signal.SIGKILL, "it ended without a message"),
        thorough(1, signal.SIGSTOP, "it sent nothing for 5 s, and was killed"),
    ],
)
def test_a_training_survives_rank_0_and_one_that_is_stopped(tmp_path, monkeypatch, rank, number, reason):
    """Another rank writes the results; one that is stopped is ended after MINIGRAD_TIMEOUT seconds."""
    monkeypatch.setenv("MINIGRAD_TIMEOUT", "5")
    for epochs in (6, 60, 300):  # more where a training was over before its rank got the signal
        folder = tmp_path / str(epochs)
        folder.mkdir()
        shared = memory(0.0)
        run = started(folder, f"{SURVIVING} --epochs {epochs}")
        try:
            while not run.figures() and run.process.poll() is None:
                run.read(0.02)
            victim = run.pid_of(f"rank {rank}")
            if victim is not None:
                os.kill(victim, number)
            end = time.monotonic() + 100
            while run.process.poll() is None and time.monotonic() < end:
                run.read(0.05)
        finally:
            finish(run, shared)
        if any(
            json.loads(file.read_text(encoding="utf-8")).get("lost")
            for file in folder.glob("runs/*/metrics.json")
        ):
            break
    assert run.status == 0 and not run.left, run.text
    (file,) = folder.glob("runs/*/metrics.json")
    metrics = json.loads(file.read_text(encoding="utf-8"))
    assert metrics["finished"] and list(metrics["lost"]) == [str(rank)]
    assert metrics["lost"][str(rank)]["reason"] == reason
    assert (file.parent / "curves.png").exists() and f"worker {rank} left" in run.text
