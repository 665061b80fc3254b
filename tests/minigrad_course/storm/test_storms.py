"""Laws of lessons/minigrad_course/storm/storm.py, event.py, host_disk.py, job.py, oracle.py and
undisturbed.py: storms of many seeds are safe and live, and the same in every run.
"""

import os
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.storm.fault import KINDS, Fault
from minigrad_course.storm.job import STRATEGIES, Job
from minigrad_course.storm.storm import Storm

from backends.data_parallel import DataParallel, LocalSGD
from tests.minigrad_course.storm.storm_laws import (
    Planted,
    no_smaller_part_fails,
    same_seed_same_trace,
    storms_are_safe_and_live,
)

FIRST, CHUNK = 30, 50


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(FIRST, 1000, CHUNK))
def test_storms_are_safe_and_live(first):
    """The first seeds are in both lanes, by the law below."""
    storms_are_safe_and_live(range(first, first + CHUNK))


def test_every_fault_and_every_strategy_is_met_and_some_ranks_are_killed_as_they_load():
    reports = storms_are_safe_and_live(range(FIRST))
    assert sum((report.faults for report in reports), Counter()).keys() == KINDS.keys()
    assert {report.storm.job.strategy for report in reports} == STRATEGIES.keys()
    deaths = [life for report in reports for life in report.lives if life.end == "killed"]
    assert any(life.trains is None for life in deaths) and any(life.trains for life in deaths)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_faults_nothing_is_repeated(strategy):
    for ranks in (1, 2, 4):
        storm = Storm.of(1, strategy, ranks)
        report = storm.only([]).run()
        assert report.problem is None and report.restarts == 0


def test_the_same_seed_gives_the_same_trace():
    for seed in (30, 46, 97):
        same_seed_same_trace(seed)


def test_another_process_gives_the_same_trace():
    code = "from minigrad_course.storm.storm import Storm; print(Storm.of(97).run().trace, end='')"
    env = {**os.environ, "PYTHONHASHSEED": "5"}
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=100)
    assert other.stdout == Storm.of(97).run().trace, other.stderr


def test_a_storm_is_compared_with_its_own_strategies():
    for strategy in (DataParallel, partial(LocalSGD, period=3)):
        find = partial(dict.__getitem__, {"replicated": strategy})
        assert Storm.of(1, "replicated", 2, find).only([]).run().problem is None


@given(causes=st.lists(st.frozensets(st.integers(0, 5)), min_size=1, max_size=3))
def test_the_fewest_faults_fail_and_none_can_be_left_out(causes):
    faults = tuple(Fault("kill", float(at), 0.0, 0, 0) for at in range(6))
    storm = Planted(0, Job("replicated", 2), faults, tuple(causes))
    places = no_smaller_part_fails(storm)
    assert frozenset(places) in causes
