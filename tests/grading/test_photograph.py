"""Every change of what grades is seen, and what merely runs changes nothing; copies with a bug see less."""

import builtins
from pathlib import Path

import numpy as np
import pytest

from backends import laws
from backends.comm import run_ranks, threads
from backends.comm.collectives import ring_allreduce
from backends.grading import photograph
from backends.grading.task import Wrong
from tests.bugs.mutant import mutant


def nothing(*_):
    return None


CHANGES = {  # an object, the name that is set in it, and what it is called then
    "function": (laws, "trains_like_serial", "backends.laws.trains_like_serial"),
    "class": (threads, "ThreadComm", "backends.comm.threads.ThreadComm"),
    "method": (threads.ThreadComm, "send", "backends.comm.threads.ThreadComm.send"),
    "new method": (Wrong, "__init__", "backends.grading.task.Wrong.__init__"),
    "code": (laws.trains_like_serial, "__code__", "backends.laws.trains_like_serial"),
    "default": (laws.trains_like_serial, "__defaults__", "backends.laws.trains_like_serial"),
    "NumPy's": (np, "array_equal", "numpy.array_equal"),
    "NumPy's tests": (np.testing, "assert_allclose", "numpy.testing.assert_allclose"),
    "Python's": (builtins, "ascii", "builtins.ascii"),
}
VALUES = {"code": nothing.__code__, "default": (1, 2)}


def sees_every_change(photograph):
    def now():
        return photograph.photograph(photograph.watched_modules(Path("/nowhere")))

    before = now()
    run_ranks(3, lambda comm: ring_allreduce(comm, np.ones(4)))
    assert photograph.changed(before, now()) == []
    for what, (owner, name, called) in CHANGES.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, VALUES.get(what, nothing), raising=False)
            assert called in photograph.changed(before, now()), what
    assert photograph.changed(before, now()) == []


def test_every_change_is_seen():
    sees_every_change(photograph)


BUGS = {
    "not the code": ("(value.__code__, value.__defaults__) if", "() if"),
    "not the defaults": ("(value.__code__, value.__defaults__) if", "(value.__code__,) if"),
    "not the methods": ("for key, part in list(vars(value).items()):", "for key, part in ():"),
    "not what is new": ("return other + [", "return other or [] and ["),
    "not NumPy": ('"numpy.testing"', '"nothing"'),
    "equal for the same": ("x is y", "type(x) is type(y)"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_photograph_bugs_are_caught(bug):
    with pytest.raises(AssertionError):
        sees_every_change(mutant("backends.grading.photograph", BUGS[bug]))
