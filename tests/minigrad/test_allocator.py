"""Laws of minigrad/allocator.py: the one process-wide setting can be switched off."""

import subprocess
import sys

import pytest

from minigrad.allocator import keep_freed_memory


def test_the_environment_switches_it_off(monkeypatch):
    monkeypatch.setenv("MINIGRAD_MALLOC", "default")
    assert keep_freed_memory() is False


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.delenv("MINIGRAD_MALLOC", raising=False)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory() is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
@pytest.mark.parametrize(("threads", "elements"), [(0, 250_000), (4, 2_000_000)])
def test_training_does_not_fault_its_pages_in_again_at_every_step(threads, elements):
    """Page faults are counted, not timed: as many as 200,000 without the setting, 60,000 with threads."""
    count = (
        "import resource, threading, numpy as np, minigrad\n"
        f"f = lambda: [np.ones({elements}) for _ in range(4)]\n"
        "def rounds():\n"
        f"    for _ in range({100 if not threads else 30}): f()\n"
        "f(); f(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        f"ranks = [threading.Thread(target=rounds) for _ in range({threads})]\n"
        "for rank in ranks: rank.start()\n"
        "for rank in ranks: rank.join()\n"
        "if not ranks: rounds()\n"
        "print(minigrad.keep_freed_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, encoding="utf-8", check=True)
    works, faults = done.stdout.split()
    if works != "True":
        pytest.skip("this C library has no mallopt")
    assert int(faults) < 20_000
