"""Before MPI processes are started their machine is looked at; while they run they speak to nobody else."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends.comm.shared_memory import MPICH_BYTES, check_room_for_ranks
from backends.launch.launch import SCHEDULER_VARIABLES, on_this_machine

ARGUMENTS = ["prove", "--data", "2", "--net", "mlp", "--transport", "mpi"]
PROVE = [sys.executable, "-m", "backends", *ARGUMENTS]


def test_too_little_shared_memory_for_mpi_says_what_else_can_be_done():
    check_room_for_ranks(4, 4 * MPICH_BYTES)
    with pytest.raises(RuntimeError, match=r"4 MPI processes share 21 MB, .* 20 MB free; .*shm-size=2g.*thr"):
        check_room_for_ranks(4, 4 * MPICH_BYTES - 1)


MOUNTED = "mount --make-rprivate / && mount -t tmpfs -o size=1m{options} tmpfs /dev/shm && exec {command}"


@pytest.mark.parametrize(("options", "free"), [("", 1), (",ro", 0)])
def test_a_job_is_refused_before_it_ends_in_a_bus_error(processes, options, free):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("this user may not mount a /dev/shm of its own")
    job = processes.run(
        ["unshare", "-m", "sh", "-c", MOUNTED.format(options=options, command=" ".join(PROVE))]
    )
    assert job.status == 1 and f"2 MPI processes share 11 MB, /dev/shm has {free} MB free; give" in job.err
    assert "starting" not in job.out and len(job.err.splitlines()) == 1, job.err
    with_less = "export MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS=8 UCX_TLS=^posix,tcp; exec "
    if not options:  # what the error says helps
        command = MOUNTED.format(options="", command=" ".join(PROVE)).replace("exec ", with_less)
        job = processes.run(["unshare", "-m", "sh", "-c", command])
        assert job.status == 0 and "PROVED" in job.out, job.err


def test_files_of_the_user_do_not_hide_modules_of_the_commands(processes):
    """A backends.py or random.py in the folder changes neither a proof nor the doctor's report."""
    for name in ("backends.py", "random.py", "numpy.py"):
        (processes.folder / name).write_text(
            "raise SystemExit('the user's file was imported')", encoding="utf-8"
        )
    command = [str(Path(sys.executable).with_name("minigrad"))]
    job = processes.run([*command, *ARGUMENTS])
    assert job.status == 0 and "PROVED" in job.out, job.out + job.err
    job = processes.run([*command, "doctor"])
    assert job.status == 0 and "GB/s" in job.out and "imported" not in job.out + job.err, job.out


def test_the_script_of_the_readme_runs_on_processes_as_on_threads(processes):
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n([^`]*run_on_ranks\(work.*?)```", text, re.DOTALL)
    (processes.folder / "own.py").write_text(script, encoding="utf-8")
    threads = processes.run([sys.executable, "own.py"])
    assert threads.status == 0 and threads.out.count("on 2 ranks: loss") == 3, threads.err
    job = processes.minigrad("run", "-n", "3", "own.py")
    assert job.status == 0 and job.out == threads.out.replace("on 2 ranks", "on 3 ranks"), job.err


LISTENING = """
import os
from pathlib import Path
from backends.comm.mpi import MPIComm

def sockets(process):
    links = set()
    for file in Path(f"/proc/{process}/fd").iterdir():
        try:
            links.add(os.readlink(file))
        except OSError:
            pass
    return links

def listening():
    texts = [Path(f"/proc/self/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [row.split() for text in texts for row in text.splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}

comm = MPIComm()
comm.barrier_with("to look")
own = sockets("self") & listening() - sockets(os.getppid())  # mpiexec's are inherited
comm.close()
print("fine" if not own else f"rank {comm.rank} listens on {len(own)} ports")
"""


def test_ranks_of_one_machine_listen_on_no_port(processes):
    (processes.folder / "script.py").write_text(LISTENING, encoding="utf-8")
    job = processes.minigrad("run", "-n", "2", "script.py")
    assert job.status == 0 and job.out.count("fine") == 2, (job.out, job.err)


def test_ranks_that_a_scheduler_spreads_keep_the_network(monkeypatch):
    for name in ("UCX_TLS", *SCHEDULER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    assert on_this_machine(2)["UCX_TLS"] == "^tcp"
    monkeypatch.setenv("UCX_TLS", "all")
    assert on_this_machine(2)["UCX_TLS"] == "all"
    monkeypatch.delenv("UCX_TLS")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert "UCX_TLS" not in on_this_machine(2)
