"""Laws of backends/cli/refusal.py, run_folder.py, parallel.py, run.py, minigrad/environment.py and
lookup.py: what cannot be is refused in one line before anything is computed; a fault of the program is
not hidden.
"""

import errno
import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from matplotlib.figure import Figure

from backends import registry
from backends.cli import parallel, run_folder
from backends.cli.refusal import LONGEST, in_one_line, is_refusal
from backends.data_parallel import DataParallel
from backends.launch import launch
from backends.launch.launch import check_room
from backends.pipeline.schedule import Schedule
from minigrad import figures, lookup, mnist
from minigrad.environment import VALUES

KEEPS_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
HUGE = st.integers(100, 10**30)


def one_line(result, message, status=1):
    ended, out, err = result
    assert ended == status and not out, (ended, out, err)
    assert err.startswith("minigrad: ") and err.count("\n") == 1 and re.search(message, err), err


# Absurd sizes


@KEEPS_FIXTURES
@given(
    command=st.sampled_from(["train", "prove"]),
    size=HUGE,
    flags=st.sampled_from(
        [
            ["--pipe", "{}"],
            ["--pipe", "2", "--schedule", "interleaved", "--chunks", "{}"],
            ["--pipe", "2", "--micro", "{}0000"],
            ["--data", "{}"],
            ["--model", "{}"],
            ["--data", "2", "--pipe", "{}", "--model", "2"],
        ]
    ),
    transport=st.sampled_from([[], ["--transport", "threads"], ["--transport", "mpi"]]),
)
def test_absurd_sizes_are_refused_before_anything_is_computed(
    minigrad, monkeypatch, command, size, flags, transport
):
    def computed(*_, **__):
        raise AssertionError("something was computed, or a rank was started")

    for owner, name in (
        (Schedule, "of"),
        (parallel, "run_ranks"),
        (launch, "run_ranks"),
        (launch, "ending_of"),
    ):
        monkeypatch.setattr(owner, name, computed)
    oversubscribe = ["--oversubscribe"] if "--pipe" in flags else []
    result = minigrad(command, *(flag.format(size) for flag in flags), *transport, *oversubscribe)
    one_line(result, r"; (take|pass) ")


@given(
    ranks=st.integers(1, 10**30),
    cores=st.integers(1, 256),
    free=st.integers(0, 2**40),
    transport=st.sampled_from(["threads", "mpi"]),
)
def test_a_machine_holds_sixteen_ranks_or_eight_a_core_where_its_memory_does(ranks, cores, free, transport):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "cores", lambda: cores)
        patch.setattr(launch, "free_memory", lambda: free)
        fits = ranks <= max(16, 8 * cores) and (transport == "threads" or ranks * 2**27 <= free)
        check_room(ranks, transport, oversubscribe=True)
        if fits:
            check_room(ranks, transport)
        else:
            with pytest.raises(
                ValueError, match=f"^{ranks} ranks are more than the .* pass --oversubscribe$"
            ):
                check_room(ranks, transport)


def test_more_ranks_are_started_where_they_are_asked_for_twice(minigrad):
    words = ["prove", "--net", "sigmoid", "--data", "17", "--batch", "17", "--transport", "threads"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "cores", lambda: 1)
        one_line(minigrad(*words), "17 ranks are more than the 16 that 1 core can hold")
        assert minigrad(*words, "--oversubscribe")[0] == 0
        one_line(minigrad("run", "-n", "17", __file__), "pass --oversubscribe")


def test_a_zero_is_not_taken_for_nothing(minigrad):
    one_line(minigrad("train", "--micro", "0"), "--micro is for pipelines")
    one_line(minigrad("prove", "--chunks", "0"), "--chunks is for pipelines")


def test_what_every_rank_would_refuse_is_refused_before_a_rank_is_started(minigrad, monkeypatch):
    monkeypatch.setattr(launch, "ending_of", lambda *_, **__: pytest.fail("ranks were started"))
    for command in ("train", "prove"):
        grid = [command, "--data", "2", "--transport", "mpi"]
        one_line(minigrad(*grid, "--pipe", "2", "--schedule", "pipedream"), "leave --data and --strategy out")
        one_line(minigrad(*grid, "--model", "2", "--strategy", "sharded", "--option", "stage=3"), "Sharded")


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("pipeline", "--pipe N"),
        ("layer-wise", "--pipe N --schedule layer-wise"),
        ("pipedream", "--pipe N --schedule pipedream"),
        ("model-parallel", "--model N"),
    ],
)
def test_a_strategy_that_shares_the_model_is_no_way_to_share_the_batch(minigrad, name, way):
    for command in ("train", "prove"):
        for grid in (["--data", "2"], ["--data", "2", "--pipe", "2"]):
            result = minigrad(command, *grid, "--transport", "threads", "--strategy", name)
            one_line(result, f"strategy '{name}' shares the model, .*; pass {way} instead$")


# Whose fault it is


def refuse():
    raise ValueError("refused; take another")


def unpack():
    _, _ = [1, 2, 3]


def broadcast():
    return np.ones(3) + np.ones(4)


def concatenate():
    np.concatenate([])


def stack():
    np.stack([np.ones(3), np.ones(4)])  # raised by NumPy's Python


def number():
    int("three")


def call():
    refuse(3)  # pyright: ignore


def strict():
    list(zip([1], [1, 2], strict=True))


FAULTS = (unpack, broadcast, concatenate, stack, number, call, strict)


@given(st.sampled_from([refuse, *FAULTS]), st.integers(0, 3))
def test_only_what_is_raised_on_purpose_is_a_refusal(fails, depth):
    def deeper(n):
        try:
            deeper(n - 1) if n else fails()
        finally:
            pass

    with pytest.raises((ValueError, TypeError)) as caught:
        deeper(depth)
    assert is_refusal(caught.value) == (fails is refuse)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", [["prove"], ["train", "--epochs", "1"]])
def test_a_fault_of_the_program_keeps_its_traceback(minigrad, monkeypatch, fault, command):
    monkeypatch.setattr(DataParallel, "finish", lambda self, model, loss: fault())
    with pytest.raises((ValueError, TypeError)):
        minigrad(*command, "--net", "mlp", "--data", "2", "--transport", "threads")


def test_too_little_memory_is_said_in_one_line(minigrad, monkeypatch):
    def finish(self, model, loss):
        raise MemoryError

    monkeypatch.setattr(DataParallel, "finish", finish)
    result = minigrad("prove", "--net", "mlp", "--data", "2", "--transport", "threads")
    one_line(result, "out of memory; take a smaller --batch, or fewer ranks")


def test_a_working_folder_that_was_removed_is_said(minigrad, tmp_path):
    assert "working" not in in_one_line(FileNotFoundError(errno.ENOENT, "of another kind"))
    tmp_path.rmdir()
    one_line(minigrad("doctor"), "the working folder is there no more; change into another one")


@given(st.text(max_size=20), st.integers(0, 200_000))
def test_no_message_is_longer_than_a_screen(text, times):
    line = in_one_line(ValueError(text * times))
    assert len(line) <= LONGEST + 60
    if len(text) * times <= LONGEST:
        assert line == text * times


def test_a_plan_with_a_name_of_a_megabyte_is_refused_in_few_words(minigrad, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"1": "x" * 1_000_000}), encoding="utf-8")
    result = minigrad("prove", "--model", "2", "--plan", "plan.json")
    one_line(result, r"\(1,000,\d+ characters\)")
    assert len(result[2]) < 2 * LONGEST


def test_a_layer_that_a_plan_names_twice_is_refused(minigrad, tmp_path):
    (tmp_path / "plan.json").write_text('{"7": "column", "7": "row"}', encoding="utf-8")
    one_line(minigrad("prove", "--model", "2", "--plan", "plan.json"), "'7' stands in it twice")


# The environment


@pytest.mark.parametrize("name", VALUES)
def test_a_variable_takes_its_own_values_only(minigrad, monkeypatch, name):
    monkeypatch.setenv(name, "junk")
    one_line(minigrad("prove"), f"{name} takes .*, got 'junk'; unset it")


def test_without_matplotlib_a_training_draws_nothing_and_a_trace_is_refused(tmp_path):
    command = [
        sys.executable,
        "-m",
        "backends",
        "train",
        "--net",
        "sigmoid",
        "--batch",
        "all",
        "--epochs",
        "2",
    ]
    variables = {**os.environ, "MPLBACKEND": "junk"}
    settings: dict[str, Any] = {"env": variables, "cwd": tmp_path, "capture_output": True, "text": True}
    ended = subprocess.run([*command, "--trace", "run.json"], **settings, timeout=120)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert "matplotlib" in ended.stderr and "unset MPLBACKEND" in ended.stderr
    assert not list(tmp_path.iterdir())
    ended = subprocess.run(command, **settings, timeout=120)
    assert ended.returncode == 0 and "note: no curves are drawn: matplotlib" in ended.stdout, ended.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} == {"metrics.jsonl", "metrics.json", "model.safetensors"}


# Files


def names_the_file(write, file: Path) -> None:
    """On a full disk, ``write`` raises an error that names the file, and leaves what was there."""
    for before in ([], ["old"]):
        if before:
            file.write_text("old", encoding="utf-8")
        with pytest.raises(OSError, match=re.escape(f"cannot write {file}: No space left")):
            write(file)
        assert [f.read_text(encoding="utf-8") for f in file.parent.iterdir()] == before


def write_as_it_comes(file):
    file.write_text("{}", encoding="utf-8")
    os.fsync(0)


@pytest.mark.parametrize("write", ["json", "picture", "download"])
def test_a_full_disk_is_named_with_its_file(tmp_path, monkeypatch, write):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    writes = {
        "json": lambda file: run_folder.write_json(file, {}),
        "picture": lambda file: figures.save(Figure(), file),
        "download": lambda file: mnist.store(b"digits", file),
    }
    names_the_file(writes[write], tmp_path / "m.png")
    with pytest.raises((AssertionError, OSError), match=r"^(?!cannot write)"):
        names_the_file(write_as_it_comes, tmp_path / "m.png")


def test_files_are_written_also_where_nobody_reads_the_report(tmp_path):
    command = [sys.executable, "-m", "backends", "train", "--net", "sigmoid", "--batch", "all"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.communicate(timeout=120)
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} == {
        "metrics.jsonl",
        "metrics.json",
        "curves.png",
        "model.safetensors",
    }


# Plug-ins


MODULES = {
    "raises": "1 / 0",
    "exits": "raise SystemExit(0)",
    "misses": "import nowhere_to_be_seen",
    "empty": "",
    "number": "Thing = 3",
}


@pytest.mark.parametrize("how", MODULES)
def test_a_plug_in_that_cannot_be_loaded_is_named(minigrad, monkeypatch, tmp_path, how):
    (tmp_path / f"plug_in_that_{how}.py").write_text(MODULES[how], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    declare(monkeypatch, EntryPoint("theirs", f"plug_in_that_{how}:Thing", registry.GROUPS["data"]))
    for command in (["prove"], ["train", "--data", "2", "--transport", "threads"]):
        one_line(
            minigrad(*command, "--strategy", "theirs"), f"'theirs' is declared as plug_in_that_{how}:Thing"
        )
    assert minigrad("prove", "--net", "mlp", "--data", "2", "--transport", "threads")[0] == 0


def test_a_plug_in_does_not_take_the_place_of_a_strategy(minigrad, monkeypatch):
    declare(
        monkeypatch,
        EntryPoint("replicated", "backends.data_parallel.bucketed:Bucketed", registry.GROUPS["data"]),
    )
    one_line(minigrad("prove", "--data", "2"), "'replicated' is declared twice, as .* rename one of them")


def declare(monkeypatch, *points):
    everything = EntryPoints(
        [*points, *(p for group in registry.GROUPS.values() for p in entry_points(group=group))]
    )
    monkeypatch.setattr(lookup, "entry_points", everything.select)


# Traces


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=3,
)


def places(node, path=()):
    """The paths of all that is in a JSON value."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@KEEPS_FIXTURES
@given(data=st.data())
def test_a_trace_with_anything_in_the_wrong_place_is_shown_or_refused(minigrad, tmp_path, data):
    whole = tmp_path / "whole.json"
    if not whole.exists():
        training_run = [
            "train",
            "--net",
            "mlp",
            "--batch",
            "all",
            "--epochs",
            "1",
            "--pipe",
            "2",
            "--micro",
            "2",
        ]
        assert minigrad(*training_run, "--transport", "threads", "--trace", "whole.json")[0] == 0
    content = json.loads(whole.read_text(encoding="utf-8"))
    path = data.draw(st.sampled_from(list(places(content))))
    other = data.draw(JSON)
    if path:
        node = content
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = other
    else:
        content = other
    (tmp_path / "run.json").write_text(json.dumps(content), encoding="utf-8")
    status, _, err = minigrad("trace", "run.json")
    assert status in (0, 1) and err.count("\n") == status


def test_tokens_are_split_over_ranks_of_a_model(minigrad):
    message = "--split-tokens is for --model of 2 or more; leave it out, or add --model 2"
    net = "--net", "transformer", "--split-tokens"
    one_line(minigrad("prove", *net), message)
    one_line(minigrad("train", *net, "--data", "2", "--transport", "threads"), message)
    images = "--split-tokens is for nets that learn from text, and mlp takes images of 28 x 28"
    one_line(minigrad("prove", "--net", "mlp", "--model", "2", "--split-tokens"), images)
