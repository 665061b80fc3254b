"""Laws of lessons/minigrad_course/lesson/progress.py, command.py and
lessons/minigrad_course/grading/command.py: what was done is kept in the folder of the work, and each command
leads to the next one.
"""

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from minigrad_course import LESSONS
from minigrad_course.grading import command as grading
from minigrad_course.grading.assignment import FOLDER
from minigrad_course.lesson import command, progress
from minigrad_course.lesson.lessons import lessons

from tests.bugs.mutant import mutant

NUMBERS = st.sampled_from(["01", "06", "13"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("lesson"), NUMBERS),
        st.tuples(st.just("answers"), NUMBERS, st.integers(0, 3), st.just(3)),
        st.tuples(st.just("points"), st.sampled_from(["a1_x", "a2_y"]), st.integers(0, 100), st.just(100)),
    ),
    max_size=6,
)


def keeps_what_was_done(module: ModuleType, events: list, folder: Path) -> None:
    """Against a plain list of events: the last answers, the best points, a tick for what is whole."""
    module.__dict__["FILE"] = folder / "runs" / "progress.json"
    module.FILE.unlink(missing_ok=True)
    for name, *values in events:
        getattr(module, f"note_{name}")(*values)
    progress = module.Progress.read()
    for number in ("01", "06", "13"):
        ran = ("lesson", number) in events
        answers = [f"{event[2]} of {event[3]}" for event in events if event[:2] == ("answers", number)]
        assert progress.of_lesson(number) == " ".join(["✓"] * ran + answers[-1:])
    for name in ("a1_x", "a2_y"):
        points = [event[2] for event in events if event[:2] == ("points", name)]
        best = f"{'✓ ' * (max(points) == 100)}{max(points)} of 100" if points else ""
        assert progress.of_assignment(name) == best


@given(events=EVENTS)
def test_what_was_done_is_kept(events, tmp_path_factory):
    keeps_what_was_done(mutant("minigrad_course.lesson.progress"), events, tmp_path_factory.mktemp("work"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max(points, best)", "points"),
        ("points == most", "points"),
        ("progress.lessons[number] = True", "progress.lessons = {number: True}"),
        ("if self.lessons.get(number)", "if number in self.answers"),
        ("[answered, questions]", "[questions, answered]"),
    ],
)
def test_progress_that_is_wrong_is_seen(old, new, tmp_path_factory):
    broken, folder = mutant("minigrad_course.lesson.progress", (old, new)), tmp_path_factory.mktemp("work")

    @settings(max_examples=200, phases=[Phase.generate])
    @given(events=EVENTS)
    def law(events):
        keeps_what_was_done(broken, events, folder)

    with pytest.raises(AssertionError):
        law()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"lessons": 1, "answers": {}, "points": {}}',
        '{"lessons": {}, "answers": {"06": [1]}}',
    ],
)
def test_a_file_of_another_program_counts_as_none(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    progress.FILE.parent.mkdir()
    progress.FILE.write_text(text, encoding="utf-8")
    assert progress.Progress.read() == progress.Progress()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    progress.note_lesson("06")
    assert progress.Progress.read() == progress.Progress()


def test_the_list_of_lessons_ticks_those_that_ran(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    progress.note_lesson("02")
    progress.note_answers("02", 1, 3)
    progress.note_points("a2_allreduce", 45, 100)
    command.lesson()
    lines = capsys.readouterr().out.splitlines()
    assert ["✓ 1 of 3" in line for line in lines if line.startswith("│ 0")] == [False, True] + 7 * [False]
    assert max(map(len, lines)) <= 80
    grading.grade(list_tasks=True)
    assert "│ 45 of 100 " in capsys.readouterr().out


def test_a_lesson_leads_to_its_assignment_and_else_to_the_lesson_after_it():
    table = {"02": "a1", "05": "a2", "06": "a3", "08": "a5", "10": "a4", "11": "a6", "12": "a6", "13": "a7"}
    table |= {"16": "a9", "17": "a10"}
    *_, last = lessons()
    for lesson in lessons():
        following: Any = command.after(lesson)
        if lesson.number in table:
            assert following.command == f"minigrad grade {table[lesson.number]}"
        elif lesson.number == last.number:
            assert following is None
        else:
            assert following.command == f"minigrad lesson {int(lesson.number) + 1:02}"


def test_grading_leads_to_the_wrong_task_and_then_to_the_assignment_after_it():
    assignments: Any = [
        SimpleNamespace(name=name, folder=FOLDER / name) for name in ("a1_x", "a2_y", "a9_z", "a10_w")
    ]
    task = SimpleNamespace(name="ring")

    def after(name, passed, submission=None, folder=FOLDER, alone=False):
        results = [SimpleNamespace(passed=True, task=None), SimpleNamespace(passed=passed, task=task)]
        work = SimpleNamespace(name=name, folder=folder / name)
        report: Any = SimpleNamespace(assignment=work, results=results)
        return grading.after_grading(report, submission, assignments, alone)

    assert after("a1_x", False, Path("my a1.py")) == ("minigrad grade a1 'my a1.py'", "after ring is mended")
    assert after("a1_x", False)[0] == "minigrad grade a1"
    assert after("a1_x", False, folder=Path("my own"))[0] == "minigrad grade a1 --folder 'my own'"
    assert after("a1_x", True)[0] == "minigrad grade a2"
    assert after("a9_z", True)[0] == "minigrad grade a10"
    assert after("a10_w", True)[0] == "minigrad grade --list"
    assert after("a1_x", True, Path("my.py"), alone=True)[0] == "minigrad grade a1 my.py"


def test_one_task_alone_leaves_the_points_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text((FOLDER / "a10_ring_attention" / "submission.py").read_text("utf-8"), encoding="utf-8")
    for points in (None, 100):
        if points is not None:
            progress.note_points("a10_ring_attention", points, 100)
        before = progress.Progress.read()
        with pytest.raises(SystemExit):
            grading.grade("a10", mine, task="zigzag")
        assert progress.Progress.read() == before


def test_a_lesson_that_ran_and_its_answers_are_noted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for status in (1, 0):
        monkeypatch.setattr(command, "supervise", lambda line, variables, shown, status=status: status)
        with pytest.raises(SystemExit):
            command.lesson("06")
        assert progress.Progress.read().lessons == ({} if status else {"06": True})
    out = capsys.readouterr().out.splitlines()
    assert str(LESSONS / "06_data_parallel" / "lesson.py") in out
    assert out[-1] == f"questions: {LESSONS / '06_data_parallel' / 'questions.py'}"
    with pytest.raises(SystemExit):
        command.lesson("06", check=True)
    assert progress.Progress.read().answers["06"][0] == 0
    assert json.loads(progress.FILE.read_text(encoding="utf-8"))["answers"]["06"][1] > 0
