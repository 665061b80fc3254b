"""A Slurm job: how many ranks it has room for, and the srun that starts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple

from ..process.cores import counts
from ..process.launcher import mpi_library, step_tasks

# The plugin that srun needs, by a word in the MPI library's version text; the first match counts.
PLUGINS = {"Open MPI": "pmix", "CRAY MPICH": "cray_shasta"}
PLUGINS |= dict.fromkeys(("MPICH", "MVAPICH", "Intel"), "pmi2")
TIMEOUT = 20  # seconds that Slurm's controller may take to answer
# Start ranks on this machine without a step of srun, which would wait for the CPUs that this step holds.
LOCAL = {"HYDRA_LAUNCHER": "fork", "PRTE_MCA_plm": "^slurm", "PRTE_MCA_ras": "^slurm"}


class Job(NamedTuple):
    """The job that this process runs in; ``cpus`` is 0 where Slurm does not report it."""

    number: str
    nodes: int
    cpus: int

    def check(self, ranks: int) -> None:
        """Raise ValueError where the job has fewer CPUs than ranks."""
        if 0 < self.cpus < ranks:
            raise ValueError(
                f"{ranks} ranks need {ranks} CPUs, and Slurm job {self.number} has {self.cpus}; "
                f"start {self.cpus}, or give sbatch or salloc -n {ranks}"
            )

    def srun(self, mpiexec: bool) -> list[str] | None:
        """The start of the command that runs ranks by srun; None where ``mpiexec`` is the safer choice.

        srun itself reads SLURM_MPI_TYPE. A srun that lists pmix may still fail to load it, so Open MPI's own
        mpiexec is preferred where there is one. So is MPICH's on several nodes: the addresses that MPICH 5
        exchanges between nodes can be longer than the lines that Slurm's pmi2 reads.
        """
        start = ["srun", "--kill-on-bad-exit", "--quit-on-interrupt", "--export=ALL"]
        if shutil.which("srun") is None:
            return None
        if "SLURM_MPI_TYPE" in os.environ:
            return start
        library = mpi_library()
        plugin = next((plugin for word, plugin in PLUGINS.items() if word in library), None)
        unsafe = plugin == "pmix" or (plugin == "pmi2" and self.nodes > 1)
        if plugin in plugins() and not (unsafe and mpiexec):
            return [*start, f"--mpi={plugin}"]
        return None if mpiexec else start

    def variables(self, ranks: int) -> dict[str, str]:
        """Variables for srun, which since Slurm 22.05 no longer inherits sbatch's CPUs per task."""
        each = os.environ.get("SLURM_CPUS_PER_TASK", "")
        fits = each.isdecimal() and int(each) * ranks <= self.cpus
        return {"SRUN_CPUS_PER_TASK": each} if fits else {}


def find_job() -> Job | None:
    """The job of this script or shell; None outside Slurm, and inside a step, which holds the job's CPUs."""
    if "SLURM_JOB_ID" not in os.environ or step_tasks() is not None:
        return None
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    return Job(
        os.environ["SLURM_JOB_ID"],
        max(int(nodes), 1) if nodes.isdecimal() else 1,
        sum(counts(os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))),
    )


def plugins() -> list[str]:
    """The plugins by which srun can connect ranks, from its own list; empty without a list."""
    return re.findall(r"^(?:srun:)?\s+(\w+)\s*$", output("srun", "--mpi=list"), re.MULTILINE)


def default_plugin() -> str:
    """The plugin by which srun connects ranks by default."""
    match = re.search(r"^MpiDefault\s*=\s*(\S+)", output("scontrol", "show", "config"), re.MULTILINE)
    return match[1] if match else "unknown"


def output(*command: str) -> str:
    """The output and errors of one of Slurm's commands; empty where it cannot run."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{result.stdout}\n{result.stderr}"
