"""Laws of backends/checkpoint/stop_agreement.py and backends/process/stopped.py: all ranks stop after the
same step, save it and name it; a job of which a process died starts again.
"""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.checkpoint.checkpoints import REAL
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.pipeline.pipeline import Pipeline
from backends.process.signals import SIGNALS
from backends.process.stopped import resume_command
from backends.registry import OneRank
from tests.backends.checkpoint.resume_laws import Layout
from tests.backends.checkpoint.stop_laws import (
    LateDisk,
    a_crashed_training_starts_again,
    a_stopped_training_goes_on,
    only_a_crash_starts_a_job_again,
    rank_0_does_not_wait_for_a_failed_rank,
    ranks_stop_together,
    the_rank_that_was_killed_is_named,
)
from tests.nets import dropping, mlp

SEEDS = st.none() | st.integers(0, 99)
LAYOUTS = [
    Layout(1, OneRank),
    Layout(2, DataParallel),
    Layout(3, partial(Sharded, stage=3)),
    Layout(3, partial(LocalSGD, period=2)),
    Layout(2, lambda comm: Pipeline(comm, micro_batches=2)),
]


def requests(ranks: int, steps: int, least: int = 0):
    """For some ranks, at ``least`` so many, a step after which each hears a signal."""
    one = st.tuples(st.integers(1, steps), st.sampled_from(SIGNALS).map(int))
    return st.lists(st.integers(0, ranks - 1), min_size=least, unique=True).flatmap(
        lambda those: st.fixed_dictionaries(dict.fromkeys(those, one))
    )


@given(ranks=st.integers(1, 5), steps=st.integers(1, 6), seed=SEEDS, data=st.data())
def test_whoever_hears_a_request_all_ranks_stop_after_one_step(ranks, steps, seed, data):
    ranks_stop_together(ranks, steps, data.draw(requests(ranks, steps + 1)), seed)


@settings(max_examples=max(settings().max_examples // 3, 1))
@given(
    layout=st.sampled_from(LAYOUTS),
    build=st.sampled_from([mlp, dropping]),
    samples=st.integers(3, 12),
    every=st.integers(1, 5),
    seed=SEEDS,
    disk=st.sampled_from([REAL, LateDisk()]),
    data=st.data(),
)
def test_a_stopped_training_goes_on_with_the_same_bits(layout, build, samples, every, seed, disk, data):
    steps = 3 * -(-samples // 4)
    requests_of_ranks = data.draw(requests(layout.ranks, steps, least=1))
    a_stopped_training_goes_on(layout, build, samples, requests_of_ranks, every, seed, disk)


def test_rank_0_does_not_wait_for_a_rank_that_failed(tmp_path):
    rank_0_does_not_wait_for_a_failed_rank(tmp_path)


def test_which_ends_are_crashes(tmp_path):
    only_a_crash_starts_a_job_again(tmp_path)


def test_the_rank_that_was_killed_is_named(tmp_path):
    the_rank_that_was_killed_is_named(tmp_path)


@pytest.mark.parametrize("endings", [[], [True], [True, False, True], [True] * 4, [True] * 5])
def test_a_crash_starts_the_training_again(tmp_path, endings):
    a_crashed_training_starts_again(tmp_path, endings, 4)


@pytest.mark.parametrize(
    ("variables", "start"),
    [
        ({}, ""),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "mpiexec -n 2 "),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MINIGRAD_RANKS": "2"}, ""),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "srun -n 2 "),
    ],
)
def test_the_command_that_goes_on_starts_the_ranks_as_the_user_did(monkeypatch, variables, start):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["x", "train", "--resume=old", "--checkpoint", "a b", "--lr", "1"])
    expected = "minigrad train --checkpoint 'a b' --lr 1 --resume 'a b'"
    assert resume_command("a b") == start + expected
