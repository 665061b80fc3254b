"""Laws of backends/cli/precision.py, verdict.py, run_settings.py, training.py and
saved_model.py: train, prove,
test and generate take --precision and --loss-scale, and what does not fit is refused in one line.
"""

import json
from types import ModuleType

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from backends.cli import verdict
from backends.cli.precision import Precision, loss_scale_of
from backends.cli.training import Training
from backends.laws import Difference
from backends.precision_laws import ScaleRule
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.model_file import read_model
from minigrad.models import find_net
from minigrad.text import course
from tests.bugs.mutant import mutant

SIZES = ["--length", "8", "--width", "8", "--heads", "2", "--blocks", "1", "--text", "few.txt"]
TEXT = ["--net", "transformer", *SIZES, "--transport", "threads"]
CONFIG = dict(net="lenet", batch=13, strategy="replicated", pipe=1, data=2, sequence=1, model=1) | {
    "dtype": "float16",
    "transport": "threads",
}
FEW = [*TEXT, "--warm-up", "2", "--batch", "7", "--epochs", "2"]


@pytest.fixture(autouse=True)
def few_paragraphs(tmp_path):
    (tmp_path / "few.txt").write_bytes(course()[:180])


def figures(minigrad, tmp_path, *arguments):
    status, out, errors = minigrad("train", *FEW, *arguments, "--json", "m.json")
    assert status == 0, errors
    return json.loads((tmp_path / "m.json").read_text(encoding="utf-8")), " ".join(out.split())


# train, test, generate


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sixteen_bits_train_like_float32(minigrad, tmp_path, precision):
    metrics, out = figures(minigrad, tmp_path, "--precision", precision)
    steps, skipped = len(metrics["losses"]), metrics["skipped_steps"]
    scale = 2.0**16 / 2 ** len(skipped) if precision == "float16" else 1.0
    assert metrics["loss_scale"] == scale and 0 <= len(skipped) < steps
    assert f"{precision}: loss scale │ {scale:,.0f}; {len(skipped)} of {steps} steps left out" in out
    assert ("memory stays float32" in out) == (precision == "bfloat16")
    whole, _ = figures(minigrad, tmp_path, "--loss-scale", "4", "--precision", precision)
    other, _ = figures(minigrad, tmp_path)
    assert whole["losses"] == pytest.approx(other["losses"], rel=0.03)
    assert "loss_scale" not in other and whole["loss_scale"] == 4 and not whole["skipped_steps"]


def test_a_step_that_was_left_out_counts_in_no_rate(minigrad, tmp_path):
    metrics, _ = figures(minigrad, tmp_path, "--precision", "float16", "--loss-scale", "1e7", "--epochs", "1")
    steps = len(metrics["losses"])
    assert metrics["skipped_steps"] == [*range(1, steps + 1)], "gradients of at least 0.01 overflow"
    (log,) = tmp_path.glob("runs/*/metrics.jsonl")
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rates = [record["lr"] for record in records if "lr" in record]
    assert len(rates) == steps and len({*rates}) == 1


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_saved_model_has_its_precision(minigrad, tmp_path, precision):
    metrics, _ = figures(minigrad, tmp_path, "--precision", precision, "--data", "2")
    (file,) = tmp_path.glob("runs/*/model.safetensors")
    assert read_model(file).notes["dtype"] == precision
    dtype = "float16" if precision == "float16" else "float32"
    assert all(array.dtype == dtype for array in read_model(file).arrays.values())
    status, out, _ = minigrad("test", str(file))
    assert status == 0 and f"{metrics['test_loss']:.3f} nats" in out
    assert minigrad("generate", str(file), "--symbols", "3")[0] == 0


@pytest.mark.parametrize(
    "ranks",
    [
        ["--data", "2"],
        pytest.param(["--data", "3", "--strategy", "sharded"], marks=pytest.mark.thorough),
        pytest.param(["--pipe", "2"], marks=pytest.mark.thorough),
    ],
)
def test_it_goes_on_with_its_scale(minigrad, tmp_path, ranks):
    settings = [*ranks, "--precision", "float16"]
    once, _ = figures(minigrad, tmp_path, *settings, "--checkpoint", "a", "--every", "2")
    twice, _ = figures(minigrad, tmp_path, *settings, "--epochs", "1", "--checkpoint", "b")
    assert len(twice["losses"]) < len(once["losses"])
    status, _, error = minigrad("train", *FEW, *ranks, "--resume", "b")
    assert status == 1 and "comes from a training with --precision float16" in error
    status, _, error = minigrad("train", *FEW, *settings, "--resume", "b", "--loss-scale", "8")
    assert (
        status == 1
        and "comes from a training without --loss-scale, and this is one with --loss-scale " in error
    )
    again, _ = figures(minigrad, tmp_path, *settings, "--resume", "a")
    assert again["losses"] == once["losses"] and again["loss_scale"] == once["loss_scale"]
    longer, _ = figures(minigrad, tmp_path, *settings, "--resume", "b")
    assert longer["losses"][: len(twice["losses"])] == twice["losses"]
    assert longer["skipped_steps"][: len(twice["skipped_steps"])] == twice["skipped_steps"]


# prove


ALL_RANKS = (
    *("--sequence 2 --data 2", "--experts 3 --data 2 --expert-parallel", "--data 2 --pipe 2 --model 2"),
    *("--data 3 --strategy sharded --option stage=3", "--model 2 --split-tokens", "--pipe 2 --recompute"),
    *("--data 2 --strategy one-node", "--data 2 --strategy elastic", "--sequence 2 --sequence-form ulysses"),
)


@pytest.mark.parametrize(
    ("ranks", "precision"),
    [
        (ALL_RANKS[0], "bfloat16"),
        (ALL_RANKS[1], "float16"),
        *(
            pytest.param(ranks, precision, marks=pytest.mark.thorough)
            for ranks in ALL_RANKS
            for precision in ("float16", "bfloat16")
        ),
    ],
)
def test_sixteen_bits_are_proved(minigrad, tmp_path, ranks, precision):
    words = ["prove", *TEXT, "--batch", "5", *ranks.split(), "--precision", precision, "--oversubscribe"]
    status, out, errors = minigrad(*words, "--json", "p.json")
    assert status == 0 and "PROVED: masters and parameters are float32's bit for bit" in out, out + errors
    verdict = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert verdict["config"]["dtype"] == precision and verdict["passed"]
    assert verdict["loss_scale"]["skipped"] >= 1


def test_a_scale_that_is_too_large_is_said(minigrad):
    words = ["prove", *TEXT, "--batch", "5", "--precision", "float16", "--loss-scale", "1e9"]
    status, _, error = minigrad(*words)
    assert status == 1 and error.count("\n") == 1 and "take a smaller one, as --loss-scale" in error


@st.composite
def verdicts(draw):
    """Verdicts of comparisons with some differences, and whether they hold."""
    errors = draw(st.lists(st.sampled_from([0.0, 1e-4, 2e-3, 0.5]), min_size=2, max_size=4))
    unequal = draw(st.lists(st.integers(0, 2), min_size=len(errors), max_size=len(errors)))
    names = [*(f"{n}.weight" for n in range(len(errors) - 1)), "loss"]
    unequal[-1] = 0
    rows = [
        Difference(name, (3,), error, error, n + 1, differ)
        for n, (name, error, differ) in enumerate(zip(names, errors, unequal, strict=True))
    ]
    scale = Difference("loss scale", (), 0.0, 0.0, 2, draw(st.integers(0, 1)))
    rule = ScaleRule(8.0, grows=True)
    rule.count(False)
    return [*rows, scale], verdict.verdict_of([*rows, scale], 0.01, CONFIG, rule)


def says_what_the_numbers_say(module: ModuleType, rows: list[Difference]) -> None:
    rule = ScaleRule(8.0, grows=True)
    rule.count(False)
    verdict = module.verdict_of(rows, 0.01, CONFIG, rule)
    *compared, scale = rows
    holds = all(row.relative <= 0.01 and not row.unequal for row in compared) and not scale.unequal
    assert verdict["passed"] == holds
    text = module.conclusion(verdict)
    assert text.plain.startswith("PROVED: " if holds else "NOT EQUAL: ")
    assert str(text.style) == ("bold green" if holds else "bold red")
    worst, wrong = max(row.relative for row in compared), max(compared, key=lambda row: row.unequal)
    if wrong.unequal:
        assert f"{wrong.name} or its master on rank {wrong.worst_rank} differs" in text.plain
    elif scale.unequal:
        assert (
            "the loss scale of rank 2, or what it left out, is not as by rule: 4, and 1 of 1 step"
            in text.plain
        )
    else:
        assert f"{worst:.1e} (allowed 1e-02, relative)" in text.plain
    if holds:
        assert "in 1 step, of which all ranks left out 1," in text.plain
    table = module.report(verdict)
    for row, shown in zip(compared, table.rows, strict=True):
        assert (shown.style == "red") == bool(row.relative > 0.01 or row.unequal)
    masters = [*table.columns[-1].cells]
    assert masters == [*(f"{r.unequal} differ" if r.unequal else "equal" for r in compared[:-1]), ""]


@given(drawn=verdicts())
def test_the_verdict_says_what_the_numbers_say(drawn):
    says_what_the_numbers_say(verdict, drawn[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("worst <= bound and not unequal", "worst <= bound"),
        ("worst <= bound and not unequal", "not unequal"),
        ("for row in (*compared, scale))", "for row in compared)"),
        ('key=lambda row: row["unequal"]', 'key=lambda row: -row["unequal"]'),
        (
            'p["max_rel_error"] > verdict["bound"] or p.get("unequal")',
            'p["max_rel_error"] > verdict["bound"]',
        ),
        ('if verdict["passed"]:', 'if not verdict["passed"]:'),
        ("worst = max(rows_of", "worst = min(rows_of"),
    ],
)
def test_a_verdict_that_lies_is_seen(old, new):
    broken = mutant("backends.cli.verdict", (old, new))

    @settings(max_examples=100, phases=[Phase.generate], report_multiple_bugs=False)
    @given(drawn=verdicts())
    def law(drawn):
        says_what_the_numbers_say(broken, drawn[0])

    with pytest.raises((AssertionError, ValueError)):
        law()


# Refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "train --precision float16 --dtype float64",
            "sixteen bits of float16 have float32 masters; leave --dt",
        ),
        (
            "train --dtype float32 --precision bfloat16",
            "sixteen bits of bfloat16 have float32 masters; leave",
        ),
        (
            "prove --precision float16 --dtype float64",
            "sixteen bits of float16 have float32 masters; leave --dt",
        ),
        (
            "train --precision float8",
            "unknown --precision 'float8'; choose one of float32, float16, bfloat16",
        ),
        ("prove --data 2 --precision float16 --locate", "--locate compares tensors that are equal but for"),
        (
            "train --loss-scale 4",
            "--loss-scale is for 16 bits, and the precision is float32; add --precision",
        ),
        (
            "prove --loss-scale 4",
            "--loss-scale is for 16 bits, and the precision is float32; add --precision",
        ),
        *(
            (f"train --precision float16 --loss-scale {scale}", "--loss-scale must be dynamic, or a number")
            for scale in ("0", "-1", "inf", "nan", "much")
        ),
        (
            "train --precision float16 --data 2 --strategy local-sgd",
            "LocalSGD does not train like a serial run",
        ),
        (
            "train --precision bfloat16 --data 2 --strategy server",
            "ParameterServer does not train like a serial",
        ),
        (
            "train --precision float16 --pipe 2 --schedule pipedream",
            "does not train like a serial run, as master",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    status, out, err = minigrad(*arguments.split(), "--transport", "threads")
    assert status == 1 and not out and err.count("\n") == 1 and words in err, err
    assert not (tmp_path / "runs").exists()


def test_a_captured_step_has_no_loss_scale():
    settings = Training(net="mlp", precision="float16", device="cupy", capture=True)
    with pytest.raises(ValueError, match="a loss scale may change; leave --capture or --precision out"):
        settings.check_capture(traced=False)


def test_scales_are_read():
    assert loss_scale_of(None) is None
    assert loss_scale_of("dynamic") == DynamicScale() and loss_scale_of("1e3") == StaticScale(1000.0)


def test_samples_have_the_numbers_of_the_precision():
    net = find_net("sigmoid")
    data = net.data().test[:20]
    for name in ("float16", "bfloat16", "float64"):
        batch = Precision(name).prepared(net, data)
        assert batch.x.dtype == ("float32" if name == "bfloat16" else name)
        unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 0.0}[name]
        assert np.all(np.abs(batch.x - data.x) <= unit * np.abs(data.x) + 2.0**-25)
    assert Training(precision="bfloat16").numbers.is_half and not Training(dtype="float64").numbers.is_half
