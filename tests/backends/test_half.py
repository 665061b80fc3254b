"""Laws of float16 parameters in backends/data_parallel/data_parallel.py and step_summary.py, and in the
strategies of all axes.
"""

import pytest

from tests.backends import half_laws as laws


@pytest.mark.parametrize("name", laws.LAYOUTS)
def test_a_step_sends_half_the_bytes(name):
    laws.sends_half_the_bytes(laws.LAYOUTS[name])
