"""The lanes of the tests, and the surroundings that all tests need.

``pytest`` runs the quick lane: the laws, every strategy, real MPI. ``pytest --double`` runs the tests that
compute on a double of CuPy, and ``pytest --thorough`` every test, on six times as many examples.
``--share 3/20`` runs the third of 20 shares of a lane. With HYPOTHESIS_PROFILE=short a law draws 6
examples, where the quick lane draws 10.

Files that take long come first, so that two workers end together: ``tests/seconds.json`` has the seconds of
each file, and ``python -m tests.times`` writes it.
"""

import ctypes
import gc
import json
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy  # noqa: F401  # loads the BLAS whose threads are limited
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

SECONDS = Path(__file__).with_name("seconds.json")
NEW = 1000.0  # seconds of a file that nobody has measured: it is not to come last
COMMON = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
EXAMPLES = {"short": 6, "quick": 10, "thorough": 60}
for name, number in EXAMPLES.items():
    settings.register_profile(name, COMMON, max_examples=number)


def pytest_addoption(parser):
    lanes = parser.getgroup("lanes")
    lanes.addoption("--thorough", action="store_true", help="run every test, on more examples")
    lanes.addoption("--double", action="store_true", help="run the tests on a double of CuPy")
    lanes.addoption("--share", metavar="K/N", help="run the K-th of N shares of the lane's tests")


def pytest_configure(config):
    config.addinivalue_line("markers", "thorough: a test that only pytest --thorough runs")
    config.addinivalue_line("markers", "double: a test that pytest --double runs, and pytest --thorough")
    os.environ.setdefault("HYPOTHESIS_PROFILE", "thorough" if config.getoption("thorough") else "quick")
    settle()


def settle():
    """Give this process, of the tests or started by them, the surroundings that all tests need."""
    settings.load_profile(os.environ["HYPOTHESIS_PROFILE"])
    hear_signals()
    # Else each command that the tests start would compile the whole of minigrad.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Else the idle threads of OpenBLAS in each would spin for 0.1 s, which other workers need.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    # Two workers compute on two cores: a product on several threads would wait for the other worker.
    threadpool_limits(1, "blas")


def pytest_xdist_auto_num_workers():
    """Half as many again as there are cores, for tests wait for the processes that they start; at most 8."""
    cores = os.cpu_count() or 1
    return min(8, cores + (cores + 1) // 2)


def hear_signals():
    """Let the commands that the tests start and stop hear every signal.

    A shell that starts the tests in the background lets them ignore SIGINT, and ``nohup`` SIGHUP; what a
    process ignores, its children ignore, too, and what it has a handler for they do not.
    """
    by_python = {signal.Signals.__members__.get(name) for name in ("SIGPIPE", "SIGXFSZ")}
    for number in signal.valid_signals() - by_python:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else pass_over)


def pass_over(number, frame):
    """Do what ignoring a signal does."""


def pytest_collection(session):
    """Let each worker load another part of all tests first: on a fresh clone no two compile the same file."""
    gc.set_threshold(100_000)  # until the tests are there
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    first = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in files[first:] + files[:first]:
        with suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong
            import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(config, items):
    """Leave out what is not of the lane and the share; of the rest the longest files first."""
    chosen = [item for item in items if is_in_lane(item, config)]
    if share := config.getoption("share"):
        chosen = share_of(chosen, share)
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    seconds = json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}
    root = config.rootpath

    def place(item):
        return -seconds.get(item.path.relative_to(root).as_posix(), NEW)

    items[:] = sorted(chosen, key=place)  # stable: the tests of a file stay together


def is_in_lane(item, config):
    """Whether the lane of this run has the test."""
    thorough, double = (item.get_closest_marker(name) is not None for name in ("thorough", "double"))
    if config.getoption("thorough"):
        return True
    return not thorough and double == config.getoption("double")


def pytest_collection_finish():
    """Leave what is there before the first test out of Python's searches for unused objects.

    They take less time then, and come more often: a worker keeps no garbage of hundreds of tests. Searches
    among new objects alone come less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="module", autouse=True)
def collected_garbage():
    """After each file what only refers to itself is let go of, and what is left is searched no more."""
    yield
    gc.collect()
    gc.freeze()
    # minigrad asks glibc to keep large arrays' memory; other C libraries keep nothing.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def share_of(items, share):
    """The K-th of N shares for ``"K/N"``: of any N tests in a row each is in another one."""
    k, n = map(int, share.split("/"))
    if not 1 <= k <= n:
        raise pytest.UsageError(f"--share {share}: K of K/N is 1 to N")
    return items[k - 1 :: n]
