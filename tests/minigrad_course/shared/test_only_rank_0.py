"""Laws of lessons/minigrad_course/shared/only_rank_0.py and backends/process/launcher.py: of a script that
one process does alone the other ranks end at once, having told MPICH's mpiexec.
"""

import select
import socket

import pytest
from minigrad_course.shared import only_rank_0

from backends.process import launcher
from tests.bugs.mutant import mutant

HYDRA = ("PMI_RANK", "PMI_SIZE", "PMI_FD", "HYDI_CONTROL_FD")


def takes_leave(leave, monkeypatch) -> None:
    """It says so to mpiexec's proxy, waits for an answer, not for ever, and ends with status 0."""
    ours, proxys = socket.socketpair()
    heard = []

    def answered(read, write, error, seconds):
        assert read == [ours.fileno()] and seconds is not None and 0 < seconds <= 5
        heard.append(proxys.recv(100, socket.MSG_DONTWAIT))

    with ours, proxys, monkeypatch.context() as patched:
        patched.setattr(select, "select", answered)
        for name, value in zip(HYDRA, ("2", "3", str(ours.fileno()), "7"), strict=True):
            patched.setenv(name, value)
        try:
            leave()
        except SystemExit as end:
            assert end.code is None
        else:
            raise AssertionError("it goes on")
        assert heard == [b"cmd=finalize\n"]


def test_a_rank_that_is_not_needed_takes_leave(monkeypatch):
    takes_leave(only_rank_0.only_rank_0, monkeypatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('b"cmd=finalize\\n"', 'b"cmd=init\\n"'),
        ("    raise SystemExit\n", "    return\n"),
        ("            select.select([pipe], [], [], 1)\n", ""),
        ("select.select([pipe], [], [], 1)", "select.select([pipe], [], [], None)"),
    ],
    ids=["says something else", "goes on", "does not wait for the answer", "waits for ever"],
)
def test_broken_copies_do_not(right, wrong, monkeypatch):
    broken = mutant("minigrad_course.shared.only_rank_0", (right, wrong))
    with pytest.raises(AssertionError):
        takes_leave(broken.only_rank_0, monkeypatch)


def test_it_ends_too_where_nobody_answers_or_listens(monkeypatch):
    """Where the proxy is gone, where there is another mpiexec; and it waits a bounded time."""
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(SystemExit):
        only_rank_0.only_rank_0()
    monkeypatch.setenv("HYDI_CONTROL_FD", "7")
    ours, proxys = socket.socketpair()
    monkeypatch.setenv("PMI_FD", str(ours.fileno()))
    with ours, proxys, pytest.raises(SystemExit):
        only_rank_0.only_rank_0()
    with pytest.raises(SystemExit):
        only_rank_0.only_rank_0()  # the pipe is closed


def test_rank_0_and_who_has_no_mpiexec_go_on(monkeypatch):
    for name in (*HYDRA, *launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    only_rank_0.only_rank_0()
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    only_rank_0.only_rank_0()
