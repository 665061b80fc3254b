"""Laws of lessons/minigrad_course/experiments/training_run.py: an epoch is every sample once, also where the
last batch is smaller.
"""

from dataclasses import replace
from functools import cache

import hypothesis.strategies as st
import pytest
from hypothesis import given
from minigrad_course.experiments.experiment import read_result
from minigrad_course.experiments.training_run import TrainingRun

from backends.comm import run_ranks
from minigrad.mnist import load
from minigrad.models import find_net
from minigrad.serial import Serial
from tests.bugs.mutant import mutant


@cache
def digits():
    return load("mnist5k")


def epochs_after(steps, size, samples):
    """By whole epochs, and the steps since: no other batch than an epoch's last one is smaller."""
    whole, since = divmod(steps, -(-samples // size))
    return whole + since * size / samples


def epochs_count_every_sample_once(run_of, steps, size, samples):
    """The epochs of a real training, asked after each of so many steps."""

    def work(comm):
        data = replace(digits(), train=digits().train[:samples], test=digits().test[:1])
        run = run_of(find_net("sigmoid"), data, Serial(), batch_size=size, dtype="float32")
        for step in range(1, steps + 1):
            run.advance(comm, 1)
            expected = epochs_after(step, min(size, samples), samples)
            assert abs(run.epochs - expected) < 1e-12, f"step {step}: {run.epochs} epochs, not {expected}"

    run_ranks(1, work)


@given(steps=st.integers(1, 7), size=st.integers(1, 6), samples=st.integers(1, 9))
def test_epochs_count_every_sample_once(steps, size, samples):
    epochs_count_every_sample_once(TrainingRun, steps, size, samples)


@pytest.mark.parametrize("wrong", ["+= self.batch_size", "= len(batch)"])  # a ragged batch is whole; no sum
def test_the_law_catches(wrong):
    change = "self.samples += len(batch)", f"self.samples {wrong}"
    broken = mutant("minigrad_course.experiments.training_run", change)
    with pytest.raises(AssertionError):
        epochs_count_every_sample_once(broken.TrainingRun, 3, 2, 5)


def test_the_measured_epochs_are_those_of_their_steps():
    result = read_result("to-target")
    for name, points in result["curves"].items():
        size = int(name.rpartition(" ")[2]) if "batch" in name else result["batch_size"]
        for point in points:
            assert abs(point["epochs"] - epochs_after(point["steps"], size, 5000)) < 1e-12, (name, point)
