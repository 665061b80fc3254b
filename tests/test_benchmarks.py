"""The tables of the benchmarks fit together, which those who run only some rows would not see."""

import importlib
import sys
from pathlib import Path
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
