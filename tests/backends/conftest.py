"""The command, run in this process: ranks are threads."""

import sys

import pytest

from backends.__main__ import main
from backends.launch import launcher


@pytest.fixture
def minigrad(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder: (exit status, output, errors)."""
    monkeypatch.chdir(tmp_path)
    for name in (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigrad", *arguments])
        with pytest.raises(SystemExit) as end:
            sys.exit(main())
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run
