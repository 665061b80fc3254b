"""A real Slurm of one node and two CPUs, on loopback, that a test starts and ends.

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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from backends.launch.sweep import MARK, marked

DAEMONS = ("munged", "slurmctld", "slurmd")
SECONDS = 120  # that the daemons may take to start, and a job to its end
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault={mpi}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=10 State=UP
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
    """munged, slurmctld and slurmd as this user, in ``folder``; ``mpi`` is srun's default plug-in."""

    def __init__(self, folder: Path, mpi: str = "none"):
        self.folder = folder
        self.running: list[subprocess.Popen] = []
        self.mark = uuid.uuid4().hex
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o755)
        folder.chmod(0o755)
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(
            CONFIGURATION.format(
                folder=folder,
                mpi=mpi,
                host=socket.gethostname().partition(".")[0],
                user=pwd.getpwuid(os.geteuid()).pw_name,
                control=free_port(),
                daemon=free_port(),
            )
        )
        (folder / "munge/key").write_bytes(os.urandom(128))
        (folder / "munge/key").chmod(0o600)

    def __enter__(self) -> Slurm:
        files = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "log", "pid", "seed")]
        self.start("munged", "--foreground", "--force", f"--socket={self.folder}/munge/socket", *files)
        self.until(lambda: (self.folder / "munge/socket").exists())
        self.start("slurmctld", "-D", "-f", str(self.configuration))
        self.start("slurmd", "-D", "-f", str(self.configuration))
        self.until(lambda: "idle" in self.call("sinfo", "--noheader", "-o", "%T"))
        return self

    def __exit__(self, *_) -> None:
        self.call("scancel", "--user", str(os.geteuid()))
        with suppress(AssertionError):  # the daemons are ended however that goes
            self.until(lambda: not self.call("squeue", "--noheader"))
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
    def variables(self) -> dict[str, str]:
        """By which Slurm's commands know this Slurm from any other, and we its processes."""
        return {"SLURM_CONF": str(self.configuration), MARK: self.mark}

    def batch(self, text: str, folder: Path, tasks: int = 2) -> tuple[int, str]:
        """Submit a batch script and wait for its end: its status, and all that it printed."""
        status = folder / "status"
        status.unlink(missing_ok=True)
        script = folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{text}\necho $? > {status}.new\nmv {status}.new {status}\n")
        self.call("sbatch", f"--ntasks={tasks}", f"--output={folder}/job.out", str(script), cwd=folder)
        self.until(status.exists)
        return int(status.read_text()), (folder / "job.out").read_text()

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            command = [str(which(name)), *arguments]
            self.running.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """What a command prints that one of Slurm's is, or starts by one."""
        return subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
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
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in files if file.exists())
