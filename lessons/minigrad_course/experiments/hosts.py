"""Several "hosts" on one machine, so that MPI's messages cross a network and not shared memory.

A host is a process that only waits, in namespaces of its own: network, host name, IPC, processes, and
mounts with an own /dev/shm and /sys (with a network alone MPI still meets in shared memory, and nothing
crosses the link). One more such process holds the switch, a bridge to which a veth pair leads from each
host's eth0; mpiexec runs there, as on a cluster's login node.

Nothing here has a name outside these namespaces, so hosts of several test processes cannot collide. They
end, with all that runs in them, when the waiting processes do: at ``close``, or when this process dies.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from backends.launch.launch import find_mpiexec

NAMESPACES = {"net": "net", "uts": "uts", "ipc": "ipc", "mount": "mnt", "pid": "pid_for_children"}
TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "readlink", "sh")
SECONDS = 20  # that any of the commands here may take
BURST = 128 * 1024  # bytes that a link may pass at once, whatever its rate
# $0 is the host's name, $1 the machine's own namespaces: in those nothing may be changed.
OWN = (
    'for n in net uts ipc mnt; do case "$1" in *"$(readlink /proc/self/ns/$n)"*) '
    'echo "no $n namespace of its own" >&2; exit 1 ;; esac; done'
)
SETTLE = (
    f"{OWN}; echo $0 > /proc/sys/kernel/hostname; "
    "mount -t tmpfs tmpfs /dev/shm; mount -t sysfs sysfs /sys; ip link set lo up"
)
PROBE = f"{SETTLE}; ip link add br0 type bridge; ip link add eth0 type veth peer name port0"


@dataclass(frozen=True)
class Bytes:
    """What has passed an interface."""

    sent: int
    received: int

    def __sub__(self, other: Bytes) -> Bytes:
        return Bytes(self.sent - other.sent, self.received - other.received)


class Host:
    """The process that keeps a host's namespaces alive, and the ways into them."""

    def __init__(self, name: str, address: str, namespaces: tuple[str, ...] = tuple(NAMESPACES)):
        self.name, self.address, self.namespaces = name, address, namespaces
        settle = SETTLE if "mount" in namespaces else "true"
        self.process = subprocess.Popen(
            [*unshare(namespaces), "sh", "-ec", f"{settle}; echo ready; read line || true", name, machine()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], SECONDS)[0]:
            raise TimeoutError(f"{self.name} was not ready in {SECONDS} s")
        if (said := self.process.stdout.readline()) != b"ready\n":
            raise RuntimeError(f"{self.name}: {said.decode().strip()}")

    def enter(self) -> list[str]:
        """The beginning of a command that runs in this host."""
        folder = f"/proc/{self.process.pid}/ns"
        return ["nsenter", *(f"--{n}={folder}/{NAMESPACES[n]}" for n in self.namespaces)]

    def do(self, command: str) -> str:
        """Run a command in this host's network; what it printed."""
        here = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *command.split()]
        done = subprocess.run(here, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {command}: {done.stderr.strip()}")
        return done.stdout

    def eth0(self) -> Bytes:
        """What has passed the interface so far, as the kernel counts it."""
        for line in Path(f"/proc/{self.process.pid}/net/dev").read_text(encoding="utf-8").splitlines():
            interface, _, figures = line.partition(":")
            if interface.strip() == "eth0":
                counts = [int(figure) for figure in figures.split()]
                return Bytes(sent=counts[8], received=counts[0])
        raise RuntimeError(f"{self.name} has no eth0")

    def close(self) -> None:
        """End the waiting process, and with it the namespaces and what runs in them."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()  # takes its child along, the first process of the host: so all of them
            process.wait(5)
        finally:
            process.stdout.close()


class Hosts:
    """Hosts on one switch, their links shaped to ``rate`` bit/s in each direction; a context manager."""

    def __init__(self, folder: Path, rate: int, count: int = 2):
        self.rate, self.members = rate, list[Host]()
        self.agent = folder / "agent"
        self.switch = Host("switch", "10.77.0.100", ("net",))
        try:
            self.switch.do("ip link add br0 type bridge")
            self.switch.do(f"ip addr add {self.switch.address}/24 dev br0")
            self.switch.do("ip link set br0 up")
            self.switch.do("ip link set lo up")
            for i in range(count):
                host = Host(f"host{i}", f"10.77.0.{i + 1}")
                self.members.append(host)
                self.connect(host, f"port{i}")
            self.write_agent()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, host: Host, port: str) -> None:
        """Lead a shaped link from the host's eth0 to a port of the switch."""
        self.switch.do(f"ip link add {port} type veth peer name eth0 netns {host.process.pid}")
        self.switch.do(f"ip link set {port} master br0 up")
        host.do(f"ip addr add {host.address}/24 dev eth0")
        host.do("ip link set eth0 up")
        host.do(f"tc qdisc add dev eth0 {shape(self.rate)}")

    def write_agent(self) -> None:
        """The script that mpiexec calls as it would rsh: ``agent HOST COMMAND...``."""
        cases = [f'{h.address}) shift; exec {" ".join(h.enter())} sh -c "$*" ;;' for h in self.members]
        lines = ["#!/bin/sh", 'case "$1" in', *cases, "esac", 'echo "no host $1" >&2', "exit 1"]
        self.agent.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.agent.chmod(0o755)

    def mpiexec(self, ranks: int, *arguments: str) -> list[str]:
        """The command that starts ``python -m mpi4py arguments`` on ``ranks`` ranks, as many on each host."""
        assert ranks % len(self.members) == 0, "as many ranks on each host"
        addresses = ",".join(h.address for h in self.members)
        return [
            *[*self.switch.enter(), str(find_mpiexec()), "-localhost", self.switch.address],
            *["-launcher", "rsh", "-launcher-exec", str(self.agent), "-hosts", addresses],
            *["-ppn", str(ranks // len(self.members)), "-n", str(ranks)],
            *[sys.executable, "-m", "mpi4py", *arguments],
        ]

    def close(self) -> None:
        """Remove everything, also after a failure half-way."""
        problems = []
        for host in [*self.members, self.switch]:
            try:
                host.close()
            except Exception as problem:  # the others are still to be removed
                problems.append(problem)
        if problems:
            raise problems[0]


def unshare(namespaces: tuple[str, ...]) -> list[str]:
    """The beginning of a command in new namespaces."""
    pid = ["--fork", "--kill-child", "--mount-proc"] if "pid" in namespaces else []
    return ["unshare", *(f"--{n}" for n in namespaces), *pid]


def machine() -> str:
    """The namespaces that this process is in."""
    return " ".join(os.readlink(entry) for entry in Path("/proc/self/ns").iterdir())


def shape(rate: int) -> str:
    """What tc adds to an interface so that it sends ``rate`` bit/s at most."""
    return f"root tbf rate {rate}bit burst {BURST} latency 100ms"


def problem() -> str | None:
    """Why hosts cannot be built here; None when they can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"hosts need {', '.join(missing)} (Linux: util-linux and iproute2)"
    mpiexec = find_mpiexec()
    if mpiexec is None or not mpiexec.with_name("hydra_pmi_proxy").exists():
        return "hosts need MPICH's mpiexec"
    try:
        # Everything the hosts are made of, once, in namespaces that end at once.
        script = f"{PROBE}; tc qdisc add dev eth0 {shape(10**9)}"
        command = [*unshare(tuple(NAMESPACES)), "sh", "-ec", script, "probe", machine()]
        probe = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"hosts are refused here: {error}"
    if probe.returncode != 0:
        return f"hosts are refused here (they need root): {probe.stderr.strip()}"
    return None
