"""The double of CuPy in ``tests/strict_cupy``, for tests that run processes on it."""

from pathlib import Path

import numpy as np
import pytest

DOUBLE = Path(__file__).with_name("strict_cupy")  # the PYTHONPATH of such a process
needs_double = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="CuPy 14 and its double need NumPy 2"
)
