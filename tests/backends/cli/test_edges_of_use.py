"""Laws of backends/__init__.py, backends/entry.py and backends/cli/train.py: what a terminal, a disk or a
locale does to a command ends in one line, and loses nothing.
"""

import os
import subprocess
import sys

import pytest

from backends.launch.restarts import Restarts
from backends.launch.supervise import Ending, saved_in

TRAIN = ["train", "--net", "sigmoid", "--batch", "1000", "--epochs", "1", "--transport", "threads"]
COMMAND = [sys.executable, "-m", "backends"]
AT_ENTRY = (
    "import backends.__main__, sys; print([n for n in ('numpy', 'minigrad', 'typer') if n in sys.modules])"
)


def test_nothing_heavy_is_imported_before_signals_are_guarded():
    """A signal in an import of NumPy would end in a traceback."""
    done = subprocess.run([sys.executable, "-c", AT_ENTRY], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "[]\n", done


def test_the_package_loads_nothing_before_signals_are_guarded():
    """``backends.__main__`` guards them, and the package around it is loaded before."""
    script = "import sys; known = {*sys.modules}; import backends; print(sorted({*sys.modules} - known))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "['__future__', 'backends']\n", done


def test_the_version_needs_none_of_the_other_commands(minigrad):
    script = "import sys; sys.argv = ['minigrad', '--version']; import backends.__main__ as m; m.main(); "
    done = subprocess.run(
        [sys.executable, "-c", script + AT_ENTRY], capture_output=True, encoding="utf-8", check=True
    )
    version, modules = done.stdout.splitlines()
    assert version.startswith("minigrad ") and modules == "[]"
    assert minigrad("--version")[1] == version + "\n"


def test_a_link_to_nowhere_is_refused_before_the_training(minigrad, tmp_path):
    (tmp_path / "runs").symlink_to("nowhere")
    status, out, errors = minigrad(*TRAIN)
    assert status == 1 and "epoch" not in out
    assert errors == "minigrad: runs is a link to nowhere, which is not there; make it, or remove runs\n"


def test_figures_that_cannot_be_written_are_printed(minigrad, monkeypatch):
    def full(self, metrics):
        raise OSError("cannot write runs: No space left on device")

    monkeypatch.setattr("backends.cli.run_folder.RunFolder.write", full)
    status, out, errors = minigrad(*TRAIN)
    assert status == 1 and "test accuracy" in out and "loss, first and last step" in out
    assert errors == "minigrad: cannot write runs: No space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_an_output_that_cannot_be_written_is_named():
    with open("/dev/full", "w", encoding="utf-8") as output:
        done = subprocess.run([*COMMAND, "lesson"], stdout=output, stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 1
    assert done.stderr.startswith("minigrad: cannot write what the command prints: No space left on device")


def test_a_locale_without_a_character_prints_another():
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["lesson"], ["doctor"]):
        done = subprocess.run([*COMMAND, *arguments], env=ascii_only, capture_output=True)
        assert b"Traceback" not in done.stderr and done.stdout.isascii(), done.stderr


def test_a_job_whose_reader_has_left_goes_on(tmp_path):
    """A lesson piped into head is one: its prints raise nothing, and it ends as it would."""
    script = (
        "import sys; from backends.launch.supervise import supervise; "
        "sys.exit(supervise([sys.executable, '-c', 'for i in range(20000): print(i)'], {}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as job:
        assert job.stdout is not None and job.stderr is not None
        assert job.stdout.readline() == "0\n"
        job.stdout.close()
        assert "Traceback" not in job.stderr.read()
        assert job.wait() == 0


def test_hosts_that_are_no_text_are_refused(minigrad, tmp_path):
    (tmp_path / "hosts").write_bytes(b"\xff\xfe\x00")
    status, _, errors = minigrad("doctor", "--hosts", "hosts")
    assert (
        status == 1 and errors.startswith("minigrad: hosts is no text in UTF-8 (") and errors.count("\n") == 1
    )


def test_two_momenta_are_refused_before_a_rank_starts(minigrad):
    ranks = ["--data", "2", "--strategy", "compressed", "--compress", "dgc", "--optimizer", "adam"]
    status, out, errors = minigrad(*TRAIN, *ranks)
    assert (
        status == 1 and out == "" and "and --optimizer adam would add its own; take --optimizer sgd" in errors
    )


def test_so_many_storms_are_refused(minigrad):
    status, _, errors = minigrad("storm", "--seeds", "1" + "0" * 24)
    assert status == 2 and "is not in the range 1<=x<=1000000" in errors


def test_restarts_that_are_used_up_say_what_is_saved(minigrad, tmp_path, monkeypatch, capsys):
    assert minigrad(*TRAIN, "--checkpoint", "kept")[0] == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minigrad", *TRAIN, "--checkpoint", "kept", "--restarts", "1"])
    died = Ending(137, "a rank was ended by SIGKILL, and with it the job", "nothing was kept", True, "")
    assert Restarts(1, tmp_path / "kept").run(lambda words: died) == 137
    *_, last = capsys.readouterr().err.splitlines()
    assert "; step 5 is saved in " in last and "go on with: minigrad train" in last and "nothing" not in last
    assert saved_in(None, tmp_path / "empty") == "nothing was kept"


@pytest.mark.parametrize("reason", ["Not a directory", "Permission denied"])
@pytest.mark.parametrize(
    ("line", "where", "purpose"),
    [
        ("lesson 02", "runs/lessons", "lessons draw there"),
        ("experiment article", "runs/experiments/article", "experiments write there"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_first(
    minigrad, tmp_path, monkeypatch, reason, line, where, purpose
):
    if reason == "Not a directory":
        (tmp_path / "runs").touch()
    else:  # which root never meets
        monkeypatch.setattr(os, "access", lambda *_: False)
    status, out, errors = minigrad(*line.split())
    assert status == 1 and out == ""
    words = f"{purpose}: run it in a folder that you may write"
    assert errors == f"minigrad: cannot write into {tmp_path / where}: {reason}; {words}\n"


@pytest.mark.parametrize("line", ["handout", "lesson --copy", "assignment new", "site build", "grade a2"])
def test_a_path_below_a_file_is_named_in_one_line(minigrad, tmp_path, line):
    """Where a command meets Python's own error: the path and its reason, without a number of errno."""
    (tmp_path / "file").touch()
    status, _, errors = minigrad(*line.split(), "file/a1_new")
    assert status == 1 and "file" in errors and "; " in errors and "Errno" not in errors
    assert errors.startswith("minigrad: ") and errors.count("\n") == 1
