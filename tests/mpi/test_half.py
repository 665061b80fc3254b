"""Strategies with float16 parameters over real MPI: scaled gradients, and steps that all ranks leave out."""

import pytest

TRAINS = """
from tests.backends.half_laws import LAYOUTS, gradients_are_serial, ranks_skip_together

for layout in LAYOUTS.values():
    if layout.ranks == comm.size:
        layout = layout._replace(run=lambda ranks, work: [work(comm)])
        gradients_are_serial(layout)
        if layout.strategy.__name__ != "NaiveSharded":
            ranks_skip_together(layout, comm.size - 1)
"""


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_float16_trains_on_ranks(pool, ranks):
    pool.run(ranks, TRAINS)
