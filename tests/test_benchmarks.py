"""The tables of the benchmarks fit together, which those who run only some rows would not see."""

import importlib
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def tables():
    """``ops_rows`` and ``limits``, with a stand-in for PyTorch, which titles of rows do not need."""
    torch = {name: MagicMock() for name in ("torch", "torch.nn", "torch.nn.functional")}
    with patch.dict(sys.modules, torch), patch.object(sys, "path", [str(FOLDER), *sys.path]):
        yield [importlib.import_module(name) for name in ("ops_rows", "limits")]


def limits_without_a_row(rows, limits):
    return sorted(limits.keys() - {row.title for row in rows})


def test_every_limit_is_one_of_a_row(tables):
    ops_rows, limits = tables
    assert limits_without_a_row(ops_rows.ROWS, limits.LIMITS) == []


def test_a_limit_without_a_row_is_seen(tables):
    ops_rows, limits = tables
    wrong = {**limits.LIMITS, "relu 2M": None}
    assert limits_without_a_row(ops_rows.ROWS, wrong) == ["relu 2M"]


def test_titles_of_rows_differ(tables):
    titles = [row.title for row in tables[0].ROWS]
    assert sorted(set(titles)) == sorted(titles)


def prints_each_round_once_it_is_measured(module):
    """A line for each round with the milliseconds of each peer, before the next round begins."""
    lines, steps = [], []

    def step(name):
        steps.append((name, len(lines)))

    comm = SimpleNamespace(rank=0, mpi=SimpleNamespace(bcast=float), barrier_with=lambda why: None)
    peers = {name: SimpleNamespace(alone=False, step=partial(step, name)) for name in ("serial", "1f1b")}
    console = SimpleNamespace(print=lambda text, **settings: lines.append(text))
    with patch.object(module, "console", console), patch.object(module, "LEAST_SECONDS", 0.0):
        times = module.interleaved(comm, peers, 3)
    assert [line.partition(",")[0] for line in lines] == [f"round {n} of 3" for n in (1, 2, 3)]
    assert all(len(of_peer) == 3 for of_peer in times.values())
    assert {printed for _, printed in steps} == {0, 1, 2}, "a round is printed before the next one begins"
    for number, line in enumerate(lines):
        assert f"serial {1000 * times['serial'][number]:.1f}" in line


@pytest.fixture(scope="module")
def data_parallel():
    torch = {name: MagicMock() for name in ("torch", "torch.nn", "torch.nn.functional", "torch.distributed")}
    with patch.dict(sys.modules, torch), patch.object(sys, "path", [str(FOLDER), *sys.path]):
        yield importlib.import_module("data_parallel")


def test_a_benchmark_of_ranks_prints_each_round(data_parallel):
    prints_each_round_once_it_is_measured(data_parallel)


def test_a_benchmark_that_prints_at_its_end_is_seen(data_parallel):
    class AtItsEnd:
        console, LEAST_SECONDS = data_parallel.console, 0.0

        def interleaved(self, comm, peers, rounds):
            quiet = SimpleNamespace(print=lambda text, **settings: None)
            with patch.multiple(data_parallel, console=quiet, LEAST_SECONDS=0.0):
                times = data_parallel.interleaved(comm, peers, rounds)
            for number in range(rounds):
                row = ", ".join(f"{name} {1000 * t[number]:.1f}" for name, t in times.items())
                self.console.print(f"round {number + 1} of {rounds}, ms: {row}")
            return times

    with pytest.raises(AssertionError, match="before the next one begins"):
        prints_each_round_once_it_is_measured(AtItsEnd())
