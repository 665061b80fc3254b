"""The double of CuPy obeys its laws and answers as CuPy 14.2 did; doubles with a seeded bug are caught.

Each law runs in a process of its own with the double's folder in PYTHONPATH.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.double import needs_double

DOUBLE = Path(__file__).parent
TWO_DEVICES = {"STRICT_CUPY_DEVICES": "2", "STRICT_CUPY_PEER_ACCESS": "0"}
LAWS = {
    "kernels_of_cuda": {},
    "by_address": {},
    "upload_lands_late": {},
    "pinned_memory_is_read_late": {},
    "streams_do_not_wait": {},
    "copies_to_host_may_be_late": {},
    "programs": {},
    "elementwise_kernel": {},
    "kernel_in_cpp": {},
    "kernels_in_cuda": {},
    "kernels_in_cuda_race": {},
    "kernels_in_cuda_refuse": {},
    "kernels_in_cuda_have_bounds": {},
    "threads_compile_kernels": {},
    "threads_launch_kernels": {},
    "devices": TWO_DEVICES,
    "counts": {},
    "graph_programs": {},
    "graphs_hold_numbers_and_addresses": {},
    "captures_refuse": {},
    "other_streams_are_not_captured": {},
    "memory_of_graphs": {},
}
# What the double answers otherwise: an error of another type, a dtype that NumPy's sign does not take, and
# whether a result has a base, as CUB's of a whole array has.
OTHERWISE = {
    *("None @ s32", "cp.sign(b)", "v64.argmax(axis=0)", "i.argmax(axis=0)", "b.argmax(axis=0)"),
    *("u8.argmax(axis=0)", "v64.sum(axis=(0,), keepdims=True)", "v64.mean(axis=-1, keepdims=True)"),
    "i.sum(axis=(0,), keepdims=True)",
}

pytestmark = needs_double


def run(folder: Path | None, script: str, *args: str, **variables: str) -> str:
    """What a script prints with the double in ``folder``; with None, the CuPy that is installed."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("STRICT_", "PYTHONPATH"))
    }
    env |= variables | ({} if folder is None else {"PYTHONPATH": str(folder)})
    result = subprocess.run(
        [sys.executable, "-P", str(DOUBLE / script), *args],
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def answers_as_cupy(folder: Path | None) -> None:
    expected = json.loads(gzip.decompress((DOUBLE / "answers.json.gz").read_bytes()))
    answers = json.loads(run(folder, "differential.py"))
    assert answers.keys() == expected.keys() and len(answers) == 6950
    wrong = {
        e: (answers[e], expected[e]) for e in expected if answers[e] != expected[e] and e not in OTHERWISE
    }
    assert not wrong, f"{len(wrong)} answers are not CuPy's; (own, CuPy's): {dict(list(wrong.items())[:5])}"


def test_the_double_answers_as_cupy():
    answers_as_cupy(DOUBLE)


@pytest.mark.skipif("REAL_CUPY" not in os.environ, reason="REAL_CUPY=1 asks the CuPy that is installed")
def test_cupy_still_answers_as_it_did():
    answers_as_cupy(None)


@pytest.mark.double
@pytest.mark.parametrize("law", LAWS)
def test_law(law):
    if law.startswith("kernels_in_cuda"):
        needs_compiler()
    run(DOUBLE, "laws.py", law, **LAWS[law])


def needs_compiler() -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")


# Doubles with a bug.


def with_bug(folder: Path, file: str, line: str, other: str) -> Path:
    """A copy of the double in ``folder`` with one text of ``file`` replaced."""
    shutil.copytree(DOUBLE / "cupy", folder / "cupy")  # with the byte code of what stays as it is
    path = folder / "cupy" / file
    source = path.read_text(encoding="utf-8")
    assert source.count(line) == 1, f"{file} has {source.count(line)} times {line!r}"
    path.write_text(source.replace(line, other), encoding="utf-8")
    return folder


LIKE_NUMPY = {
    "results keep the operands' memory order": (
        "_memory.py",
        "values = np.array(values, order=order)",
        'values = np.array(values, order="K")',
    ),
    "host arrays are operands": (
        "_memory.py",
        "or isinstance(x, np.generic)",
        "or isinstance(x, np.generic | np.ndarray)",
    ),
    "host arrays are assigned": (
        "_indexing.py",
        "elif target is not None and np.ndim(value):",
        "elif target is not None and np.ndim(value) > 9:",
    ),
    "arrays are converted implicitly": (
        "_array.py",
        'raise TypeError(\n            "Implicit',
        'return self.get()\n        raise TypeError(\n            "Implicit',
    ),
    "sums of columns are rows": ("_reductions.py", '"F" if by_columns', '"C" if by_columns'),
    "windows have a base": ("lib/stride_tricks.py", "new.base = None", "pass"),
    "numbers have an axis": ("_reductions.py", "raise np.exceptions.AxisError(0, 0)", "pass"),
}


@pytest.mark.double
@pytest.mark.parametrize("bug", LIKE_NUMPY)
def test_a_double_that_is_more_like_numpy_answers_wrongly(bug, tmp_path):
    with pytest.raises(AssertionError, match="answers are not CuPy's"):
        answers_as_cupy(with_bug(tmp_path, *LIKE_NUMPY[bug]))


BROKEN = {
    "extrema are as exact as their numbers": (
        "kernels_of_cuda",
        "_ufuncs.py",
        "elif a.dtype == np.float64:",
        "elif False:",
    ),
    "extrema meet NaN": (
        "kernels_of_cuda",
        "_ufuncs.py",
        'ATOMIC = {"maximum": np.fmax',
        'ATOMIC = {"maximum": np.maximum',
    ),
    "arrays without axes have addresses": (
        "kernels_of_cuda",
        "_manipulation.py",
        "if a.ndim == 0 or b.ndim == 0:",
        "if False:",
    ),
    "kernels are never late": ("by_address", "_late.py", "_late = _late, True", "_late = _late, False"),
    "every kernel runs the queue": ("by_address", "_late.py", "self.run(self._done + i + 1)", "self.run()"),
    "nobody runs the queue before reading": (
        "programs",
        "_memory.py",
        "queue.run_before_reading(x._memory)",
        "pass",
    ),
    "only the first write is done before reading": (
        "programs",
        "_late.py",
        "range(len(self._writes) - 1, -1, -1)",
        "range(len(self._writes))",
    ),
    "the newest write is done first": (
        "programs",
        "_late.py",
        "for memory, values in self._writes[:count]:",
        "for memory, values in self._writes[:count][::-1]:",
    ),
    "uploads are never late": (
        "upload_lands_late",
        "_creation.py",
        "new = filled(values, order)",
        "new = _memory.array_of(np.array(values, order=order))",
    ),
    "streams wait for one another": (
        "streams_do_not_wait",
        "cuda.py",
        "            return [self._own]",
        "            return [s._own for s in _streams]",
    ),
    "events do nothing": (
        "streams_do_not_wait",
        "cuda.py",
        "            queue.run(position)",
        "            pass",
    ),
    "the null stream waits for nobody": (
        "streams_do_not_wait",
        "cuda.py",
        "return [*others, _null_queues[device]]",
        "return [_null_queues[device]]",
    ),
    "copies always block": ("copies_to_host_may_be_late", "_array.py", "if blocking:", "if True:"),
    "reading checks no device": ("devices", "_memory.py", "    check_device(x)\n    if", "    if"),
    "a kernel's outputs cannot be read": (
        "elementwise_kernel",
        "_kernels.py",
        "_memory.read(x).copy()",
        "np.zeros_like(x._memory)",
    ),
    "a kernel mixes types": (
        "elementwise_kernel",
        "_kernels.py",
        "types.setdefault(kind, x.dtype) != x.dtype",
        "types.setdefault(kind, x.dtype) is None",
    ),
    "integers are divided as in Python": (
        "kernel_in_cpp",
        "_statements.py",
        "return (a - np.fmod(a, b)) // b",
        "return a // b",
    ),
    "a condition holds everywhere": (
        "kernel_in_cpp",
        "_statements.py",
        "before[np.broadcast_to(condition, before.shape)]",
        "before",
    ),
    "two threads may write an element": (
        "kernel_in_cpp",
        "_statements.py",
        "if not np.all(alone & (self.writer[index] == threads)):",
        "if False:",
    ),
    "an index wraps round": ("kernel_in_cpp", "_statements.py", "index.min() >= 0 and", ""),
    "a kernel writes to its inputs": (
        "kernel_in_cpp",
        "_kernels.py",
        "writable=n >= self.nin",
        "writable=True",
    ),
    "raw arrays have a memory order": (
        "kernel_in_cpp",
        "_kernels.py",
        "Raw(x.reshape(-1), lanes",
        'Raw(x.reshape(-1, order="A"), lanes',
    ),
    "threads of a block do not wait": (
        "kernels_in_cuda",
        "cuda_on_host.h",
        "    swapcontext(&threads[me], &scheduler);\n",
        "",
    ),
    "threads are always in one order": (
        "kernels_in_cuda_race",
        "_raw.py",
        "threads, order, *values)",
        "threads, 0, *values)",
    ),
    "a number of Python is a number of C": (
        "kernels_in_cuda_refuse",
        "_raw.py",
        "if type(x) is not kind:",
        "if not hasattr(x, 'item') and not isinstance(x, int):",
    ),
    "arrays of a kernel have no fence": (
        "kernels_in_cuda_have_bounds",
        "_raw.py",
        "copy = np.frombuffer(memory, x.dtype, x.size, pages - x.nbytes).reshape(x.shape)",
        "copy = np.empty(x.shape, x.dtype)",
    ),
    "a product counts as a kernel": (
        "counts",
        "_products.py",
        'note("gemm")\n    if out',
        'note("launch")\n    if out',
    ),
    "transposed matrices are copied": (
        "counts",
        "_products.py",
        "and not x.flags.forc and not is_matrix_of_cublas(x)",
        "and not x.flags.c_contiguous",
    ),
    "a capture writes": (
        "graph_programs",
        "_memory.py",
        "        _capture.check_recorded()\n        return\n",
        "        _capture.check_recorded()\n",
    ),
    "a launch computes once": (
        "graph_programs",
        "_capture.py",
        "                node.run()",
        "                pass",
    ),
    "a graph keeps the values of the capture": (
        "graphs_hold_numbers_and_addresses",
        "_capture.py",
        "memory, block = x._memory, cuda",
        "memory, block = x._memory.copy(), cuda",
    ),
    "the host reads in a capture": ("captures_refuse", "cuda.py", '("copy to host", "D2H")', '("", "")'),
    "the host waits in a capture": ("captures_refuse", "cuda.py", "        check_wait(self)\n", ""),
    "a captured stream may be asked": (
        "captures_refuse",
        "cuda.py",
        "self._valid = False  # the",
        "pass  # the",
    ),
    "every stream is captured": (
        "other_streams_are_not_captured",
        "cuda.py",
        "    stream = get_current_stream()\n    return None if stream._nodes is None else stream",
        "    return _captured[0]",
    ),
    "memory is never given out again": (
        "memory_of_graphs",
        "cuda.py",
        "        owner._free.append(block)",
        "        pass",
    ),
    "all pools are one": (
        "memory_of_graphs",
        "cuda.py",
        "_thread.pools[-1] if _thread.pools else _default_pool",
        "_default_pool",
    ),
}

if sys.version_info[:3] <= (3, 11, 7):  # later ones count the depth of each tree by itself
    BROKEN["threads build syntax trees at once"] = (
        "threads_compile_kernels",
        "_statements.py",
        "with TREE:",
        "if True:",
    )


@pytest.mark.double
@pytest.mark.parametrize("bug", BROKEN)
def test_a_law_catches(bug, tmp_path):
    law, *change = BROKEN[bug]
    if law.startswith("kernels_in_cuda"):
        needs_compiler()
    with pytest.raises(AssertionError, match="Error"):
        run(with_bug(tmp_path, *change), "laws.py", law, "hunt", **LAWS[law])
