"""Laws of backends/cli/plan_command.py and plan_measurement.py: the command that is printed trains in the
layout that stands first, and what cannot be planned is refused in one line.
"""

import json
import re
import shlex
from typing import Any

import hypothesis.strategies as st
import pytest
import typer
from hypothesis import given

from backends.cli import plan_command
from backends.cli.main import app
from backends.cli.plan_command import UNITS, PlanOptions, command_of, config_of, in_words, nbytes_of, sizes_of
from backends.cli.plan_measurement import REPETITIONS, PlanMeasurement
from backends.comm.timeline import duration
from backends.grid import AXES
from backends.planner import best_first, layouts
from minigrad.models import NETS
from minigrad.text import course
from tests.backends.cli import plan_laws as laws

SMALL = ["--net", "transformer", "--length", "8", "--width", "8", "--heads", "2", "--blocks", "2"]


def one_line(result, message, status=1):
    ended, out, err = result
    assert ended == status and not out, (ended, out, err)
    assert err.startswith("minigrad: ") and err.count("\n") == 1 and re.search(message, err), err


@pytest.mark.parametrize(
    ("net", "experts"), [*((net, {}) for net in NETS), ("transformer", {"experts": 3, "choices": 2})]
)
def test_every_layout_is_one_that_train_takes(net, experts):
    """The printed words are parsed, and give the strategies of the layout."""
    options = PlanOptions(net=net, ranks=4, batch=16, **experts)
    sizes = sizes_of(options.sized_net)
    train: Any = typer.main.get_command(app).commands["train"]  # pyright: ignore
    tried = list(layouts(sizes, 4, 16))
    assert len({layout.shape for layout in tried}) > 5
    for layout in tried:
        command, name, *words = shlex.split(command_of(options, layout))
        values = train.make_context(name, words).params
        config = config_of(options, layout)
        assert (command, name, values["net"], values["batch"]) == ("minigrad", "train", net, 16)
        assert (values["data"] or 1, *(values[axis] for axis in AXES[1:])) == layout.shape
        assert tuple(vars(config)[axis] for axis in AXES) == layout.shape
        assert layout.sequence == 1 or config.sequence_form == values["sequence_form"] == layout.form
        assert (config.strategy == "expert-parallel") == values["expert_parallel"] == layout.expert_parallel
        assert config.split_tokens == values["split_tokens"] == layout.split_tokens
        micro = config.micro if layout.pipe > 1 else config.options.get("micro_batches", 1)
        assert micro == layout.micro
        if layout.pipe > 1:
            assert config.bounds == layout.bounds and config.schedule == "1f1b"


def test_the_command_ends_with_the_best_layout(minigrad, tmp_path):
    status, out, err = minigrad("plan", *SMALL, "--ranks", "4", "--batch", "8", "--json", "plan.json")
    assert status == 0, err
    *_, speeds, last = out.splitlines()
    assert "10,000 GFLOP/s" in speeds and "10 us, 25 GB/s (set --flops" in speeds
    values = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    seconds = [row["seconds"] for row in values["layouts"]]
    assert seconds == sorted(seconds) and values["hardware"]["memory"] == 24e9
    options = PlanOptions(length=8, width=8, heads=2, blocks=2, ranks=4, batch=8)
    net = options.sized_net
    best = best_first(sizes_of(net), 4, options.hardware(), 8).fitting[0]
    assert last == f"least estimated time of a step: {command_of(options, best.layout)}"
    assert "--batch 8" in last and values["layouts"][0]["bound"] == best.bound
    assert set(values["layouts"][0]["sent"]) == set(best.sent)


def test_the_speeds_of_the_user_count(minigrad):
    status, out, _ = minigrad(
        "plan", *SMALL, "--flops", "2e9", "--latency", "3e-5", "--bandwidth", "1e9", "--ranks", "1"
    )
    assert status == 0 and "a rank computes 2 GFLOP/s, and a link takes 30 us, 1 GB/s" in out


def test_layouts_over_memory_are_counted_and_left_out(minigrad):
    options = PlanOptions(length=8, width=8, heads=2, blocks=2, ranks=4, batch=8)
    net = options.sized_net
    plans = best_first(sizes_of(net), 4, options.hardware(), 8, most=1000)
    middle = sorted(e.memory.total for e in plans.fitting)[len(plans.fitting) // 2]
    memory = f"{int(middle)}B"
    status, out, _ = minigrad("plan", *SMALL, "--ranks", "4", "--batch", "8", "--memory", memory)
    assert status == 0 and re.search(rf"left out: .*\d+ layouts over {memory}", out)
    refusal = "none of .* layouts of 4 ranks fits into 1kB: the least is .* kB, with .*; pass more --memory"
    one_line(minigrad("plan", *SMALL, "--ranks", "4", "--batch", "8", "--memory", "1kB"), refusal)


def test_what_cannot_be_planned_is_refused_in_one_line(minigrad):
    for words, message in {
        "--memory 24": "--memory is the bytes of a rank, as 24GB or 512MiB, got '24'; the units are",
        "--memory 0GB": "got '0GB'",
        "--memory -1GB": "got '-1GB'",
        "--memory 3EB": "got '3EB'",
        "--text none": "--text none: no such file; pass a file that holds a text in UTF-8",
        "--text .": "--text .: it is a folder; pass a file that holds a text in UTF-8",
        "--net resnet": "net",
        "--net lenet --width 8": "--width is for nets that learn from text",
        "--ranks 7 --batch 1 --length 8": "7 ranks cannot all work on 1 sample of transformer; take fewer",
        "--experts 4 --choices 9": "each token can choose at most the 4 experts that there are, not 9",
        "--choices 2": "--choices is for experts; pass --experts 4 too",
        "--flops 0": "--flops must be a positive number",
        "--latency nan": "--latency must be a positive number",
        "--width 6 --heads 4": "4 heads do not divide a width of 6",
        "--width 8192 --blocks 100 --memory 100TB --measure": "--measure would take",
    }.items():
        one_line(minigrad("plan", *words.split()), re.escape(message))
    for words in ("--ranks 0", "--ranks 100000", "--batch 0", "--blocks 0"):
        one_line(minigrad("plan", *words.split()), "Invalid value for", status=2)


def test_the_best_layouts_are_measured(minigrad, monkeypatch):
    """The last line names the one that took least here, also where it is not the first."""
    seconds = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(PlanMeasurement, "seconds", lambda self, config: next(seconds))
    status, out, err = minigrad("plan", *SMALL, "--ranks", "4", "--batch", "8", "--measure")
    assert status == 0, err
    assert "(measured here)" in out and "here: measured on 4 threads of" in out
    assert re.search(r"│ +3 s │", out) and re.search(r"│ +1 s │", out)
    command = out.splitlines()[-1]
    second = [line for line in out.splitlines() if re.search(r"│ +1 s │", line)][0]
    grid = re.findall(r"\d+x\d+x\d+x\d+", second)[0].split("x")
    for axis, ranks in zip(("data", "pipe", "sequence", "model"), grid, strict=True):
        assert (f"--{axis} {ranks}" in command) == (int(ranks) > 1), (second, command)
    assert command.startswith("least measured time of a step: minigrad train")


@pytest.mark.parametrize("width", [60, 67, 80, 100, 120])
@pytest.mark.parametrize("measured", [0, 3])
@pytest.mark.parametrize("sizes", [{}, {"experts": 4}, {"width": 16, "heads": 2}, {"ranks": 64}], ids=str)
def test_a_narrow_table_keeps_its_numbers(sizes, measured, width):
    laws.table_keeps_its_numbers(PlanOptions(**sizes), width, measured)


@pytest.mark.parametrize("starved", [0, 2, REPETITIONS - 1])
def test_the_speed_is_of_the_best_repetition(starved):
    laws.speed_is_of_the_best_repetition(starved)


def test_as_many_micro_batches_are_tried_as_fit(minigrad, tmp_path):
    """The command of the last line trains in so many micro-batches, also in a last, short step."""
    (tmp_path / "few.txt").write_bytes(course()[:300])
    options = PlanOptions(length=8, width=8, heads=2, blocks=2, text=tmp_path / "few.txt", ranks=1, batch=32)
    plans = best_first(sizes_of(options.sized_net), 1, options.hardware()._replace(memory=0.0), 32)
    needed = {layout.micro: n for layout, n in plans.over}
    assert sorted(needed) == [1, 2, 4, 8, 16, 32]
    words = [*SMALL, "--text", "few.txt", "--ranks", "1", "--batch", "32", "--memory"]
    refused = "none of 6 layouts of 1 rank fits into 1kB: the least is .*, with 1 rank, 32 micro-batches;"
    one_line(minigrad("plan", *words, "1kB"), refused)
    for micro in (16, 32):
        status, out, err = minigrad("plan", *words, f"{int(needed[micro]) + 1}B")
        assert status == 0, err
        *command, last = shlex.split(out.splitlines()[-1].partition(": minigrad ")[2])
        assert f"micro_batches={micro}" in [*command, last]
        status, out, err = minigrad(*command, last, "--epochs", "1")
        assert status == 0, err


def test_measured_seconds_are_in_the_file(minigrad, monkeypatch, tmp_path):
    seconds = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(PlanMeasurement, "seconds", lambda self, config: next(seconds))
    words = ["--ranks", "4", "--batch", "8", "--json", "plan.json"]
    for more, expected in ((["--measure"], [3.0, 1.0, 2.0, None]), ([], [None] * 4)):
        assert minigrad("plan", *SMALL, *words, *more)[0] == 0
        values = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
        assert [row["measured"] for row in values["layouts"]][:4] == expected


def test_more_ranks_than_can_be_measured_are_refused(minigrad, monkeypatch):
    monkeypatch.setattr("backends.launch.launch.cores", lambda: 2)
    message = "32 ranks are more than the 16 that 2 cores can hold; take fewer, or leave out --measure$"
    one_line(minigrad("plan", *SMALL, "--ranks", "32", "--measure"), message)


@pytest.mark.parametrize("net", ["transformer", "mlp", "sigmoid"])
def test_steps_are_measured_on_threads(net):
    options = PlanOptions(net=net, ranks=2, batch=4)
    measurement = PlanMeasurement(options.sized_net, 2, 4)
    for layout in [*layouts(sizes_of(measurement.net), 2, 4)][:3]:
        assert 0 < measurement.seconds(config_of(options, layout)) < 60
    here = measurement.hardware(1e9)
    assert here.flops > 0 and here.link.bandwidth > 0 and here.memory == 1e9


@given(st.integers(1, 10**6), st.sampled_from([*UNITS]))
def test_memory_is_read_in_its_unit(number, unit):
    factor = {"": 1, "k": 1, "M": 2, "G": 3, "T": 4}[unit.rstrip("B").rstrip("i")]
    base = 1024 if "i" in unit else 1000
    expected = number * base**factor if unit != "B" else number
    assert nbytes_of(f"{number}{unit}") == nbytes_of(f" {number} {unit} ") == expected


def test_numbers_have_units():
    assert [in_words(n) for n in (0, 999, 1234, 5.678e9, 3e15)] == [
        "0 B",
        "999 B",
        "1.23 kB",
        "5.68 GB",
        "3e+03 TB",
    ]
    assert [duration(n) for n in (2.5, 0.0123, 4.2e-5)] == ["2.5 s", "12.3 ms", "42 us"]
    assert plan_command.DEFAULT.memory == nbytes_of(PlanOptions().memory)
