"""Runs over MPI are left out where there is none; all of them where processes cannot be looked at."""

import os
import sys

import pytest

from backends.launch.launch import mpi_problem

OVER_MPI = ("MPI", "survive", "run", "rank", "mpich", "storm")


def pytest_collection_modifyitems(items):
    here = [item for item in items if item.path.parent.name == "interrupts"]
    problem = mpi_problem() if not os.environ.get("MINIGRAD_REQUIRE_MPI") else None
    for item in here:
        if not sys.platform.startswith("linux"):
            item.add_marker(pytest.mark.skip(reason="processes are looked up in /proc"))
        if problem and any(word in item.nodeid for word in OVER_MPI):
            item.add_marker(pytest.mark.skip(reason=problem))
