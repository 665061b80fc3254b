"""Laws of backends/cli/main.py, lazy_command.py, doctor.py, training.py, parallel.py, proof.py and train.py:
what the command line writes, and what it says to a mistake. Ranks are threads here.
"""

import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints, entry_points, version
from types import ModuleType

import numpy as np
import pytest
import typer
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from backends import registry
from backends.cli import curves, doctor, main, net_settings, parallel, run_folder, trace_view, train, training
from backends.cli.lazy_command import LazyCommand
from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.launch import launch
from backends.process import signals
from backends.registry import find_strategy, strategy_names
from minigrad import device, lookup, mnist
from minigrad.declaration import check_options, settings_of
from minigrad.models import find_net
from minigrad.ops.fast import conv, winograd
from minigrad.work import forward_backward_pass
from tests.bugs.mutant import mutant


def test_train_writes_figures_curves_and_json(minigrad, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "draw_curves", curves.draw_curves)
    status, out, _ = minigrad("train", "--net", "mlp", "--epochs", "2", "--batch", "250", "--json", "m.json")
    assert status == 0 and "test accuracy" in out and "samples per second" in out
    metrics = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    assert len(metrics["losses"]) == 40 and metrics["losses"][-1] < metrics["losses"][0]
    assert 0.5 < metrics["test_accuracy"] <= 1 and metrics["ranks"] == 1
    assert metrics["seconds"] > 0 and metrics["samples_per_second"] == pytest.approx(
        10_000 / metrics["seconds"]
    )
    assert metrics["config"]["net"] == "mlp" and metrics["config"]["batch"] == 250
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == metrics
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert {p.name for p in folder.iterdir()} == {
        "metrics.jsonl",
        "metrics.json",
        "curves.png",
        "model.safetensors",
    }


@pytest.mark.usefixtures("few_digits")
def test_thread_ranks_train_as_one(minigrad, tmp_path):
    for n in ("1", "3"):
        common = ["train", "--net", "sigmoid", "--batch", "all", "--epochs", "5", "--dtype", "float64"]
        assert minigrad(*common, "--data", n, "--transport", "threads", "--json", f"{n}.json")[0] == 0
    one, three = (json.loads((tmp_path / f"{n}.json").read_text(encoding="utf-8")) for n in "13")
    assert three["losses"] == pytest.approx(one["losses"], rel=1e-9)
    assert three["ranks"] == 3 and three["losses"][-1] < three["losses"][0]


def test_what_is_asked_for_is_done_and_written_down(minigrad, tmp_path):
    """Ranks, micro-batches, LARS, clipping and warm-up: the losses are those of one machine."""
    common = ["train", "--net", "mlp", "--batch", "500", "--epochs", "1", "--dtype", "float64"]
    common += ["--optimizer", "lars", "--clip", "0.5", "--warm-up", "4", "--lr-schedule", "step"]
    for file, *words in (
        ["one.json"],
        ["two.json", *THREADS, "--option", "micro_batches=2", "--option", "batch_norm=ranks"],
    ):
        assert minigrad(*common, *words, "--json", file)[0] == 0
    one, two = (
        json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("one.json", "two.json")
    )
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-9)
    actual, expected = two["config"], {"optimizer": "lars", "clip": 0.5, "warm_up": 4, "lr_schedule": "step"}
    expected |= {"lr": 0.1, "momentum": 0.9, "strategy": "replicated"}
    expected |= {"options": {"micro_batches": 2, "batch_norm": "ranks"}}
    assert actual | expected == actual
    assert one["config"]["strategy"] == "serial" and one["config"]["options"] == {}


@pytest.mark.parametrize(
    ("flags", "lr", "momentum"),
    [
        ({}, 0.1, 0.9),
        ({"optimizer": "heavy-ball"}, 0.1, 0.9),
        ({"optimizer": "adam"}, 0.001, None),
        ({"optimizer": "adam", "lr": 0.01}, 0.01, None),
    ],
)
def test_the_rate_is_the_given_one_or_the_optimizers_or_the_nets(flags, lr, momentum):
    result, settings = training.Training(**flags).optimizer_settings(find_net("mlp"))
    assert (result, settings.get("momentum")) == (lr, momentum)


def test_a_named_strategy_is_used_by_one_rank_too(minigrad, monkeypatch):
    placed = []

    class Watched(DataParallel):
        def place(self, model):
            placed.append(self.size)
            return super().place(model)

    monkeypatch.setattr(parallel, "find_strategy", lambda name, options=None, axis="data": Watched)
    common = ["train", "--net", "mlp", "--batch", "all", "--epochs", "1"]
    assert minigrad(*common, "--strategy", "replicated")[0] == 0
    assert placed == [1]


@pytest.mark.parametrize("net", ["mlp", "sigmoid", "lenet"])
def test_prove_passes_and_names_every_parameter(minigrad, tmp_path, net):
    arguments = ["prove", "--data", "3", "--transport", "threads", "--net", net, "--json", "p.json"]
    status, out, _ = minigrad(*arguments, "--svg", "p.svg")
    picture = (tmp_path / "p.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg") and "PROVED" in picture
    verdict = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert status == 0 and verdict["passed"] and "\nPROVED: " in out
    assert verdict["max_rel_error"] <= 1e-12
    names = [p["name"] for p in verdict["parameters"]]
    assert all(name in out for name in names) and len(set(names)) == len(names)
    assert set(verdict["parameters"][0]) >= {"name", "shape", "max_abs_error", "worst_rank"}


@pytest.mark.parametrize("command", ["train", "prove"])
def test_exact_commands_take_no_winograd_convolution(minigrad, monkeypatch, command):
    def few(name):
        digits = mnist.load(name)
        return replace(digits, train=digits.train[:4], test=digits.test[:2])

    by_winograd = []

    def counted(x, w, geometry):
        by_winograd.append(w.shape)
        return winograd.winograd(x, w, geometry)

    monkeypatch.setattr(net_settings, "load", few)
    way = conv.ALGORITHMS["winograd"]._replace(convolve=counted)
    monkeypatch.setitem(conv.ALGORITHMS, "winograd", way)
    arguments = [command, "--net", "vgg", "--dtype", "float32", "--batch", "4", "--transport", "threads"]
    arguments += ["--epochs", "1"] * (command == "train")
    assert minigrad(*arguments)[0] == 0 and by_winograd
    by_winograd.clear()
    assert minigrad(*arguments, "--exact")[0] == 0 and not by_winograd


@pytest.mark.parametrize("net", ["mlp", "lenet"])
def test_prove_data_by_model_with_the_default_plan(minigrad, tmp_path, net):
    arguments = ["prove", *THREADS, "--model", "2", "--net", net, "--json", "p.json"]
    status, out, _ = minigrad(*arguments)
    verdict = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert status == 0 and verdict["passed"] and "PROVED" in out and "2 x 2 ranks" in out
    assert verdict["config"] | {"data": 2, "model": 2} == verdict["config"] and verdict["config"]["plan"]


@pytest.mark.usefixtures("few_digits")
def test_a_plan_is_followed_and_written_down(minigrad, tmp_path, monkeypatch):
    monkeypatch.setattr(trace_view, "show_trace", lambda *_: None)
    (tmp_path / "plan.toml").write_text('1 = "gathered"\n3 = "column"\n5 = "classes"\n', encoding="utf-8")
    common = ["train", "--net", "mlp", "--batch", "100", "--epochs", "1", "--dtype", "float64"]
    common += ["--clip", "0.5"]
    assert minigrad(*common, "--json", "one.json")[0] == 0
    split = ["--data", "2", "--model", "3", "--plan", "plan.toml", "--transport", "threads"]
    status, out, _ = minigrad(*common, *split, "--json", "six.json", "--trace", "trace.json")
    assert status == 0 and "1 by gathered, 3 by column, 5 by classes" in out
    one, six = (
        json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("one.json", "six.json")
    )
    assert six["losses"] == pytest.approx(one["losses"], rel=1e-9)
    assert six["test_accuracy"] == one["test_accuracy"]
    assert six["config"]["plan"] == {"1": "gathered", "3": "column", "5": "classes"}
    assert (six["ranks"], six["config"]["data"], six["config"]["model"]) == (6, 2, 3)
    assert (one["config"]["plan"], one["config"]["model"]) == (None, 1)
    names = {
        event["name"]
        for event in json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    }
    assert {"forward", "backward", "update", "test"} <= names


def test_prove_exits_1_when_the_gradients_differ(minigrad, tmp_path, monkeypatch):
    class Unweighted(DataParallel):
        def forward_backward(self, work, inner=forward_backward_pass):
            return super().forward_backward(work._replace(loss_weight=1 / self.size), inner)

    monkeypatch.setattr(parallel, "find_strategy", lambda name, options=None, axis="data": Unweighted)
    status, out, _ = minigrad("prove", "--data", "3", "--transport", "threads", "--json", "p.json")
    assert status == 1 and out.splitlines()[-1].startswith("NOT EQUAL: ")
    assert not json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["passed"]
    status, out, _ = minigrad("prove", *THREADS, "--data", "3", "--locate", "--json", "p.json")
    located = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["located"]["first"]
    assert status == 1 and (located["direction"], located["end"]) == ("backward", "output")
    assert out.splitlines()[-1].startswith("FIRST DIFFERENCE: the loss or its weight, or what leads its ")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    *_, last = re.sub(r"\x1b\[[0-9;]*m", "", minigrad("prove", *THREADS, "--batch", "9")[1]).splitlines()
    again = " ".join(["minigrad", "prove", *THREADS, "--batch", "9", "--locate"])
    assert last == f"next: {again}  (what is the first tensor that differs?)"


def test_prove_locates_nothing_in_a_right_step(minigrad, tmp_path):
    status, out, _ = minigrad("prove", *THREADS, "--data", "2", "--locate", "--json", "p.json")
    located = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["located"]
    assert status == 0 and located["first"] is None and not located["left_out"]
    assert f"All {located['compared']} tensors agree" in out


def test_the_version_and_the_short_help(minigrad):
    status, out, _ = minigrad("--version")
    assert status == 0 and out == f"minigrad {version('minigrad-course')}\n"
    for words in ([], ["prove"], ["run"]):
        assert minigrad(*words, "-h") == minigrad(*words, "--help")
        assert "Usage: minigrad" in minigrad(*words, "-h")[1]


def test_prove_in_single_precision(minigrad):
    assert minigrad("prove", "--data", "2", "--transport", "threads", "--dtype", "float32")[0] == 0


def test_doctor_names_what_it_found(minigrad):
    status, out, _ = minigrad("doctor")
    assert status == 0
    for word in ("Python", "NumPy", "BLAS", "mpiexec", "cores", "GPU", "mnist5k", np.__version__):
        assert word in out
    assert out.splitlines()[-1].startswith("everything needed is here")


@st.composite
def findings(draw):
    letters = "abcdefgh/._"
    words = st.text(letters, min_size=1, max_size=60) | st.text(letters, min_size=40, max_size=60)
    texts = st.lists(words, min_size=1, max_size=8).map(" ".join)
    remedies = st.one_of(st.just(""), texts)
    one = st.builds(doctor.Finding, st.sampled_from(["MPI", "BLAS threads"]), texts, remedies, st.booleans())
    return draw(st.lists(one, min_size=1, max_size=4))


def the_report_cuts_no_word_and_ends_with_the_sum(module: ModuleType, findings, columns):
    text = module.report(findings, columns).plain
    for finding in findings:
        assert all(word in text for word in f"{finding.state} {finding.remedy}".split())
    *lines, last = text.splitlines()
    for line in lines:  # wider only by a path, which stands alone beside the names
        assert len(line) <= columns or len(line[24:].removeprefix("remedy: ").split()) == 1, line
    missing = [finding.what for finding in findings if finding.remedy]
    needed = [finding.what for finding in findings if finding.remedy and finding.needed]
    if needed:
        assert last == f"needed: {', '.join(needed)}; see above"
    else:
        optional = f"; optional: {', '.join(missing)}" if missing else ""
        assert last == f"everything needed is here{optional}"


@given(findings=findings(), columns=st.sampled_from([60, 80, 120]))
def test_the_doctors_report_cuts_no_word_and_ends_with_the_sum(findings, columns):
    the_report_cuts_no_word_and_ends_with_the_sum(doctor, findings, columns)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("break_long_words=False", "break_long_words=True"),
        ("max(columns - margin, 20)", "columns"),
        ("if finding.remedy]", "if finding.needed]"),
        ("for finding in missing if finding.needed", "for finding in missing"),
    ],
)
def test_a_report_of_the_doctor_that_is_wrong_is_seen(old, new):
    broken = mutant("backends.cli.doctor", (old, new))

    @settings(max_examples=200, phases=[Phase.generate])
    @given(findings=findings(), columns=st.sampled_from([60, 80, 120]))
    def law(findings, columns):
        the_report_cuts_no_word_and_ends_with_the_sum(broken, findings, columns)

    with pytest.raises(AssertionError):
        law()


def test_the_shell_can_complete_commands(monkeypatch, minigrad):
    monkeypatch.setenv("_MINIGRAD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "minigrad tr")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert minigrad("tr")[1].split() == ["train", "trace"]


@pytest.mark.parametrize("name", sorted(typer.main.get_command(main.app).commands))  # pyright: ignore
def test_help_is_within_80_columns_and_names_the_values_of_options(minigrad, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = minigrad(name, "--help")
    assert status == 0 and max(map(len, out.splitlines())) <= 80
    own = [line for line in out.splitlines() if line.startswith("│ --") and "--help" not in line]
    assert not re.findall(r"<(?:str|bool|int|float|path)\b", "\n".join(own))


THREADS = ["--data", "2", "--transport", "threads"]
MISTAKES = [
    (["train", "--net", "vg"], "unknown net 'vg'; choose one of mlp, lenet, vgg, sigmoid"),
    (["train", "--dataset", "cifar"], "unknown --dataset 'cifar'; choose one of mnist5k, mnist"),
    (["train", "--dtype", "half"], "unknown --dtype 'half'; choose one of float32, float64"),
    (["train", "--transport", "ucx"], "unknown transport 'ucx'; choose one of threads, mpi"),
    (
        ["train", "--strategy", "magic"],
        f"unknown strategy 'magic'; choose one of {', '.join(strategy_names())}",
    ),
    (["train", "--optimizer", "rmsporp"], "unknown optimizer 'rmsporp'; choose one of sgd, heavy-ball, lars"),
    (["train", "--clip", "0"], "--clip must be a positive number, got 0.0"),
    (
        ["train", *THREADS, "--option", "buckets=3"],
        "strategy 'replicated' has no option 'buckets'; it has micro_",
    ),
    (
        ["prove", "--option", "micro_batches"],
        "takes name=value, as in --option micro_batches=4; got 'micro_b",
    ),
    (["prove", "--option", "=4"], "takes name=value, as in --option micro_batches=4; got '=4'"),
    (["prove", "--option", "a=1", "--option", "a=2"], "--option a appears twice; leave one out"),
    (
        ["prove", "--option", "micro_batches=four"],
        "option 'micro_batches' of strategy 'replicated' must be a whole number, got 'four'",
    ),
    (["prove", "--option", "micro_batches=True"], "must be a whole number, got True"),
    (["prove", "--option", "batch_norm=3"], "must be text, got 3"),
    (["train", *THREADS, "--option", "micro_batches=0"], "micro_batches must be at least 1, got 0"),
    (
        ["train", *THREADS, "--strategy", "serial"],
        "strategy 'serial' takes 1 rank, got 2; pass --data 1, or choose another",
    ),
    (
        ["prove", *THREADS, "--strategy", "local-sgd"],
        "by its mathematics strategy 'local-sgd' does not train like one serial",
    ),
    (["prove", "--device", "tpu"], "unknown device 'tpu'; choose one of numpy, cupy"),
    (["train", "--device", "tpu"], "unknown device 'tpu'; choose one of numpy, cupy"),
    (["train", "--capture"], "the device is numpy; add --device cupy, or leave --capture out"),
    (["train", "--batch", "some"], "--batch must be a number of samples of at least 1, or all; got 'some'"),
    (["train", "--batch", "²"], "--batch must be a number of samples of at least 1, or all; got '²'"),
    (["train", "--batch", "0"], "--batch must be a number of samples of at least 1, or all; got '0'"),
    (["train", "--lr", "-1"], "--lr must be a positive number, got -1.0"),
    (["train", "--lr", "nan"], "--lr must be a positive number, got nan"),
    (["train", "--lr-schedule", "steep"], "unknown schedule 'steep'; choose one of constant, cosine, step"),
    (["prove", "--plan", "none.json"], "there is no plan file none.json; write one such as"),
    (
        ["prove", "--data", "2", "--model", "2", "--transport", "threads", "--strategy", "proportional"],
        "ProportionalDataParallel goes by how fast each rank is",
    ),
    (
        ["train", "--json", "no/where.json"],
        "cannot write no/where.json: its folder must exist and be writable",
    ),
    (["train", "--json", "same", "--trace", "./same"], "--json and --trace would both write same; name two"),
    (["prove", "--json", "same", "--svg", "./same"], "--json and --svg would both write same"),
    (["prove", "--svg", "no/where.svg"], "cannot write no/where.svg: its folder must exist"),
    (["prove", "--batch", "6000", "--transport", "threads"], "--batch must be 1 to 5000, got 6000"),
]


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--seed", "-3"), ("--data", "0"), ("--model", "0"), ("--epochs", "0"), ("--staleness", "none")],
)
def test_a_value_out_of_range_is_a_mistake_of_usage(minigrad, flag, value):
    status, _, err = minigrad("train", flag, value)
    assert status == 2 and err.startswith(f"minigrad: Invalid value for '{flag}': ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_mistake_ends_in_one_line(minigrad, arguments, message, tmp_path):
    status, out, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1
    assert err.startswith("minigrad: ") and message in err
    assert not (tmp_path / "runs").exists()


def test_a_warm_up_is_shorter_than_the_run(minigrad):
    status, _, err = minigrad(
        "train", "--net", "sigmoid", "--batch", "all", "--epochs", "3", "--warm-up", "3"
    )
    assert (status, err) == (
        1,
        "minigrad: --warm-up 3 must be less than the 3 steps of the run; take a "
        "shorter one, more --epochs or a smaller --batch\n",
    )


@pytest.mark.parametrize(
    ("batch", "grid", "notes"),
    [
        (8, dict(data=8), ["note: 8 ranks share"]),
        (
            4,
            dict(data=9),
            ["so 5 of them have none; --batch 9 gives each one", "note: 9 ranks share 2 cores"],
        ),
        (1, dict(data=2), ["note: 2 ranks share 1 sample in a step"]),
        (1, dict(pipe=2), []),
        (None, dict(data=2), []),
        (64, dict(data=2, model=2), ["note: 4 ranks share 2 cores"]),
    ],
    ids=str,
)
def test_a_note_says_what_too_many_ranks_lead_to(monkeypatch, batch, grid, notes):
    monkeypatch.setattr(training, "cores", lambda: 2)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    config = training.Training(parallel.ParallelConfig(**grid), batch=batch)
    lines = config.notes()
    assert len(lines) == len(notes)
    assert all(note in line for note, line in zip(notes, lines, strict=True)), lines


def test_what_cannot_be_is_refused_before_a_rank_starts(minigrad, monkeypatch):
    monkeypatch.setattr(train, "run", lambda *arguments, **settings: pytest.fail("ranks were started"))
    arguments = ["--data", "2", "--net", "sigmoid", "--batch", "all", "--epochs", "10", "--warm-up", "40"]
    status, out, err = minigrad("train", *arguments)
    assert (status, out) == (1, "") and "--warm-up 40 must be less than the 10 steps" in err


def test_a_loss_that_is_not_finite_stops_and_names_the_step(minigrad, tmp_path):
    minigrad("train", "--net", "mlp", "--epochs", "1", "--batch", "500", "--json", "kept.json")
    content = (tmp_path / "kept.json").read_bytes()
    arguments = ["train", "--net", "mlp", "--lr", "1e6", "--epochs", "1", "--json", "kept.json"]
    status, _, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1
    assert "the loss is" in err and "at step" in err and "try a smaller --lr" in err
    assert (tmp_path / "kept.json").read_bytes() == content  # the finished run's file is whole


@pytest.mark.parametrize("verb", ["train", "prove"])
def test_no_gpu_is_said_in_one_line(minigrad, monkeypatch, verb):
    monkeypatch.setattr(device, "cuda_problem", lambda: "CuPy finds no CUDA device; use --device numpy")
    assert minigrad(verb, "--device", "cupy")[2] == (
        "minigrad: --device cupy: CuPy finds no CUDA device; use --device numpy\n"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data", "2"], "one rank with --strategy serial, got 2 ranks with replicated"),
        (["--pipe", "2"], "one rank with --strategy serial, got 2 ranks with serial"),
        (["--strategy", "naive"], "one rank with --strategy serial, got 1 rank with naive"),
        (["--trace", "t.json"], "--trace shows forward and backward, which --capture launches as one"),
    ],
)
def test_where_a_step_is_not_captured_the_command_says_so(minigrad, monkeypatch, options, words):
    monkeypatch.setattr(device, "cuda_problem", lambda: None)
    capture = ["train", "--device", "cupy", "--capture", "--transport", "threads"]
    status, _, err = minigrad(*capture, *options)
    assert status == 1 and err.count("\n") == 1 and words in err and "leave" in err


def without(monkeypatch, *missing):
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, real=importlib.util.find_spec: None if name in missing else real(name),
    )


def test_without_mpi4py_threads_still_work(minigrad, monkeypatch):
    without(monkeypatch, "mpi4py")
    assert minigrad("prove", "--data", "2", "--net", "mlp")[0] == 0
    status, _, err = minigrad("prove", "--data", "2", "--transport", "mpi")
    assert status == 1 and "mpi4py is not installed; pip install mpi4py mpich" in err


def test_without_mpiexec_threads_still_work(minigrad, monkeypatch):
    monkeypatch.setattr(launch, "find_mpiexec", lambda: None)
    assert minigrad("prove", "--data", "2", "--net", "mlp")[0] == 0
    status, _, err = minigrad("prove", "--data", "2", "--transport", "mpi")
    assert status == 1 and ("there is no mpiexec beside" in err or "mpi4py is not installed" in err)


def test_a_wrong_number_of_ranks_is_refused(minigrad, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert "--data 3 needs 3 ranks, mpiexec started 2" in minigrad("train", "--data", "3")[2]


def test_the_ranks_of_mpiexec_must_make_a_grid(minigrad, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "6")
    assert (
        "a grid of data 2 x pipe 1 x sequence 1 x model 2 needs 4 ranks, got 6; run with mpiexec -n 4, or"
        in minigrad("prove", "--data", "2", "--model", "2")[2]
    )
    assert "sequence 1 x model 4 needs 4 ranks, got 6" in minigrad("prove", "--model", "4")[2]
    assert launch.world_size(None, 3) == launch.world_size(2, 3) == launch.world_size(None) == 6
    assert launch.world_size(None, 1, 3) == launch.world_size(None, 2, 3) == launch.world_size(1, 3, 2) == 6
    assert (
        "data 1 x pipe 4 x sequence 1 x model 1 needs 4 ranks, got 6" in minigrad("prove", "--pipe", "4")[2]
    )


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"8": "row"}, "layer 8, ReLU(), cannot be split by 'row'; choose rows, tiles"),
        ({"10": "row"}, "the plan names layer '10', which the model does not have; layers that can be split"),
        ({"7": "classes"}, "layer 7 cannot be split by 'classes': only the last layer"),
        ({"0": "tiles 2x3"}, "layer 0, tiles 2x3 need 6 ranks, got 2"),
        ("7 = row", "the plan plan.json cannot be read: "),
    ],
)
def test_a_plan_that_does_not_fit_is_said_in_one_line(minigrad, tmp_path, plan, message):
    (tmp_path / "plan.json").write_text(plan if isinstance(plan, str) else json.dumps(plan), encoding="utf-8")
    arguments = ["train", "--model", "2", "--plan", "plan.json", "--transport", "threads"]
    status, _, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1 and err.startswith(f"minigrad: {message}")


def test_damaged_data_is_said_in_one_line(minigrad, monkeypatch, tmp_path):
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).write_bytes(b"not IDX")
    monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path))
    status, _, err = minigrad("train", "--dataset", "mnist")
    assert status == 1 and "train-images-idx3-ubyte" in err and err.count("\n") == 1


def test_a_json_file_is_whole_or_untouched(tmp_path):
    file = tmp_path / "m.json"
    run_folder.write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        run_folder.write_json(file, {"a": object()})
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": 1}


def test_strategies_are_found_by_entry_point():
    assert {"serial", "replicated"} <= set(strategy_names())
    assert find_strategy("replicated") is DataParallel
    assert run_ranks(1, find_strategy("serial", {"micro_batches": 3}))[0].micro_batches == 3


def test_every_declared_strategy_can_be_made_for_one_rank():
    """The names and entry points agree with the classes; options have the types they are given."""
    for axis in registry.GROUPS:
        for name in strategy_names(axis):
            strategy = find_strategy(name, axis=axis)
            backend = run_ranks(1, strategy)[0]
            assert (backend.rank, backend.size) == (0, 1)


def test_a_strategy_that_cannot_be_imported_is_named_and_harms_no_other(minigrad, monkeypatch):
    lost = EntryPoint("lost", "no.such_module:Thing", registry.GROUPS["data"])
    points = EntryPoints([lost, *entry_points(group=registry.GROUPS["data"])])
    monkeypatch.setattr(lookup, "entry_points", points.select)
    assert "lost" in strategy_names()
    assert minigrad("prove", "--net", "mlp", "--strategy", "replicated")[0] == 0
    status, _, err = minigrad("prove", "--strategy", "lost")
    assert status == 1 and err == (
        "minigrad: strategy 'lost' is declared as no.such_module:Thing, which cannot be loaded: "
        "ModuleNotFoundError: No module named 'no'; install what it needs, or choose another strategy\n"
    )


def theirs(
    comm, speed: float, period: int | None = None, names: Sequence[str] = (), *, order=min, level="low"
):
    """A strategy of someone else's."""


def taking_anything(comm, **settings):
    """One that hands its settings on."""


@pytest.mark.parametrize(
    "options", [{"speed": 1}, {"speed": 0.5, "period": None, "names": ["a"]}, {"period": 3, "level": 7}]
)
def test_options_of_the_right_type_pass(options):
    check_options("strategy 'theirs'", settings_of(theirs), options)
    check_options("strategy 'any'", settings_of(taking_anything), options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": "fast"}, "option 'speed' of strategy 'theirs' must be a number, got 'fast'"),
        ({"speed": True}, "must be a number, got True"),
        ({"period": 0.5}, "must be a whole number or None, got 0.5"),
        ({"names": 3}, "must be Sequence, got 3"),
        ({"comm": 3}, "has no option 'comm'; it has speed, period=None, names=\\(\\), level='low'$"),
    ],
)
def test_options_of_another_type_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check_options("strategy 'theirs'", settings_of(theirs), options)


def test_options_are_python_values_or_text():
    words = ["a=4", "b=0.5", "c=None", "d=thread", "e='4'", "f = [1, 2]", "g=a=b"]
    expected = {"a": 4, "b": 0.5, "c": None, "d": "thread", "e": "4", "f": [1, 2], "g": "a=b"}
    assert registry.read_options(words) == expected


def test_a_process_that_is_a_rank_has_one_thread():
    threads = launch.environment(1)["OPENBLAS_NUM_THREADS"]
    assert threads == os.environ.get("OPENBLAS_NUM_THREADS", "1")


def test_importing_the_command_needs_no_mpi4py():
    code = "import sys, backends.cli.train; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_list_of_commands_needs_neither_numpy_nor_the_commands():
    code = (
        "import atexit, sys; from backends.cli.main import command; sys.argv[1:] = ['--help'];"
        "atexit.register(lambda: print(sorted({'numpy', 'backends.cli.train'} & {*sys.modules})));"
        "command()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], timeout=60, capture_output=True, encoding="utf-8", check=True
    )
    *table, last = ran.stdout.splitlines()
    assert last == "[]", last
    for name, command in typer.main.get_command(main.app).commands.items():  # pyright: ignore
        if isinstance(command, LazyCommand):
            command.read_help()
        first = " ".join((command.help or "").split()[:4])
        assert command.hidden or any(f" {name} " in line and first in line for line in table), name


@pytest.mark.parametrize("collects", [True, False])
def test_a_command_leaves_the_search_for_garbage_as_it_was(minigrad, collects):
    """A process that runs many commands, as these tests or a notebook, would else keep what each held."""
    (gc.enable if collects else gc.disable)()
    frozen = gc.get_freeze_count()
    try:
        minigrad("train", "--net", "vg")
        assert gc.isenabled() == collects and gc.get_freeze_count() <= frozen
    finally:
        gc.enable()


def test_a_command_whose_package_is_gone_ends_in_one_line_and_no_other_does(tmp_path):
    folder = tmp_path / "gone-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[minigrad.commands]\ngone = gone.away:run\n", encoding="utf-8")

    def minigrad(*arguments):
        command = [sys.executable, "-m", "backends", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, timeout=60, env=environ, capture_output=True, encoding="utf-8")

    assert " gone " in minigrad("--help").stdout and minigrad("slurm", "prove").returncode == 0
    ended = minigrad("gone")
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(
        "minigrad: the command gone is gone.away:run, which cannot be loaded: No mod"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, signals.Interrupted])
def test_an_interrupt_is_never_status_0(minigrad, monkeypatch, error):
    """Whatever typer makes of it: some return the status of a KeyboardInterrupt and raise nothing."""

    def raising(*_):
        raise error(*([2] if error is signals.Interrupted else []))

    monkeypatch.setattr(doctor, "examine", raising)
    monkeypatch.setattr(signals, "end", lambda interruption: sys.exit(interruption.code))
    assert minigrad("doctor")[0] == 130
