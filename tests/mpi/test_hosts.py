"""Several hosts: the messages cross a real (virtual) network of 1 Gbit/s and of 100 Mbit/s."""

import json
import os
import subprocess

import numpy as np
import pytest
from minigrad_course.experiments.hosts import BURST, Host, Hosts, problem, shape

from backends.launch.launch import environment
from minigrad.models import find_net

LINKS = [pytest.param(10**9, id="1gbit"), pytest.param(10**8, id="100mbit")]
SLOW = pytest.param(10**8, id="100mbit", marks=pytest.mark.thorough)

WHERE = """
import json, os, socket, sys, time
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
local = world.Split_type(MPI.COMM_TYPE_SHARED)
x, total = np.ones(int(sys.argv[1])), np.empty(int(sys.argv[1]))
world.Allreduce(x[:1], total[:1])  # connects
world.Barrier()
start = time.monotonic()
world.Allreduce(x, total)
seconds = time.monotonic() - start
assert (total == world.size).all()
kinds = ("net", "uts", "ipc", "pid", "mnt")
place = {
    "host": socket.gethostname(),
    "local": local.size,
    "apart": [*(os.readlink(f"/proc/self/ns/{kind}") for kind in kinds), os.stat("/dev/shm").st_dev],
    "seconds": seconds,
}
ranks = world.gather(place)
if world.rank == 0:
    print(json.dumps(ranks))
"""


@pytest.fixture(scope="module", autouse=True)
def allowed():
    """Skip where hosts cannot be had; MINIGRAD_REQUIRE_HOSTS makes that a failure."""
    if reason := problem():
        if os.environ.get("MINIGRAD_REQUIRE_HOSTS"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def hosts(tmp_path, request):
    with Hosts(tmp_path, rate=request.param) as hosts:
        yield hosts


def run(processes, hosts, *arguments):
    """Run 4 ranks, 2 on each host; the job, and what passed each host's eth0 meanwhile."""
    before = [host.eth0() for host in hosts.members]
    job = processes.run(hosts.mpiexec(4, *arguments), environment(4), seconds=60)  # 4: they share the cores
    return job, [host.eth0() - b for host, b in zip(hosts.members, before, strict=True)]


@pytest.mark.parametrize("hosts", [LINKS[0], SLOW], indirect=True)
def test_prove_across_two_hosts(processes, hosts):
    """The proof holds, and the parameters and the gradients crossed the link."""
    job, (first, second) = run(
        processes, hosts, "-m", "backends", "prove", "--net", "mlp", "--data", "4", "--json", "proof.json"
    )
    assert job.status == 0, job.err
    assert "PROVED" in job.out
    proof = json.loads((processes.folder / "proof.json").read_text(encoding="utf-8"))
    assert proof["passed"] and proof["config"]["data"] == 4 and proof["config"]["transport"] == "mpi"
    # Rank 0's parameters go to the second host. No host can know the sum of the gradients before it
    # has had as many bytes of the other's as there are in one copy.
    parameters = find_net("mlp").build(np.random.default_rng(0)).parameters()
    copy = 8 * sum(p.data.size for p in parameters)
    assert first.sent >= 2 * copy and second.received >= 2 * copy, (first, second, copy)
    assert second.sent >= copy and first.received >= copy, (first, second, copy)


@pytest.mark.parametrize("hosts", LINKS, indirect=True)
def test_the_ranks_are_on_two_hosts_and_the_link_is_as_slow_as_asked(processes, hosts):
    (processes.folder / "where.py").write_text(WHERE, encoding="utf-8")
    size = 2_000_000
    job, passed = run(processes, hosts, "where.py", str(size // 8))
    assert job.status == 0, job.err
    ranks = json.loads(job.out)
    assert [r["host"] for r in ranks] == ["host0", "host0", "host1", "host1"]
    assert [r["local"] for r in ranks] == [2, 2, 2, 2]
    assert ranks[0]["apart"] == ranks[1]["apart"] and ranks[2]["apart"] == ranks[3]["apart"]
    assert not set(ranks[0]["apart"]) & set(ranks[2]["apart"])
    assert all(b.sent >= size and b.received >= size for b in passed), passed
    # A lower bound only: nothing can be faster than the link, however busy the machine is.
    assert max(r["seconds"] for r in ranks) >= 0.9 * 8 * (size - BURST) / hosts.rate


def test_the_doctor_names_the_interface_and_points_out_the_slow_host(processes, tmp_path):
    """The last of four hosts has a link of 10 Mbit/s: its three pairs are the worst, and slow."""
    with Hosts(tmp_path, rate=10**9, count=4) as hosts:
        hosts.members[3].do(f"tc qdisc replace dev eth0 {shape(10**7)}")
        command = hosts.mpiexec(4, "-m", "backends", "doctor", "--json", "links.json")
        job = processes.run(command, environment(4), seconds=90)
    assert job.status == 0, job.err
    assert "eth0" in job.out and "slower than pairs like them" in job.out
    pairs = json.loads((processes.folder / "links.json").read_text(encoding="utf-8"))["pairs"]
    assert len(pairs) == 6 and all(pair["interfaces"] == ["eth0", "eth0"] for pair in pairs)
    assert all("host3" in pair["hosts"] for pair in pairs[:3]), pairs
    # Nothing passes faster than the link; half of each round trip does not cross the slow side of it.
    assert all(pair["slow"] and pair["bandwidth"] < 4e6 for pair in pairs[:3]), pairs


def test_nothing_is_left_of_a_host(tmp_path):
    """What runs in a host ends with it."""
    with Hosts(tmp_path, rate=10**9) as hosts:
        waiting = [host.process for host in (*hosts.members, hosts.switch)]
        command = [*hosts.members[0].enter(), "sh", "-c", "echo in; sleep 100"]
        stray = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert stray.stdout is not None and stray.stdout.readline() == b"in\n"
    stray.communicate(timeout=10)  # the end of its output: nobody is left who could write
    assert stray.returncode != 0
    assert all(process.returncode is not None for process in waiting)


def test_a_host_that_cannot_be_built_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    built = []
    real = Host.__init__
    monkeypatch.setattr(Host, "__init__", lambda self, *a, **k: (built.append(self), real(self, *a, **k))[1])
    with pytest.raises(RuntimeError, match="host0: tc qdisc add"):
        Hosts(tmp_path, rate=-1)
    assert [h.name for h in built] == ["switch", "host0"]
    assert all(h.process.returncode is not None for h in built)
