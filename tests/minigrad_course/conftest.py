"""The command, run in this process."""

import sys

import pytest

from backends.entry import main


@pytest.fixture
def minigrad(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder: exit status, output, errors."""
    monkeypatch.chdir(tmp_path)

    def minigrad(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigrad", *arguments])
        with pytest.raises(SystemExit) as end:
            sys.exit(main())
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return minigrad
