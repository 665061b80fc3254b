"""The double of CuPy in ``tests/strict_cupy``: whether it stands in CuPy's place, and where it is."""

import os
import subprocess
import sys
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


def check_on_double(file: str, config: pytest.Config) -> None:
    """Assert that the tests of a file pass with the double, in the lane of this run."""
    lane = ["--thorough"] if config.getoption("thorough") else []
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *lane, file]
    environment = os.environ | {"PYTHONPATH": str(DOUBLE), "PYTHONDONTWRITEBYTECODE": "1"}
    if not lane:  # .ci/run draws more there
        environment["HYPOTHESIS_PROFILE"] = "short"
    run = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=300)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr
