"""The run on a GPU, ``benchmarks/gpu_run.py``: a part that hangs, fails or is missing costs itself alone."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from unittest.mock import patch

import pytest
import typer

from tests.double import DOUBLE, needs_double

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the double compiles CUDA by g++")

SLOW = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(300)
"""
FAILING = """
print('TABLE {"title": "Half a table", "columns": ["a", "b"], "rows": [[1]]}')
for n in range(100):
    print("line", n)
raise SystemExit(3)
"""
READING = """
import json, sys
from pathlib import Path
out = Path(sys.argv[1])
print(*json.loads((out / "results.json").read_text()), "line 99" in (out / "report.md").read_text())
"""
MEETING = """
import sys, time
from pathlib import Path
own, other = map(Path, sys.argv[1:])
own.touch()
while not other.exists():
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def gpu_run():
    with patch.object(sys, "path", [str(FOLDER), *sys.path]):
        yield importlib.import_module("gpu_run")


def script(folder, name, text):
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return f"{{python}} {folder / name}.py"


def is_alive(pid):
    """Whether the process runs; one that has ended, and that nobody has waited for, has no memory."""
    with suppress(OSError):
        return "VmRSS" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return False


def a_bad_part_costs_itself_alone(module, folder):
    """A slow one is killed with its children, one is absent, one fails; each is on disk before the next."""
    out = folder / "out"
    out.mkdir()
    timings = {
        "slow": module.Part(script(folder, "slow", SLOW), 3, ""),
        "missing": module.Part("no-such-program --at-all", 3, ""),
        "failing": module.Part(script(folder, "failing", FAILING), 30, ""),
        "reading": module.Part(script(folder, "reading", READING) + " {out}", 30, ""),
    }
    results = module.run(timings, {}, out, dict(os.environ))
    child = int(results["slow"]["end"][0])
    try:
        assert not is_alive(child), "the child of a part that was killed lives on"
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    statuses = {name: result["status"] for name, result in results.items()}
    assert statuses == {"slow": "out of time", "missing": "absent", "failing": "status 3", "reading": "done"}
    assert results["slow"]["seconds"] < 10
    assert results["reading"]["end"] == ["slow missing failing True"]
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == results
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "| 1 |  |" in report and "line 98\nline 99\n```" in report and "line 10\n" not in report
    assert "| missing | absent |" in report and "no-such-program is not installed" in report


def test_a_bad_part_costs_itself_alone(gpu_run, tmp_path):
    a_bad_part_costs_itself_alone(gpu_run, tmp_path)


def test_a_child_that_lives_on_is_seen(gpu_run, tmp_path):
    with patch.object(gpu_run, "kill", lambda mark: None), pytest.raises(AssertionError, match="lives on"):
        a_bad_part_costs_itself_alone(gpu_run, tmp_path)


def test_results_that_are_written_at_the_end_are_seen(gpu_run, tmp_path):
    with patch.object(gpu_run, "write", lambda results, out: None), pytest.raises(AssertionError):
        a_bad_part_costs_itself_alone(gpu_run, tmp_path)


def test_laws_run_side_by_side_after_the_timings(gpu_run, tmp_path):
    meeting, a, b, c = script(tmp_path, "meeting", MEETING), tmp_path / "a", tmp_path / "b", tmp_path / "c"
    timings = {"timing": gpu_run.Part(f"{meeting} {c} {c}", 30, "")}
    laws = {
        "one": gpu_run.Part(f"{meeting} {a} {b}", 1, ""),
        "other": gpu_run.Part(f"{meeting} {b} {a}", 1, ""),
    }
    results = gpu_run.run(timings, laws, tmp_path, dict(os.environ), deadline=30)
    assert [result["status"] for result in results.values()] == ["done"] * 3 and next(
        iter(results)
    ) == "timing"


def test_all_parts_end_within_nine_minutes(gpu_run):
    longest = max(part.limit for part in gpu_run.LAWS.values())
    assert max(sum(part.limit for part in gpu_run.TIMINGS.values()) + longest, gpu_run.DEADLINE) < 540


def test_figures_in_files_become_tables(gpu_run, tmp_path):
    engine = {"about": {"tf32": True}, "results": [{"name": "W5", "times": {"minigrad": 3.0, "torch": 2.0}}]}
    (tmp_path / "tf32.json").write_text(json.dumps(engine), encoding="utf-8")
    (tmp_path / "train.json").write_text('{"samples_per_second": 1234.5}', encoding="utf-8")
    [table] = gpu_run.tables_of_files("tf32", tmp_path)
    assert table["rows"] == [["W5", "3.00", "2.00", "1.50"]] and "TF32" in table["title"]
    assert gpu_run.markdown(table["columns"], table["rows"])[2] == "| W5 | 3.00 | 2.00 | 1.50 |  |  |  |"
    [table] = gpu_run.tables_of_files("train", tmp_path)
    assert table["rows"] == [["minigrad train --net lenet", 1234]]
    assert gpu_run.tables_of_files("engine", tmp_path) == gpu_run.tables_of_files("sums", tmp_path) == []


def test_what_is_not_installed_is_declared(gpu_run, tmp_path):
    gpu_run.declare(tmp_path)
    [project] = distributions(path=[str(tmp_path)])
    names = {point.name for point in project.entry_points if point.group == "minigrad.backends"}
    assert project.version and {"replicated", "sharded"} <= names


def programs_of(parts):
    """The words behind each program that a part starts with Python, of all parts together."""
    programs = {}
    for part in parts:
        words = part.command.split()
        program, *words = words[words.index("{python}") + 1 :]
        if program == "-m":
            program, *words = f"-m {words[0]}", *words[1:]
        if program == "-m backends":
            program, *words = f"-m backends {words[0]}", *words[1:]
        programs.setdefault(program, []).extend(words)
    return programs


def refused(program, words, folder):
    """What the program says against the words; PyTorch is a stand-in, as no part computes."""
    stand_in = "import sys\nfrom unittest.mock import MagicMock\nsys.modules['torch'] = MagicMock()\n"
    (folder / "torch.py").write_text(stand_in, encoding="utf-8")
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, *program.split(), *words, "--help"]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, encoding="utf-8"
    )
    return run.stdout + run.stderr if run.returncode else ""


def test_every_program_takes_the_options_of_its_parts(gpu_run, tmp_path):
    programs = programs_of([*gpu_run.TIMINGS.values(), *gpu_run.LAWS.values()])
    assert programs.pop("-m tests.backends.on_gpus") == ["all"]
    assert len(programs) == 6, sorted(programs)
    for program, words in programs.items():
        assert refused(program, words, tmp_path) == "", f"{program} {words}"
        assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
    parts = importlib.import_module("gpu_parts").PARTS
    assert set(programs["benchmarks/gpu_parts.py"]) == parts.keys()


def test_an_option_that_is_not_there_is_seen(tmp_path):
    assert "--tile" in refused("benchmarks/gpu_conv.py", ["--small", "--tile"], tmp_path)


@pytest.fixture
def double(gpu_run, monkeypatch, tmp_path):
    """The variables of parts that run on the double of CuPy."""
    monkeypatch.setenv("PYTHONPATH", str(DOUBLE))
    return gpu_run.variables_with(tmp_path)


@pytest.mark.double
@needs_double
@needs_compiler
def test_parts_run_on_the_double(gpu_run, double, tmp_path):
    tiny = {
        name: gpu_run.TIMINGS[name]._replace(command=gpu_run.TIMINGS[name].command + " --tiny", limit=100)
        for name in ("sums", "crossover", "article")
    }
    tiny["conv"] = gpu_run.Part(gpu_run.CONVOLUTIONS + " --small --tiles 1", 100, "")
    laws = {name: gpu_run.LAWS[name] for name in ("law of captured runs", "prove data 2")}
    results = gpu_run.run(tiny, laws, tmp_path, double)
    assert {name: result["status"] for name, result in results.items()} == dict.fromkeys(results, "done")
    assert "PROVED" in results["prove data 2"]["end"][-1]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.count("yes (") == 6 and report.count("cuDNN, TF32 | absent") == 3
    for title in ("Sums of the rows", "Training mlp, samples/s", "The article's training on 50 digits"):
        assert title in report


@needs_double
@needs_compiler
@pytest.mark.thorough
def test_all_tiles_of_convolutions_are_right_on_the_double(gpu_run, double, tmp_path):
    part = gpu_run.LAWS["values of convolutions"]._replace(limit=280)
    results = gpu_run.run({}, {"values": part}, tmp_path, double)
    assert results["values"]["status"] == "done", results["values"]["end"]


@needs_double
@pytest.mark.parametrize("status", [0, 1])
def test_the_status_of_the_run_says_whether_a_law_failed(gpu_run, double, tmp_path, status, capsys):
    words = script(tmp_path, "law", f"raise SystemExit({status})")
    bad = {"a timing": gpu_run.Part(script(tmp_path, "bad", "raise SystemExit(1)"), 30, "")}
    laws = {"a law": gpu_run.Part(words, 30, ""), "absent": gpu_run.Part("no-such-program", 30, "")}
    (tmp_path / "train.json").write_text('{"samples_per_second": 1}', encoding="utf-8")
    with patch.multiple(gpu_run, TIMINGS=bad, LAWS=laws):
        if status:
            with pytest.raises(typer.Exit) as ended:
                gpu_run.main(out=tmp_path)
            assert ended.value.exit_code == 1
        else:
            gpu_run.main(out=tmp_path)
    assert "| a timing | status 1 |" in capsys.readouterr().out
    assert not (tmp_path / "train.json").exists(), "figures of an earlier run would stand in the report"


def test_a_run_without_a_gpu_and_an_unknown_part_are_refused_in_one_line(
    gpu_run, monkeypatch, tmp_path, capfd
):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "cupy.py").write_text("raise ModuleNotFoundError(name='cupy')", encoding="utf-8")
    for only, words in (("sums", "CuPy is not installed"), ("sum", "unknown part 'sum'; choose from")):
        with pytest.raises(typer.Exit) as ended:
            gpu_run.main(only=only, out=tmp_path)
        [line] = capfd.readouterr().err.splitlines()
        assert words in line and ended.value.exit_code == 2
