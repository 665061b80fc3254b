"""Laws of lessons/minigrad_course/experiments/article.py, command.py, experiment.py, experiments.py,
hosts.py, mpi_program.py, slow_link.py, speedup.py, to_target.py and training_run.py: what is mathematics in
the experiments holds on real MPI processes, and they can fail.
"""

import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from minigrad_course.experiments import hosts
from minigrad_course.experiments.experiments import EXPERIMENTS
from minigrad_course.experiments.speedup import wide
from threadpoolctl import threadpool_limits

from backends.launch.launch import mpi_problem
from backends.model_parallel.plan import default_plan
from minigrad.mnist import load
from minigrad.models import DIGIT, find_net
from minigrad.optim import SGD
from minigrad.train import accuracy, fit
from tests.mpi.conftest import Processes

ROOT = Path(__file__).parents[3]
START = """
from backends.comm.mpi import MPIComm
from minigrad_course import experiments
from minigrad_course.experiments import article
from minigrad_course.experiments.slow_link import SlowLink
from minigrad_course.experiments.speedup import Speedup
from minigrad_course.experiments.to_target import ToTarget
from tests.bugs.mutant import mutant
"""
SHORT = {
    "speedup": "Speedup(rounds=1, least_seconds=0.01, nets=('lenet', 'sigmoid')).work(MPIComm())",
    "to-target": "ToTarget(batches=(64,), most_epochs=0.25).work(MPIComm())",
}
PROGRAMS = """
experiments.mpi_program = mutant("minigrad_course.experiments.mpi_program", *{change!r})
result = article.train_by_programs(MPIComm(), 2.0, 8, turns=4)
print(f"{{len(result['costs']['minigrad'])}} costs")
"""
BUGS = {
    "a step by the sum over the samples": ("parts.sum(axis=0) / n", "parts.sum(axis=0)"),
    "weights broadcast once": (
        "for w in weights:\n            comm.Bcast",
        "for w in weights if _ == 0 else ():\n            comm.Bcast",
    ),
    "the first gradient twice": ("total = parts.sum(axis=0)", "total = comm.size * parts[0]"),
}

pytestmark = pytest.mark.skipif(
    mpi_problem() is not None and not os.environ.get("MINIGRAD_REQUIRE_MPI"), reason=str(mpi_problem())
)


@pytest.fixture
def job(tmp_path):
    return lambda script, ranks=2: Processes(tmp_path).ranks(ranks, START + script, PYTHONPATH=str(ROOT))


def check_files(folder: Path, out: str, name: str) -> None:
    own = folder / "runs" / "experiments" / name
    assert json.loads((own / "result.json").read_text(encoding="utf-8"))
    assert (own / "result.png").stat().st_size > 10_000
    assert f"runs/experiments/{name}/result.json" in out.replace("\n", "")


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHORT)
def test_an_experiment_leaves_its_table_its_picture_and_its_figures(job, tmp_path, name):
    run = job(SHORT[name])
    assert run.status == 0, run.err
    check_files(tmp_path, run.out, name)


@pytest.mark.thorough
def test_the_articles_training_ends_with_its_cost_and_accuracy():
    """5,000 digits, three layers of logistic units, rate 2, 1,000 iterations: about .25, about 97 %."""
    net, digits = find_net("sigmoid"), load("mnist5k").train
    data = net.prepare(digits, "float32")
    model = net.build(np.random.default_rng(0))
    with threadpool_limits(1):  # two would wait for one another where other tests run
        cost = fit(model, SGD(model.parameters(), 2.0), net.loss, data, epochs=1000).losses[-1]
    share = accuracy(model, data)
    assert cost <= 0.25 and share >= 0.97, f"cost {cost:.4f}, {share:.2%} of the digits"


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.thorough) for ranks in (1, 3))])
def test_the_program_of_mpi4py_alone_has_the_costs_of_minigrad(job, ranks):
    run = job(PROGRAMS.format(change=()), ranks)
    assert run.status == 0 and "8 costs" in run.out, run.err


def test_the_wide_net_is_split_alike_by_columns_and_rows_and_into_stages():
    model = wide(np.random.default_rng(0))
    kinds = list(default_plan(model, 2, 1024, DIGIT).values())
    assert kinds == ["column", "row"] * 3 + ["column"] or kinds == ["column", "row"] * 3, kinds
    work = [math.prod(p.shape) for p in model.parameters() if p.ndim == 2]
    assert max(work[1:-1]) == min(work[1:-1]) and work[0] > 0.7 * work[1]


FIRST, *OTHERS = BUGS


@pytest.mark.parametrize("bug", [FIRST, *(pytest.param(bug, marks=pytest.mark.thorough) for bug in OTHERS)])
def test_the_two_programs_catch(job, bug):
    run = job(PROGRAMS.format(change=(BUGS[bug],)))
    assert run.status != 0 and "the costs of the programs differ by" in run.err, run.err


@pytest.mark.thorough
@pytest.mark.skipif(hosts.problem() is not None, reason=str(hosts.problem()))
def test_two_hosts_have_the_costs_of_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(START + "SlowLink(rounds=1).start()", encoding="utf-8")
    run = Processes(tmp_path).run([sys.executable, str(script)], {"PYTHONPATH": str(ROOT)}, 200)
    assert run.status == 0, run.err
    check_files(tmp_path, run.out, "slow-link")


def test_the_command_lists_all_experiments_and_refuses_others(minigrad):
    status, out, _ = minigrad("experiment")
    assert status == 0 and all(name in out for name in EXPERIMENTS), out
    status, _, err = minigrad("experiment", "nothing")
    assert status == 1 and len(err.splitlines()) == 1, err
    assert err.startswith("minigrad: unknown experiment 'nothing'; choose one of"), err
