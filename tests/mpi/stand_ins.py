"""Stand-ins for programs that start processes: another MPI's mpiexec, and Slurm's srun."""

import sys
from pathlib import Path

# NAMES: of the variables with a process's rank and the size. Nothing connects the processes; when one fails,
# all are ended, which PMIX_NAMESPACE lets them expect.
MPIEXEC = """
import os, subprocess, sys, time
_, _, n, *command = sys.argv
rank, size = os.environ["NAMES"].split()
world = {**os.environ, "PMIX_NAMESPACE": "stand-in", size: n}
jobs = [subprocess.Popen(command, env={**world, rank: str(i)}) for i in range(int(n))]
while all(job.poll() in (None, 0) for job in jobs) and any(job.poll() is None for job in jobs):
    time.sleep(0.02)
for job in jobs:
    job.terminate()
sys.exit(max(job.wait() != 0 for job in jobs))
"""
# PLUGINS: what --mpi takes, by which the tasks are connected, though in truth by CONNECTS, an mpiexec.
SRUN = """
import os, subprocess, sys
plugins = os.environ["PLUGINS"].split()
if "--mpi=list" in sys.argv:
    sys.exit("\\n\\t".join(["MPI plugin types are...", *plugins]))
at = sys.argv.index("-n")
options, n, command = sys.argv[1:at], sys.argv[at + 1], sys.argv[at + 2:]
step = {**os.environ, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": n, "SLURM_NTASKS": n}
mpi = next((word.removeprefix("--mpi=") for word in options if word.startswith("--mpi=")), "none")
assert mpi in plugins
if mpi != "none":
    mpiexec = os.environ["CONNECTS"]
    os.execve(mpiexec, [mpiexec, "-n", n, *command], {**step, "HYDRA_LAUNCHER": "fork"})
jobs = [subprocess.Popen(command, env={**step, "SLURM_PROCID": str(i)}) for i in range(int(n))]
sys.exit(max(job.wait() for job in jobs))
"""


def put(file: Path, text: str) -> str:
    """The Python program as a file that can be run; its path."""
    file.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    file.chmod(0o755)
    return str(file)
