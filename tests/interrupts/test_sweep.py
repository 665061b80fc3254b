"""Laws of backends/process/sweep.py and backends/launch/supervise.py: what a job leaves is ended and
removed, what mpiexec says of its end is not shown, and nothing else.
"""

import mmap
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from backends.launch.supervise import supervised, without_banner
from backends.process import sweep


def sleeper(mark: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(60)"], env={sweep.MARK: mark}
    )


def new_mark() -> str:
    """A mark that no other test has: tests run side by side, and their folders' names are cut."""
    return f"job-{uuid.uuid4().hex}"


def test_the_processes_of_a_job_and_of_those_within_it_are_killed():
    outer, inner = new_mark(), new_mark()
    processes = [sleeper(mark) for mark in (outer, f"{outer}:{inner}", inner, f"another:{outer}2")]
    try:
        sweep.kill(outer)
        assert [process.wait(5) for process in processes[:2]] == [-9, -9]
        assert [process.poll() for process in processes[2:]] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("word", [b".", b""], ids=["it ends", "it is killed"])
def test_where_a_launcher_ends_without_a_word_its_job_is_ended(tmp_path, word):
    folder = tmp_path / new_mark()
    folder.mkdir()
    job = sleeper(str(folder))
    line = [sys.executable, "-I", "-S", sweep.__file__, str(folder), str(time.time())]
    try:
        subprocess.run(line, input=word, timeout=30, check=True)
        assert (job.poll() is None) == bool(word) == folder.exists()
    finally:
        job.kill()
        job.wait()


def test_a_launcher_that_ends_well_leaves_other_jobs_alone_and_its_folder(tmp_path):
    other = sleeper(new_mark())
    try:
        with supervised([sys.executable, "-S", "-c", ""], {**os.environ}, str(tmp_path)) as job:
            assert job.process.wait(30) == 0
        assert other.poll() is None and tmp_path.exists()
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("prefix", sweep.SHARED)
def test_shared_memory_that_nobody_maps_is_removed(prefix):
    left, used = (Path(f"/dev/shm/{prefix}{os.getpid()}{name}") for name in ("left", "used"))
    start = time.time() - 1
    try:
        left.write_bytes(bytes(40))
        used.write_bytes(bytes(40))
        with used.open("r+b") as file, mmap.mmap(file.fileno(), 40):
            sweep.sweep_memory(start)
            assert not left.exists() and used.exists()
    finally:
        for file in (left, used):
            file.unlink(missing_ok=True)


LINE = b"=" * 83 + b"\n"
BANNER = (
    LINE + b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n" + LINE
    + b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    b"This typically refers to a problem with your application.\n"
    b"Please see the FAQ page for debugging suggestions\n"
)  # fmt: skip
TEXTS = st.lists(st.sampled_from([b"loss 0.5\n", b"\n", b"=", LINE, b"= x\n", b"BAD TERMINATION\n", b"50 %"]))


@given(TEXTS, TEXTS, st.lists(st.integers(0, 900), max_size=6))
def test_all_but_the_banner_is_passed_on_however_it_comes(before, after, cuts):
    text = b"".join(before) + b"\n" + BANNER + b"".join(after)
    places = [0, *sorted(cuts), len(text)]
    chunks = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert b"".join(without_banner(chunks)) == b"".join(before) + b"\n" + b"".join(after)


@given(TEXTS, st.integers(BANNER.index(b"BAD TERMINATION") + 15, len(BANNER) - 1))
def test_a_banner_that_mpiexec_could_not_finish_is_not_passed_on(before, cut):
    text = b"".join(before) + b"\n"
    assert b"".join(without_banner([text, BANNER[:cut]])) == text


@pytest.mark.parametrize("text", [b"training", b"50 %\n", b"=====>", b"\n"])
def test_what_can_be_no_banner_is_shown_at_once(text):
    assert next(without_banner(iter([text]))) == text
