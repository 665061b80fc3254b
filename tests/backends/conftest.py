"""The command, run in this process: ranks are threads."""

import sys
from dataclasses import replace
from functools import cache

import pytest

from backends.entry import main
from backends.process import launcher
from minigrad import mnist
from minigrad.data import Dataset
from minigrad.mnist import subset


@cache
def digits() -> Dataset:
    """The small data set, read once for all ranks of all tests; nobody may write to it."""
    data = subset()
    for array in (data.train.x, data.train.y, data.test.x, data.test.y):
        array.flags.writeable = False
    return data


@pytest.fixture(scope="module", autouse=True)
def shared_digits():
    """Ranks do not read the digits one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist, "subset", digits)
        yield


@pytest.fixture
def few_digits(monkeypatch):
    """The command trains on 500 digits and tests on 100."""

    def load(name):
        data = mnist.load(name)
        return replace(data, train=data.train[:500], test=data.test[:100])

    monkeypatch.setattr("backends.cli.net_settings.load", load)


@pytest.fixture
def minigrad(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder, without drawing curves: (exit status, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("backends.cli.train.draw_curves", lambda metrics, file: None)
    for name in (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigrad", *arguments])
        with pytest.raises(SystemExit) as end:
            sys.exit(main())
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run
