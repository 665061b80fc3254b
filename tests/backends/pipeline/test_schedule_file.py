"""Laws of backends/pipeline/schedule_file.py: every timetable of ours survives the way there
and back, and a command runs it.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm.chrome import read_trace
from backends.pipeline import SCHEDULES, Weight
from backends.pipeline.schedule_file import (
    ROUTES,
    description_of,
    instruction_in,
    read_schedule,
    schedule_of,
    word_of,
)
from tests.backends.pipeline.schedule_laws import NUMBERS
from tests.bugs.mutant import mutant

TWO = {"micro": 2, "ranks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}
THREADS = ["--net", "mlp", "--transport", "threads"]
NAMES = sorted(name for name, schedule in SCHEDULES.items() if schedule.route in ROUTES.values())


def survives(name, numbers, to_description=description_of, to_schedule=schedule_of):
    """A timetable, described in JSON, is the same when it is read; ValueError where it cannot be."""
    table = SCHEDULES[name].of(*numbers)
    description = json.loads(json.dumps(to_description(table)))
    again = to_schedule(description).of(len(description["ranks"]), description["micro"])
    assert (again.instructions, again.routes) == (table.instructions, table.routes)
    assert (again.schedule.name, again.chunks) == (name, table.chunks)


@given(st.data())
def test_every_schedule_survives_the_way_to_a_file_and_back(data):
    name = data.draw(st.sampled_from(NAMES))
    survives(name, data.draw(st.sampled_from([n for n in NUMBERS[name] if n[0] < 7 and n[1] < 9])))


@given(micros=st.lists(st.integers(0, 30), min_size=1, unique=True), chunk=st.integers(0, 3))
def test_weights_of_several_micro_batches_are_one_word(micros, chunk):
    i = Weight(tuple(micros), chunk)
    assert instruction_in(word_of(i), 0, 31) == i


BUGS = {
    "every route is the first": ("if route is table.schedule.route", "if route"),
    "one chunk is written": ('"chunks": table.chunks,', '"chunks": 1,'),
    "a backward is read as a forward": ('"B": "backward"', '"B": "forward"'),
    "the last micro-batch is refused": ("int(n) < micros for", "int(n) < micros - 1 for"),
    "the name is lost": ('"name": table.schedule.name,', '"name": "mine",'),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_does_not_survive(name):
    broken = mutant("backends.pipeline.schedule_file", BUGS[name])
    with pytest.raises((AssertionError, ValueError)):
        for schedule, numbers in (("dualpipe", (2, 4, 2)), ("interleaved", (2, 2, 2)), ("zb-v", (2, 2, 2))):
            survives(schedule, numbers, broken.description_of, broken.schedule_of)


def write(folder, content, name="mine.json"):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


def test_a_file_is_complete_with_its_defaults(tmp_path):
    write(tmp_path, TWO)
    assert read_schedule(tmp_path / "mine.json") == {**TWO, "name": "mine", "chunks": 1, "route": "around"}


@pytest.mark.parametrize(
    "content",
    [
        TWO,
        {"micro": 3, "ranks": ["F0 F1 B0 F2 W0 B1 B2 W1-2", "F0 B0 F1 B1 F2 B2 W0-2"]},
        description_of(SCHEDULES["zb-v"].of(2, 3)),
        description_of(SCHEDULES["chimera"].of(2, 4)) | {"name": "our.chimera"},
    ],
    ids=["1f1b", "weights apart", "down and up", "down or up"],
)
def test_prove_runs_the_schedule_of_a_file(minigrad, tmp_path, content):
    write(tmp_path, content)
    status, out, err = minigrad(
        "prove", "--pipe", "2", "--schedule-file", "mine.json", *THREADS, "--json", "p.json"
    )
    assert (status, err) == (0, "") and "PROVED" in out
    verdict = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    name = content.get("name", "mine")
    assert verdict["config"]["schedule"] == name and verdict["config"]["micro"] == content["micro"]
    assert f"a {name} pipeline on 2 rank" in " ".join(out.split())


def test_a_run_is_traced_and_drawn_below_the_plan_of_its_file(minigrad, tmp_path):
    write(tmp_path, {"micro": 2, "ranks": ["F0 F1 B1 B0", "F0 F1 B1 B0"]})
    run = ["--pipe", "2", "--schedule-file", "mine.json", *THREADS]
    assert minigrad("train", "--epochs", "1", "--batch", "1000", *run, "--trace", "t.json")[0] == 0
    (tmp_path / "mine.json").unlink()  # the trace has its own copy
    status, out, _ = minigrad("trace", "t.json", "--width", "80")
    assert status == 0 and "plan (mine, 2 micro-batches)" in out and "run (mine, 2 micro-batches)" in out
    trace, _ = read_trace(tmp_path / "t.json")
    backwards = [s.what for s in trace.spans if s.rank == 1 and s.what.startswith("backward")]
    assert backwards == ["backward 1", "backward 0"] * (len(backwards) // 2)


NO_SCHEDULE = [
    ("", "Expecting value"),
    ("[1]", "it must be an object, got [1]"),
    ('{"micro": 2}', "it has no 'ranks'"),
    ({**TWO, "stages": 2}, "unknown key 'stages'; choose one of name, micro, chunks, route, ranks"),
    ({**TWO, "micro": 0}, '"micro" must be a whole number of at least 1, got 0'),
    ({**TWO, "micro": "2"}, "\"micro\" must be a whole number of at least 1, got '2'"),
    ({**TWO, "chunks": True}, '"chunks" must be a whole number of at least 1, got True'),
    ({**TWO, "name": "a b"}, "\"name\" must be 1 to 40 letters, digits, or any of . _ + -, got 'a b'"),
    ({**TWO, "ranks": [["F0"]]}, '"ranks" must be a list with a text of instructions for each rank'),
    ({**TWO, "route": "up"}, "unknown route 'up'; choose one of around, down-or-up, down-and-up"),
    ({**TWO, "ranks": ["F0", "X0"]}, "rank 1: 'X0' is no instruction; take F, B or W and the number"),
    ({**TWO, "ranks": ["F0 F2", "F0"]}, "rank 0: 'F2' is no instruction; take F, B or W and the number"),
    ({**TWO, "ranks": ["W0-99999999999", ""]}, "of a micro-batch from 0 to 1, and /1 for chunk 1"),
    ({**TWO, "ranks": ["F0 F1 B0 B1", "F0 B1 F1 B0"]}, "rank 1: Backward(micro=1, chunk=0) comes before"),
    (
        {**TWO, "ranks": ["F0 B0 F1 B1", "F1 F0 B0 B1"]},
        "schedule mine of 2 ranks never ends: rank 0 waits to",
    ),
    ({**TWO, "micro": 13}, "Forward(micro=2, chunk=0) is missing"),
    ({"micro": 999999, "ranks": ["F0", "F0"]}, '"micro" 999999 cuts a step of 13 samples into more parts'),
    ({**TWO, "chunks": 4}, "--pipe 2 with 4 chunks needs a layer for each stage"),
    ({**TWO, "ranks": ["F0"]}, "mine.json needs --pipe 1, got --pipe 2; pass --pipe 1"),
]


@pytest.mark.parametrize(("content", "words"), NO_SCHEDULE, ids=[words[:40] for _, words in NO_SCHEDULE])
def test_a_wrong_file_is_refused_in_one_line(minigrad, tmp_path, content, words):
    write(tmp_path, content)
    status, out, err = minigrad("prove", "--pipe", "2", "--schedule-file", "mine.json", *THREADS)
    assert status == 1 and not out and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pipe", "2", "--schedule-file", "none.json"], "there is no schedule file none.json; write one"),
        (["--schedule-file", "mine.json"], "--schedule-file is for pipelines; add --pipe 2 or more"),
        (
            ["--pipe", "2", "--schedule-file", "mine.json", "--micro", "4"],
            "--micro and --schedule-file mine.json set the same; leave one of them out",
        ),
        (
            ["--pipe", "2", "--schedule-file", "mine.json", "--schedule", "gpipe"],
            "--schedule and --schedule-file mine.json set the same",
        ),
    ],
)
def test_a_file_beside_wrong_options_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    write(tmp_path, TWO)
    status, out, err = minigrad("prove", *arguments, *THREADS)
    assert status == 1 and not out and words in err and err.count("\n") == 1
