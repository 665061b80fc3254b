"""The double of CuPy in ``tests/strict_cupy``: whether it stands in CuPy's place, and where it is."""

from pathlib import Path

import numpy as np
import pytest

from minigrad.testing import DEVICE

try:
    from cupy import _counts  # noqa: F401  # pyright: ignore
except ImportError:
    ON_DOUBLE = False
else:
    ON_DOUBLE = True

ON_CUDA = DEVICE == "cupy" and not ON_DOUBLE  # which rounds powers, products and sums in its own way
DOUBLE = Path(__file__).with_name("strict_cupy")  # the PYTHONPATH of such a process
needs_double = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="CuPy 14 and its double need NumPy 2"
)
