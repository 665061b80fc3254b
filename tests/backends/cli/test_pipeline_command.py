"""Laws of backends/cli/trace_view.py, parallel.py and proof.py: pipelines on the command line are trained,
proved, traced, and drawn beside their plan. Ranks are threads here.
"""

import json
import re
from unittest.mock import patch

import pytest

from backends import partition
from backends.cli import parallel
from backends.cli.trace_view import steps_of
from backends.comm.chrome import chrome_trace, read_trace
from backends.pipeline import SCHEDULES, Costs, Pipeline, simulate
from backends.pipeline.trace import as_trace, plan_of
from minigrad.work import forward_backward_pass

THREADS = ["--transport", "threads"]
BOUNDS = ["--bounds", "0,2,3,4,6"]  # four stages of the mlp's six layers


def proof(minigrad, tmp_path, *arguments):
    """What prove found, and its output in one line."""
    status, out, err = minigrad("prove", "--net", "mlp", *THREADS, "--json", "p.json", *arguments)
    assert not err
    return status, json.loads((tmp_path / "p.json").read_text(encoding="utf-8")), " ".join(out.split())


@pytest.mark.parametrize("name", SCHEDULES)
def test_prove_every_schedule_against_serial_micro_batches(minigrad, tmp_path, name):
    recompute = ["--recompute"] if name in ("1f1b", "zb-h1") else []
    for micro in ([], ["--micro", "6"]):
        status, actual, out = proof(minigrad, tmp_path, "--pipe", "2", "--schedule", name, *micro, *recompute)
        assert status == 0 and actual["passed"] and actual["max_rel_error"] <= 1e-12
        n = 6 if micro else 4
        assert f"a {name} pipeline on 2 ranks" in out and "PROVED" in out
        assert f"gradients against one serial machine with {n} micro-batches" in out
        expected = {"pipe": 2, "data": 1, "model": 1, "schedule": name, "micro": n}
        assert actual["config"] | expected == actual["config"]
        assert len(actual["config"]["bounds"]) == 1 + SCHEDULES[name].of(2, n).stages
        names = {p["name"] for p in actual["parameters"]}
        assert names == {f"{i}.{p}" for i in (1, 3, 5) for p in ("weight", "bias")}


def test_prove_a_grid(minigrad, tmp_path):
    grid = ["--data", "2", "--pipe", "2", "--model", "2", "--schedule", "zb-h1", "--micro", "3"]
    status, verdict, out = proof(minigrad, tmp_path, *grid)
    assert status == 0 and verdict["passed"] and verdict["config"]["plan"]
    assert "replicated zb-h1 pipelines on 2 x 2 x 2 ranks, data x pipe x model (threads)" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pipe", "4", *BOUNDS],
        ["--pipe", "2", "--chunks", "2", "--schedule", "interleaved", *BOUNDS],
        ["--pipe", "3", "--bounds", "time"],
        ["--pipe", "3", "--data", "2"],
        ["--pipe", "2", "--data", "2", "--strategy", "bucketed", "--option", "bucket_bytes=1000"],
        ["--pipe", "2", "--data", "2", "--batch", "3", "--micro", "5"],
        ["--pipe", "2", "--schedule", "chimera"],
        ["--pipe", "3", "--schedule", "layer-wise", "--bounds", "0,2,5,6"],
        ["--pipe", "2", "--schedule", "layer-wise", "--model", "2", "--data", "2"],
        ["--pipe", "2", "--schedule", "layer-wise", "--micro", "3"],
        ["--pipe", "2", "--model", "2"],
        ["--model", "2", "--data", "2"],
    ],
    ids=" ".join,
)
def test_prove_other_layouts(minigrad, tmp_path, arguments):
    status, verdict, _ = proof(minigrad, tmp_path, *arguments)
    assert status == 0 and verdict["passed"]


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        (["--pipe", "2"], [0, 5, 6]),
        (["--pipe", "2", "--data", "2"], [0, 5, 6]),
        (["--pipe", "3", "--data", "2"], [0, 3, 5, 6]),
        (["--pipe", "2", "--bounds", "bytes"], [0, 3, 6]),
        (["--pipe", "2", "--model", "2"], [0, 3, 6]),
        (["--pipe", "2", "--schedule", "layer-wise"], [0, 3, 6]),
    ],
    ids=lambda x: " ".join(map(str, x)),
)
def test_stages_take_the_same_time_where_layers_can_be_measured(minigrad, tmp_path, arguments, bounds):
    """The last layer takes nine times as long as others; a second measurement would say otherwise.

    Each stage has parameters.
    """
    costs = iter([[1.0, 1, 1, 1, 1, 9], [9.0, 1, 1, 1, 1, 1]])
    with patch.object(partition, "costs_by_time", lambda model, batch: next(costs)):
        status, verdict, _ = proof(minigrad, tmp_path, *arguments)
    assert status == 0 and verdict["passed"] and verdict["config"]["bounds"] == bounds


def test_prove_exits_1_when_the_shares_of_micro_batches_are_wrong(minigrad, tmp_path, monkeypatch):
    class Equal(Pipeline):
        def forward_backward(self, work, inner=forward_backward_pass):
            return super().forward_backward(work._replace(loss_weight=1.001 * work.loss_weight), inner)

    monkeypatch.setattr(parallel, "find_strategy", lambda name, options=None, axis="data": Equal)
    status, verdict, out = proof(minigrad, tmp_path, "--pipe", "2")
    assert status == 1 and not verdict["passed"] and "NOT EQUAL" in out


COMMON = ["train", "--net", "mlp", "--batch", "100", "--epochs", "1", "--dtype", "float64", "--clip", "0.5"]
SPLIT = ["--pipe", "2", "--schedule", "interleaved", "--micro", "4", *BOUNDS, *THREADS]


def trained(minigrad, *arguments):
    status, out, err = minigrad(*COMMON, *arguments)
    assert status == 0, err
    return " ".join(out.split())


@pytest.mark.usefixtures("few_digits")
def test_a_pipeline_trains_as_one_machine_and_its_trace_is_drawn_beside_its_plan(minigrad, tmp_path):
    trained(minigrad, "--json", "one.json")
    out = trained(minigrad, *SPLIT, "--json", "two.json", "--trace", "run.json")
    one, two = (
        json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("one.json", "two.json")
    )
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-9)
    assert two["test_accuracy"] == one["test_accuracy"]
    assert two["ranks"] == 2 and two["config"]["bounds"] == [0, 2, 3, 4, 6]
    assert "interleaved, 4 micro-batches" in out and "0-1, 2, 3, 4-5 (--bounds 0,2,3,4,6)" in out
    assert "trace: run.json" in out

    trace, about = read_trace(tmp_path / "run.json")
    pipeline = {"schedule": "interleaved", "micro_batches": 4, "chunks": 2, "bounds": [0, 2, 3, 4, 6]}
    pipeline["ranks"] = [[0, 1]]
    assert about["pipeline"] == pipeline
    names = {span.what for span in trace.spans}
    assert {"forward 0", "forward 3/1", "backward 3", "update", "test"} <= names
    assert not {"forward", "backward"} & names
    steps = steps_of(trace)
    assert len(steps) == 5
    table = SCHEDULES["interleaved"].of(2, 4)
    for step in steps:
        plan = plan_of(table, step)
        assert [e.instruction for e in plan.of(1)] == list(table.instructions[1])

    status, out, _ = minigrad("trace", "run.json", "--step", "3", "--png", "pair.png", "--width", "90")
    assert status == 0 and (tmp_path / "pair.png").read_bytes().startswith(b"\x89PNG")
    lines = out.splitlines()
    plan, run = (next(i for i, line in enumerate(lines) if line.startswith(w)) for w in ("plan", "run"))
    assert lines[0].startswith("step 3 of 5, counted from 0: ") and "messages" in lines[0]
    assert re.fullmatch(
        r"plan \(interleaved, 4 micro-batches\): .* [mu]?s, .*% of the time idle", lines[plan]
    )
    for at in (plan, run):
        assert [line[:8] for line in lines[at + 1 : at + 3]] == ["rank 0 |", "rank 1 |"]
    assert max(map(len, lines[plan:])) <= 90
    assert lines[-1] == "picture in pair.png"
    assert minigrad("trace", "run.json")[0] == 0


@pytest.mark.usefixtures("few_digits")
def test_every_pipeline_of_a_grid_is_told_of(minigrad, tmp_path):
    trained(minigrad, "--data", "2", "--pipe", "2", "--schedule", "gpipe", *THREADS, "--trace", "run.json")
    _, about = read_trace(tmp_path / "run.json")
    assert about["pipeline"]["ranks"] == [[0, 1], [2, 3]]
    out = minigrad("trace", "run.json")[1]
    for ranks in ("0, 1", "2, 3"):
        assert out.count(f"(gpipe, 4 micro-batches, ranks {ranks})") == 2


@pytest.mark.parametrize("name", ["gpipe", "interleaved", "zb-h1", "1f1b-pairs", "chimera", "dualpipe"])
def test_the_file_of_a_plan_shows_its_bubble(minigrad, tmp_path, name):
    plan = simulate(SCHEDULES[name].of(4, 8), Costs(2, 3, 1))
    pipeline = {"schedule": name, "micro_batches": 8, "chunks": plan.table.chunks, "ranks": [[0, 1, 2, 3]]}
    content = chrome_trace(as_trace(plan), {"pipeline": pipeline})
    (tmp_path / "plan.json").write_text(json.dumps(content), encoding="utf-8")
    lines = minigrad("trace", "plan.json", "--width", "150")[1].splitlines()
    texts = [line.split("): ")[1] for line in lines if line.startswith(("plan", "run"))]
    assert texts == [f"{float(plan.makespan):.3g} s, {float(plan.bubble):.1%} of the time idle"] * 2
    assert lines[3:8] == lines[9:14]  # the same picture


@pytest.mark.usefixtures("few_digits")
def test_a_run_without_a_pipeline_is_drawn_too(minigrad, tmp_path):
    trained(minigrad, "--data", "2", *THREADS, "--trace", "run.json")
    assert "pipeline" not in read_trace(tmp_path / "run.json")[1]
    status, out, _ = minigrad("trace", "run.json", "--png", "run.png", "--step", "4", "--width", "100")
    assert status == 0 and "step 4 of 5" in out and "rank 1 |" in out and "F forward" in out
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few_digits")
def test_an_asynchronous_pipeline_is_drawn_by_its_steps(minigrad, tmp_path):
    status, _, err = minigrad(
        *COMMON[:-2], "--pipe", "2", "--schedule", "pipedream", *THREADS, "--trace", "run.json"
    )
    assert status == 0, err
    names = {span.what for span in read_trace(tmp_path / "run.json")[0].spans}
    assert "forward 3" in names and "forward" not in names
    assert "F forward" in minigrad("trace", "run.json")[1]


ORDERS = ", ".join([*SCHEDULES, "layer-wise", "pipedream"])
MISTAKES = [
    (["prove", "--schedule", "1f1b"], "--schedule is for pipelines; add --pipe 2 or more, or leave it out"),
    (["train", "--micro", "4"], "--micro is for pipelines; add --pipe 2 or more, or leave it out"),
    (["train", "--chunks", "2"], "--chunks is for pipelines"),
    (["train", "--bounds", "time"], "--bounds is for pipelines"),
    (["train", "--recompute"], "--recompute is for pipelines"),
    (["train", "--schedule", "cosine"], "pass --lr-schedule cosine to train, or choose one of naive, gpipe"),
    (["prove", "--pipe", "2", "--schedule", "2f2b"], f"unknown schedule '2f2b'; choose one of {ORDERS}"),
    (["prove", "--pipe", "2", "--micro", "0"], "the number of micro-batches must be at least 1, got 0"),
    (
        ["prove", "--pipe", "2", "--schedule", "interleaved", "--micro", "3"],
        "schedule interleaved: it needs micro-batches in multiples of the 2 ranks, got 3; take 2 or 4",
    ),
    (["prove", "--pipe", "3", "--schedule", "chimera"], "an even number of ranks, got 3; take 2 or 4"),
    (["prove", "--pipe", "2", "--chunks", "2"], "it has 1 chunk on each rank, not 2; interleaved has more"),
    (
        ["train", "--pipe", "7", "--net", "mlp"],
        "--pipe 7 needs a layer for each stage, and mlp has 6 layers; take at most 6 stages",
    ),
    (
        ["train", "--pipe", "2", "--bounds", "0,5"],
        "the bounds of 2 stages are 3 numbers that rise from 0 to the 10 layers, got (0, 5)",
    ),
    (["train", "--pipe", "2", "--bounds", "0,4,4,10"], "the bounds of 2 stages are 3 numbers"),
    (["train", "--pipe", "2", "--bounds", "1,4,10"], "rise from 0 to the 10 layers, got (1, 4, 10)"),
    (["train", "--pipe", "3", "--bounds", "0,4,4,10"], "rise from 0 to the 10 layers, got (0, 4, 4, 10)"),
    (["train", "--pipe", "2", "--bounds", "bites"], "as 0,3,5, or one of bytes, time; got 'bites'"),
    (["train", "--pipe", "2", "--bounds", "0,-4,10"], "as 0,3,5, or one of bytes, time; got '0,-4,10'"),
    (["train", "--pipe", "2", "--bounds", ""], "as 0,3,5, or one of bytes, time; got ''"),
    (
        ["train", "--pipe", "2", "--model", "2", "--bounds", "time"],
        "--bounds time measures whole layers, and --model 2 splits them; measure with --model 1",
    ),
    (["train", "--pipe", "2", "--option", "micro_batches=2"], "pass --micro instead"),
    (
        ["prove", "--pipe", "2", "--schedule", "layer-wise", "--chunks", "2"],
        "--schedule layer-wise has one stage on each rank, and takes neither --chunks nor --recompute nor",
    ),
    (
        ["prove", "--pipe", "2", "--schedule", "pipedream", *THREADS],
        "by its mathematics schedule 'pipedream' does not train like one serial machine",
    ),
    (
        ["train", "--pipe", "2", "--versions", "2bw"],
        "--versions is for --schedule pipedream, and the schedule here is 1f1b; choose that one, or leave",
    ),
    (
        ["train", "--pipe", "2", "--schedule", "pipedream", "--versions", "latest", *THREADS],
        "unknown versions 'latest'; choose one of stashing, vertical, 2bw, no_stash",
    ),
    (["trace", "run.json"], "there is no trace file run.json; minigrad train --trace run.json writes one"),
    (["trace", "run.json", "--png", "no/where.png"], "cannot write no/where.png"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_mistake_ends_in_one_line(minigrad, arguments, message, tmp_path):
    status, out, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1 and not out
    assert err.startswith("minigrad: ") and message in err
    assert not (tmp_path / "runs").exists()


def test_an_asynchronous_pipeline_has_no_data_axis(minigrad):
    arguments = ["train", "--pipe", "2", "--data", "2", "--schedule", "pipedream", *THREADS]
    status, _, err = minigrad(*arguments)
    assert (
        status == 1
        and err.count("\n") == 1
        and "--schedule pipedream updates parameters in its own way" in err
    )


def of_a_plan(**changes):
    """A good file's content, changed."""
    plan = simulate(SCHEDULES["gpipe"].of(2, 4))
    pipeline = {"schedule": "gpipe", "micro_batches": 4, "chunks": 1, "ranks": [[0, 1]]}
    return chrome_trace(as_trace(plan), {"pipeline": {**pipeline, **changes}})


BROKEN = {
    "not JSON": ("{", "run.json is no trace that minigrad wrote (JSONDecodeError"),
    "a list": ([], "run.json is no trace that minigrad wrote (TypeError"),
    "of another program": ({"traceEvents": []}, "run.json is no trace that minigrad wrote (KeyError"),
    "without ledgers": ({**of_a_plan(), "otherData": {}}, "is no trace that minigrad wrote (KeyError"),
    "a rank too many": (
        {**of_a_plan(), "otherData": {**of_a_plan()["otherData"], "exposed_seconds": [0]}},
        "a span is of a rank that is not among the 1",
    ),
    "without a step": ({**of_a_plan(), "traceEvents": []}, "run.json has no training step"),
    "a schedule of one's own": (of_a_plan(schedule="mine"), "unknown schedule 'mine'"),
    "no number": (
        of_a_plan(micro_batches="four"),
        "the description of the pipeline in run.json cannot be read",
    ),
    "no ranks": (of_a_plan(ranks=[]), "the description of the pipeline in run.json cannot be read"),
    "ranks that are not there": (of_a_plan(ranks=[[0, 2]]), "[[0, 2]], are not of its 2 ranks"),
    "pipelines of different size": (of_a_plan(ranks=[[0, 1], [0]]), "are not of its 2 ranks"),
    "another schedule": (
        of_a_plan(micro_batches=3),
        "rank 0 did 'forward 3', which is not in schedule gpipe",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_trace_file_is_said_in_one_line(minigrad, tmp_path, what):
    content, message = BROKEN[what]
    (tmp_path / "run.json").write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    status, out, err = minigrad("trace", "run.json")
    assert status == 1 and err.count("\n") == 1 and not out and message in err


def test_a_step_that_is_not_there_is_said_in_one_line(minigrad, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(of_a_plan()), encoding="utf-8")
    for step in ("1", "-1"):
        text = minigrad("trace", "run.json", "--step", step)[2]
        assert text == f"minigrad: run.json has the steps 0 to 0, got --step {step}\n"
