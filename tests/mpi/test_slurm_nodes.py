"""A Slurm of two nodes, each a host of its own in namespaces: what ``minigrad slurm`` writes really runs.

``apt-get install slurm-wlm munge``, then ``MINIGRAD_SLURM=1 pytest -n 0 tests/mpi/test_slurm_nodes.py``.
"""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from minigrad_course.experiments import hosts as namespaces
from minigrad_course.experiments.hosts import Hosts

from backends.launch.launch import mpiexec_vendor
from tests.mpi.slurm import Slurm, problem

MINIGRAD = [sys.executable, "-m", "backends"]
TRAIN = [
    "train",
    "--net",
    "mlp",
    "--epochs",
    "6",
    "--checkpoint",
    "kept",
    "--every",
    "10",
    "--json",
    "train.json",
]
COPY = 4 * 118_282  # bytes of the net's parameters

pytestmark = pytest.mark.skipif("MINIGRAD_SLURM" not in os.environ, reason="MINIGRAD_SLURM is not set")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    if reason := problem() or namespaces.problem():
        pytest.fail(reason)
    if mpiexec_vendor() != "MPICH":
        pytest.skip("hosts need MPICH's mpiexec")
    with (
        Hosts(tmp_path_factory.mktemp("hosts"), rate=10**9) as hosts,
        Slurm(tmp_path_factory.mktemp("slurm"), hosts=hosts) as slurm,
    ):
        yield slurm


def write_script(folder, *settings, command=TRAIN):
    line = [*MINIGRAD, "slurm", "--nodes", "2", *settings, "-o", "job.sh", "--", *command]
    subprocess.run(line, cwd=folder, check=True, timeout=60)


def state(nodes, job):
    return nodes.call("squeue", "--noheader", "-o", "%T", "-j", job).strip()


def test_sbatch_accepts_the_script(nodes, tmp_path):
    for settings in ([], ["--time", "0:05:00", "--notice", "30", "--sbatch", "--comment=two words"]):
        for command in (TRAIN, ["prove"], ["run", "own.py"]):
            write_script(tmp_path, *settings, command=command)
            answer = nodes.call("sbatch", "--test-only", "job.sh", cwd=tmp_path)
            assert re.search(r"Job \d+ to start at .* using 2 processors on nodes host\[0-1\]", answer)


def test_a_job_that_must_end_goes_on_from_its_checkpoint_with_the_same_bits(nodes, tmp_path):
    """Slurm asks it to end while it trains on two nodes; it goes back into the queue and resumes."""
    write_script(tmp_path, "--time", "0:05:00")
    before = [host.eth0() for host in nodes.hosts.members]
    (job,) = re.findall(r"Submitted batch job (\d+)", nodes.call("sbatch", "job.sh", cwd=tmp_path))
    nodes.until(lambda: (tmp_path / "kept").is_dir() and any((tmp_path / "kept").glob("step-*")))
    nodes.call("scancel", "--batch", f"--signal={signal.SIGTERM.name}", job)
    output = tmp_path / f"minigrad-{job}.out"
    nodes.until(lambda: "goes back into the queue" in output.read_text(encoding="utf-8"))
    nodes.until(lambda: not state(nodes, job) and (tmp_path / "train.json").exists())
    text = output.read_text(encoding="utf-8")
    assert re.search(r"resumed from kept/step-\d+, at step \d+", text), text
    resumed = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    assert resumed["finished"] and resumed["ranks"] == 2

    other = tmp_path / "other"
    other.mkdir()
    line = [*MINIGRAD, *TRAIN[:5], "--data", "2", "--transport", "mpi", "--json", "train.json"]
    subprocess.run(line, cwd=other, check=True, timeout=120, stdout=subprocess.DEVNULL)
    undisturbed = json.loads((other / "train.json").read_text(encoding="utf-8"))
    assert resumed["losses"] == undisturbed["losses"]
    assert resumed["test_accuracies"] == undisturbed["test_accuracies"]

    steps = len(resumed["losses"])
    for host, bytes_before in zip(nodes.hosts.members, before, strict=True):
        passed = host.eth0() - bytes_before
        assert passed.sent >= steps * COPY and passed.received >= steps * COPY, passed
