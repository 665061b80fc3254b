"""Laws of minigrad/loops.py: compiled loops compute what their Python does, wherever machine code
can be stored, and by any rank.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import loops
from tests.minigrad.loop_laws import COPY, end_with_their_module

needs_numba = pytest.mark.skipif(not loops.available(), reason=f"{loops.problem()}")


def running_means(x, scale, y):
    """Each mean of the elements up to there, times ``scale``: sums whose order no compiler may change."""
    total = 0.0
    for i in range(len(x)):
        total += x[i]
        y[i] = total / (i + 1) * scale


def means(form, x, scale):
    y = np.empty_like(x)
    form(x, scale, y)
    return y


@needs_numba
@given(st.lists(st.floats(-1e6, 1e6, width=32), max_size=40), st.floats(-3, 3), st.sampled_from("fd"))
def test_loops_are_their_python(values, scale, dtype):
    x = np.array(values, dtype)
    expected = means(running_means, x, scale)
    np.testing.assert_allclose(means(loops.compiled(running_means), x, scale), expected, 1e-6, 1e-6)


@needs_numba
def test_each_dtype_has_a_form_of_its_own():
    form = loops.compiled(running_means)
    for dtype in (np.float32, np.float64, np.float32):
        x = np.full(3, 0.1, dtype)
        assert means(form, x, 1.0).tolist() == means(running_means, x, 1.0).tolist()


@needs_numba
def test_loops_end_with_their_module():
    end_with_their_module(loops.compiled)


def text_without_a_file():
    names = {}
    exec(compile(COPY, "no file", "exec"), names)
    return names["copy"]


@needs_numba
def test_loops_of_no_file_are_not_stored():
    x, y = np.arange(3.0), np.zeros(3)
    loops.compiled(text_without_a_file())(x, y)
    assert y.tolist() == [0, 1, 2]


@needs_numba
@pytest.mark.parametrize(
    ("name", "error"),
    [("save", OSError(28, "No space left on device")), ("load", EOFError("Ran out of input"))],
)
def test_a_disk_that_fails_costs_time_only(name, error, tmp_path):
    fails = patch(f"numba.core.caching.IndexDataCacheFile.{name}", side_effect=error)
    with patch("numba.core.config.CACHE_DIR", str(tmp_path)), fails as failure:
        x = np.arange(4.0)
        assert means(loops.compiled(running_means), x, 1.0).tolist() == [0, 0.5, 1, 1.5]
    assert failure.called


def spoiled(x, y):
    y[0] = x.no_such_thing


@needs_numba
def test_an_error_in_the_loops_is_raised():
    with pytest.raises(Exception, match="no_such_thing"):
        loops.compiled(spoiled)(np.ones(2), np.ones(2))


@needs_numba
def test_threads_may_be_the_first_to_call():
    form, x = loops.compiled(running_means), np.arange(5.0)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: means(form, x, 2.0).tolist(), range(8)))
    assert all(result == means(running_means, x, 2.0).tolist() for result in results)


PROGRAM = """
import sys
import numpy as np
from minigrad import ops
for dtype in sys.argv[1]:
    x = np.arange(12, dtype=dtype).reshape(3, 4) ** 2
    print(ops.layer_norm(x, np.ones(4, dtype), np.zeros(4, dtype)).numpy().tobytes().hex())
"""


@needs_numba
def test_processes_that_compile_at_the_same_time_share_a_folder(tmp_path):
    """They begin with different dtypes; a later one, which reads what they stored, computes the same bits."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def start(dtypes):
        command = [sys.executable, "-c", PROGRAM, dtypes]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, encoding="utf-8")

    first, second = start("fd"), start("df")
    single, double = first.communicate(timeout=120)[0].split()
    assert second.communicate(timeout=120)[0].split() == [double, single]
    stored = sorted(path.name for path in tmp_path.rglob("*.nbc"))
    assert len(stored) == 2 and stored[0] != stored[1], stored
    assert start("fd").communicate(timeout=120)[0].split() == [single, double]
    assert sorted(path.name for path in tmp_path.rglob("*.nbc")) == stored


WITHOUT = """
import sys
import numpy as np
from minigrad import Tape, Tensor, models, ops, optim
for name in ("mlp", "lenet"):
    net = models.NETS[name]
    model = net.build(np.random.default_rng(0))
    x = np.ones((8, 1, 28, 28), np.float32)
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(x)), np.arange(8))
    tape.backward(loss)
    optim.SGD(model.parameters(), 0.1, momentum=0.9).step()
print("numba" in sys.modules)
"""


def test_networks_without_normalisation_do_not_import_numba():
    """It takes 60 MB, which training them should not."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, encoding="utf-8", timeout=120)
    assert done.stdout.split() == ["False"], done.stderr


X = np.ones(3)


@pytest.mark.parametrize(
    ("arrays", "fits"),
    [
        ((X,), True),
        ((X, X), True),
        ((X.astype("f"), X.astype("f")), True),
        ((X, X.astype("f")), False),
        ((X.astype(">f8"),), False),
        ((X.astype("e"),), False),
        ((X.astype(int),), False),
        ((X[:0],), False),
        ((X, None), False),
        ((1.0,), False),
    ],
)
def test_loops_take_arrays_of_one_floating_type(arrays, fits):
    assert loops.can_take(*arrays) == (fits and loops.available())


def test_without_numba_there_is_a_way_out():
    loops.problem.cache_clear()
    try:
        with patch.dict(sys.modules, {"numba": None}):
            assert "pip install numba" in str(loops.problem())
            assert not loops.available() and not loops.can_take(X)
    finally:
        loops.problem.cache_clear()
