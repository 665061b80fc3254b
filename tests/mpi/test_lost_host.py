"""A host of four is lost in the middle of a training: the other three resume and reach the same weights."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from minigrad_course.experiments.hosts import Hosts, problem
from safetensors.numpy import load_file

from backends.launch.launch import environment
from minigrad.models import find_net
from tests.mpi.conftest import until

TRAIN = [
    "train",
    "--net",
    "mlp",
    "--dtype",
    "float64",
    "--epochs",
    "2",
    "--batch",
    "250",
    "--allreduce",
    "ring",
]
STEPS = 40
BOUND = 1e-10  # of the largest weight: sums of three ranks have another order than those of four
RATE = 200_000_000  # bit/s: a step takes longer than it takes to lose a host
PARAMETERS = sum(p.size for p in find_net("mlp").build(np.random.default_rng(0)).parameters())


@pytest.fixture(scope="module", autouse=True)
def allowed():
    """Skip where hosts cannot be had; MINIGRAD_REQUIRE_HOSTS makes that a failure."""
    if reason := problem():
        if os.environ.get("MINIGRAD_REQUIRE_HOSTS"):
            pytest.fail(reason)
        pytest.skip(reason)


def weights(folder):
    (file,) = folder.glob("runs/*/model.safetensors")
    return load_file(file)


@pytest.mark.thorough
def test_three_hosts_reach_the_weights_of_four(processes, tmp_path):
    variables = environment(4) | {"MINIGRAD_TIMEOUT": "10"}
    with Hosts(tmp_path, rate=RATE, count=4) as hosts:
        folder = tmp_path / "kept"
        saving = ["--checkpoint", str(folder), "--every", "4"]
        job = subprocess.Popen(
            hosts.mpiexec(4, "-m", "backends", *TRAIN, "--data", "4", *saving),
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(lambda: folder.is_dir() and any(folder.glob("step-*")), 120)
            lost = hosts.members.pop()
            hosts.switch.do("ip link set port3 down")  # nobody hears from it again
            lost.close()  # and all its processes are killed
            assert job.wait(120) != 0, "the training has ended before the host was lost"
        finally:
            if job.poll() is None:
                job.kill()
                job.wait(20)
        whole = sorted(folder.glob("step-*"))[-1]
        step = int(whole.name[5:])
        assert 0 < step < STEPS and not list(tmp_path.glob("runs/*/model.safetensors"))

        before = [host.eth0() for host in hosts.members]
        line = hosts.mpiexec(
            3, "-m", "backends", *TRAIN, "--data", "3", "--resume", str(folder), "--json", "resumed.json"
        )
        resumed = processes.run(line, environment(3), seconds=180)
        assert resumed.status == 0, resumed.err
        assert f"at step {step}" in resumed.out, resumed.out
        least = (STEPS - step) * 2 * 8 * PARAMETERS * 2 // 3  # a ring of three: twice two thirds of all bytes
        for host, bytes_before in zip(hosts.members, before, strict=True):
            passed = host.eth0() - bytes_before
            assert passed.sent >= least and passed.received >= least, (passed, least)

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    command = [
        sys.executable,
        "-m",
        "backends",
        *TRAIN,
        "--data",
        "4",
        "--transport",
        "threads",
        "--oversubscribe",
    ]
    subprocess.run(command, cwd=undisturbed, check=True, timeout=180, stdout=subprocess.DEVNULL)
    assert len(json.loads((tmp_path / "resumed.json").read_text(encoding="utf-8"))["losses"]) == STEPS
    actual, expected = weights(tmp_path), weights(undisturbed)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        difference = np.abs(actual[name] - value).max() / np.abs(value).max()
        assert difference <= BOUND, f"{name} differs by {difference}"
