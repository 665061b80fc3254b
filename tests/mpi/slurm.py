"""A real Slurm that a test starts and ends: one node of two CPUs on loopback, or several hosts of one CPU.

The hosts are network and host-name namespaces on one switch, with a slurmd in each.

Its daemons and jobs carry a mark, by which what is left of a job at the end is known and killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from minigrad_course.experiments.hosts import Hosts

from backends.process.sweep import MARK, marked

DAEMONS = ("munged", "slurmctld", "slurmd")
SECONDS = 120  # that the daemons may take to start, and a job to its end
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}({address})
SlurmctldPort={control}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault={mpi}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def problem() -> str | None:
    """Why this machine cannot have such a Slurm; None where it can."""
    missing = [name for name in (*DAEMONS, "srun", "sbatch") if which(name) is None]
    return f"no {', '.join(missing)}; apt-get install slurm-wlm munge" if missing else None


def which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Slurm:
    """munged, slurmctld and slurmd as this user, in ``folder``; ``mpi`` is srun's default plug-in.

    With ``hosts`` each of them is a node; the commands and the controller run at their switch.
    """

    def __init__(self, folder: Path, mpi: str = "none", hosts: Hosts | None = None):
        self.folder, self.hosts = folder, hosts
        here = socket.gethostname().partition(".")[0]
        addresses = (
            {here: ("127.0.0.1", 2)} if hosts is None else {h.name: (h.address, 1) for h in hosts.members}
        )
        self.running: list[subprocess.Popen] = []
        self.mark = uuid.uuid4().hex
        for name in ("munge", "state", *(f"spool/{node}" for node in addresses)):
            (folder / name).mkdir(mode=0o755, parents=True)
        folder.chmod(0o755)
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(
            CONFIGURATION.format(
                folder=folder,
                mpi=mpi,
                host=here,
                address="127.0.0.1" if hosts is None else hosts.switch.address,
                nodes="\n".join(
                    f"NodeName={node} NodeAddr={address} CPUs={cpus} State=UNKNOWN"
                    for node, (address, cpus) in addresses.items()
                ),
                user=pwd.getpwuid(os.geteuid()).pw_name,
                control=free_port(),
                daemon=free_port(),
            ),
            encoding="utf-8",
        )
        if hosts is not None:  # whose /sys has no control groups; nothing here uses any
            (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
            members = [*hosts.members, hosts.switch]
            lines = [f"{host.address} {host.name}\n" for host in members]
            (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]), encoding="utf-8")
            for host in hosts.members:  # mpiexec on one of them is called by its name from the others
                command = [*host.enter(), "mount", "--bind", str(folder / "hosts"), "/etc/hosts"]
                subprocess.run(command, check=True, timeout=SECONDS)
        (folder / "munge/key").write_bytes(os.urandom(128))
        (folder / "munge/key").chmod(0o600)

    def __enter__(self) -> Slurm:
        try:
            self.start_daemons()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.call("scancel", "--user", str(os.geteuid()))
        with suppress(AssertionError):  # the daemons are ended however that goes
            self.until(lambda: not self.call("squeue", "--noheader"))
        self.close()

    def start_daemons(self) -> None:
        files = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "log", "pid", "seed")]
        self.start("munged", "--foreground", "--force", f"--socket={self.folder}/munge/socket", *files)
        self.until(lambda: (self.folder / "munge/socket").exists())
        self.start("slurmctld", "-D", "-f", str(self.configuration), at=self.entry)
        for host in [None] if self.hosts is None else self.hosts.members:
            at = [] if host is None else host.enter()
            self.start("slurmd", "-D", "-f", str(self.configuration), at=at)
        idle = str(1 if self.hosts is None else len(self.hosts.members))
        self.until(lambda: self.call("sinfo", "--noheader", "-t", "idle", "-o", "%D").strip() == idle)

    def close(self) -> None:
        """End the daemons, and what is left of jobs."""
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def entry(self) -> list[str]:
        """The beginning of a command that runs where the controller does."""
        return [] if self.hosts is None else self.hosts.switch.enter()

    @property
    def variables(self) -> dict[str, str]:
        """By which Slurm's commands know this Slurm from any other, and we its processes."""
        return {"SLURM_CONF": str(self.configuration), MARK: self.mark}

    def batch(self, text: str, folder: Path, tasks: int = 2) -> tuple[int, str]:
        """Submit a batch script and wait for its end: its status, and all that it printed."""
        status = folder / "status"
        status.unlink(missing_ok=True)
        script = folder / "job.sh"
        script.write_text(
            f"#!/bin/bash\n{text}\necho $? > {status}.new\nmv {status}.new {status}\n", encoding="utf-8"
        )
        self.call("sbatch", f"--ntasks={tasks}", f"--output={folder}/job.out", str(script), cwd=folder)
        self.until(status.exists)
        return int(status.read_text(encoding="utf-8")), (folder / "job.out").read_text(encoding="utf-8")

    def start(self, name: str, *arguments: str, at: Sequence[str] = ()) -> None:
        with (self.folder / f"{name}-{len(self.running)}.out").open("wb") as out:
            command = [*at, str(which(name)), *arguments]
            self.running.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """What a command prints that one of Slurm's is, or starts by one."""
        return subprocess.run(
            [*self.entry, *command],
            cwd=cwd,
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
        ).stdout

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for ``true()``; fail where a daemon ends, or it lasts too long."""
        end = time.monotonic() + SECONDS
        while not true():
            dead = [process.args for process in self.running if process.poll() is not None]
            assert not dead and time.monotonic() < end, f"{dead} {self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.folder.glob("*.log"), self.folder / "munge/log"]
        return "\n".join(
            f"{file.name}: {file.read_text(encoding='utf-8')[-2000:]}" for file in files if file.exists()
        )
