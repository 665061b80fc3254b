"""The one process-wide setting can be switched off."""

import subprocess
import sys

import pytest

from minigrad.memory import keep_freed_memory


def test_the_environment_switches_it_off(monkeypatch):
    monkeypatch.setenv("MINIGRAD_MALLOC", "default")
    assert keep_freed_memory() is False


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.delenv("MINIGRAD_MALLOC", raising=False)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
def test_training_does_not_fault_its_pages_in_again_at_every_step():
    """Page faults are counted, not timed: a hundred rounds of 8 MB would be 200,000 without the setting."""
    count = (
        "import resource, numpy as np, minigrad\n"
        "f = lambda: [np.ones(250_000) for _ in range(4)]\n"
        "f(); f(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(100): f()\n"
        "print(minigrad.keep_freed_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    works, faults = done.stdout.split()
    if works != "True":
        pytest.skip("this C library has no mallopt")
    assert int(faults) < 20_000
