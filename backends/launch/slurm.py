"""A Slurm job: how many ranks it has room for, and the srun that starts them."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from typing import NamedTuple

from .launcher import mpi_library, step_tasks

# What srun must speak, by a word in what the MPI library says of itself; the first that fits counts.
PLUGINS = {
    "Open MPI": "pmix",
    "CRAY MPICH": "cray_shasta",
    "MPICH": "pmi2",
    "MVAPICH": "pmi2",
    "Intel": "pmi2",
}
SECONDS = 20  # that Slurm's controller may take to answer
# Ranks on this machine alone, without a step of srun, which would wait for the CPUs that this one holds
LOCAL = {"HYDRA_LAUNCHER": "fork", "PRTE_MCA_plm": "^slurm", "PRTE_MCA_ras": "^slurm"}


class Job(NamedTuple):
    """The job that this process runs in; ``cpus`` is 0 where Slurm does not say."""

    number: str
    nodes: int
    cpus: int

    def check(self, ranks: int) -> None:
        """Raise ValueError where the job has no CPU for each rank."""
        if 0 < self.cpus < ranks:
            raise ValueError(
                f"{ranks} ranks need {ranks} CPUs, and Slurm job {self.number} has {self.cpus}; "
                f"start {self.cpus}, or give sbatch or salloc -n {ranks}"
            )

    def srun(self, mpiexec: bool) -> list[str] | None:
        """The start of the line that runs ranks by srun; None where an ``mpiexec`` does it more surely.

        What SLURM_MPI_TYPE says is left to srun. A srun that lists pmix may still not load it: Open MPI's
        own mpiexec is preferred, where there is one.
        """
        start = ["srun", "--kill-on-bad-exit", "--quit-on-interrupt", "--export=ALL"]
        if shutil.which("srun") is None:
            return None
        if "SLURM_MPI_TYPE" in os.environ:
            return start
        plugin = plugin_for(mpi_library())
        if plugin in plugins() and not (plugin == "pmix" and mpiexec):
            return [*start, f"--mpi={plugin}"]
        return None if mpiexec else start

    def variables(self, ranks: int) -> dict[str, str]:
        """What srun needs besides: since Slurm 22.05 it forgets how many CPUs sbatch gave a task."""
        each = os.environ.get("SLURM_CPUS_PER_TASK", "")
        fits = each.isdecimal() and int(each) * ranks <= self.cpus
        return {"SRUN_CPUS_PER_TASK": each} if fits else {}

    def ranks_on_a_node(self, ranks: int) -> int:
        return math.ceil(ranks / self.nodes)


def find_job() -> Job | None:
    """The job whose script or shell this is; None outside Slurm, and in a step, which holds what it has."""
    if "SLURM_JOB_ID" not in os.environ or step_tasks() is not None:
        return None
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return Job(
        os.environ["SLURM_JOB_ID"],
        max(int(nodes), 1) if nodes.isdecimal() else 1,
        sum(int(cpus) * int(times or 1) for cpus, times in counts),
    )


def plugins() -> list[str]:
    """The ways in which srun can connect ranks, by its own list; none where it has no list."""
    return re.findall(r"^(?:srun:)?\s+(\w+)\s*$", output("srun", "--mpi=list"), re.MULTILINE)


def default_plugin() -> str:
    """How srun connects ranks where it is not told."""
    found = re.search(r"^MpiDefault\s*=\s*(\S+)", output("scontrol", "show", "config"), re.MULTILINE)
    return found[1] if found else "unknown"


def output(*command: str) -> str:
    """What one of Slurm's commands prints, wherever to; nothing where it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{done.stdout}\n{done.stderr}"


def plugin_for(library: str) -> str | None:
    return next((plugin for word, plugin in PLUGINS.items() if word in library), None)


def local_variables() -> dict[str, str]:
    """What an mpiexec for this machine alone needs in a Slurm job; nothing elsewhere."""
    return LOCAL if "SLURM_JOB_ID" in os.environ else {}
