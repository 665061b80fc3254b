"""A real Slurm of one node and two CPUs, on loopback, that a test starts and ends."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
SECONDS = 60  # that the daemons may take to start, and a job to be accepted
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
        self.folder, self.running = folder, []
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
        self.call("scancel", "--user", str(os.geteuid()), "--signal", "KILL")
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def variables(self) -> dict[str, str]:
        """By which Slurm's commands know this Slurm from any other."""
        return {"SLURM_CONF": str(self.configuration)}

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            command = [str(which(name)), *arguments]
            self.running.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def call(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        return subprocess.run(
            command, env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=SECONDS
        ).stdout

    def until(self, true) -> None:
        end = time.monotonic() + SECONDS
        while not true():
            dead = [process.args for process in self.running if process.poll() is not None]
            assert not dead and time.monotonic() < end, f"{dead} {self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.folder.glob("*.log"), self.folder / "munge/log"]
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in files if file.exists())
