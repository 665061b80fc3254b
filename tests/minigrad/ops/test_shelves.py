"""Laws of minigrad/faster.py and minigrad/ops/fast/: the readable shelf is read alone, and
computes all ops alone.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad.faster import faster, form_of

ROOT = Path(__file__).parents[3]
OPS = ROOT / "minigrad" / "ops"
READABLE = [file for file in sorted(OPS.glob("*.py")) if file.name != "__init__.py"]
FAST = [file for file in sorted((OPS / "fast").glob("*.py")) if file.name != "__init__.py"]
ON_GPU_INDICES_ARE_NOT_READ = {"gather.py", "linear.py"}  # what is out of range there becomes NaN
MOST_LINES = 3_500  # of the readable shelf, of which each file has an example


def names_in(text):
    """The modules and functions that a file names: those that it imports, and those that it calls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.Call):
            yield from (part for part in ast.unparse(node.func).split("."))


def fast_names(text, file=""):
    """What in a file's text belongs onto the fast shelf."""
    fast = {"fast", "loops", "numba", "cublas", "elementwise_kernel"}
    fast |= set() if file in ON_GPU_INDICES_ARE_NOT_READ else {"on_gpu"}
    return sorted({name for name in names_in(text) if name in fast or name.endswith("_kernels")})


@pytest.mark.parametrize("file", READABLE, ids=lambda file: file.name)
def test_a_readable_file_names_nothing_fast(file):
    assert fast_names(file.read_text(encoding="utf-8"), file.name) == []


@pytest.mark.parametrize(
    "text",
    ["from .. import loops", "from .fast.softmax import by_loops", "from . import x_kernels", "on_gpu(x)"],
)
def test_the_check_sees_what_is_fast(text):
    assert fast_names(text)


def test_the_readable_shelf_stays_small():
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in OPS.glob("*.py"))
    assert 0.95 * MOST_LINES < lines <= MOST_LINES, f"{lines} lines; what belongs onto the fast shelf?"


@pytest.mark.parametrize("file", FAST, ids=lambda file: file.name)
def test_a_fast_file_joins_a_form_or_helps_one_that_does(file):
    """So none is left over when the readable form changes."""
    text = file.read_text(encoding="utf-8")
    others = [other.read_text(encoding="utf-8") for other in FAST if other is not file]
    helps = any(name == file.stem for other in others for name in names_in(other))
    assert "@form_of(" in text or helps


def alone(*command):
    """Run a command of Python on the readable shelf alone."""
    environment = os.environ | {"MINIGRAD_OPS": "readable", "HYPOTHESIS_PROFILE": "short"}
    command = [sys.executable, *command]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=250
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


@pytest.mark.parametrize(
    "names",
    [
        ("ops/test_ops", "ops/test_op_errors", "ops/test_values", "ops/test_extremes", "test_networks"),
        pytest.param(("test_dtypes", "test_half", "ops/test_edges"), marks=pytest.mark.thorough),
    ],
    ids=["values", "types"],
)
def test_the_laws_of_ops_hold_on_the_readable_shelf_alone(names):
    files = [f"tests/minigrad/{name}.py" for name in names]
    assert " passed" in alone("-m", "pytest", "-q", "-n", "0", *files)


TEXT = "--net transformer --length 8 --width 8 --heads 2 --blocks 1"


@pytest.mark.parametrize("ranks", ["--data 2", "--pipe 2", "--model 2", f"--sequence 2 {TEXT}"])
def test_a_strategy_is_proved_on_the_readable_shelf_alone(ranks):
    assert "PROVED" in alone("-m", "backends", "prove", *ranks.split(), "--transport", "threads")


def test_no_form_is_joined_on_the_readable_shelf_alone():
    script = (
        "import inspect\nfrom minigrad import ops\nfrom minigrad.faster import faster\n"
        "stop = lambda f: isinstance(f, faster)\n"
        "kinds = [inspect.unwrap(getattr(ops, name), stop=stop) for name in ops.__all__]\n"
        "from backends.sequence_parallel.tiles import attend_to_block, gradients_of_block\n"
        "kinds += [attend_to_block, gradients_of_block]\n"
        "print(sum(len(f.forms) for f in kinds if stop(f)))"
    )
    assert alone("-c", script) == "0\n"


def test_the_first_form_that_takes_the_arguments_computes():
    @faster
    def double(x, *, times=1):
        return "readable", x * 2 * times

    @form_of(double)
    def double_integers(x, *, times=1):
        return ("integers", x * 2 * times) if isinstance(x, int) else NotImplemented

    @form_of(double)
    def double_anything_once(x, *, times=1):
        return ("once", x + x) if times == 1 else NotImplemented

    assert double(3, times=2) == ("integers", 12)
    assert double(1.5) == ("once", 3.0)
    assert double(1.5, times=2) == ("readable", 6.0)
    with pytest.raises(AssertionError, match="decorate .* with @faster"):
        form_of(np.abs)(double_integers)
