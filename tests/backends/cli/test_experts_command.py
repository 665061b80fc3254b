"""Laws of backends/cli/net_settings.py, options.py, saved_model.py and training.py: train, prove, test and
generate take a net with experts, on ranks that share them, and what does not fit is refused in one line.
"""

import json

import pytest

from backends.cli.training import Training
from minigrad.model_file import read_model
from minigrad.text import course

SIZES = ["--length", "8", "--width", "8", "--heads", "2", "--blocks", "1", "--text", "few.txt"]
SMALL = ["--net", "transformer", *SIZES, "--experts", "3", "--transport", "threads"]
FEW = [*SMALL, "--warm-up", "2", "--batch", "7", "--epochs", "2", "--dtype", "float64"]


@pytest.fixture(autouse=True)
def few_paragraphs(tmp_path):
    (tmp_path / "few.txt").write_bytes(course()[:180])


def figures(minigrad, tmp_path, *arguments):
    status, out, errors = minigrad("train", *FEW, *arguments, "--json", "m.json")
    assert status == 0, errors
    return json.loads((tmp_path / "m.json").read_text(encoding="utf-8")), " ".join(out.split())


@pytest.mark.parametrize(
    "ranks",
    ["--data 2 --expert-parallel", "--data 4 --expert-parallel", "--data 2 --pipe 2 --expert-parallel"]
    + ["--data 2 --strategy bucketed", "--pipe 2 --recompute", "--data 2 --model 2 --expert-parallel"]
    + ["--sequence 2 --sequence-form ulysses", "--data 2 --sequence 2 --expert-parallel"]
    + ["--data 3 --expert-parallel --choices 2 --capacity 0.5", "--expert-parallel --capacity 0"],
)
def test_experts_are_proved(minigrad, ranks):
    status, out, errors = minigrad("prove", *SMALL, "--batch", "5", *ranks.split(), "--oversubscribe")
    assert status == 0 and "PROVED" in out, out + errors


def test_ranks_that_share_experts_train_as_one(minigrad, tmp_path):
    one, out = figures(minigrad, tmp_path, "--choices", "2", "--capacity", "0.75")
    assert 0 < one["dropped_share"] < 1
    assert f"choices without a place │ {one['dropped_share']:.1%} of the test text's" in out
    assert one["config"] | {"experts": 3, "choices": 2, "capacity": 0.75, "penalty": None} == one["config"]
    for ranks in (["--data", "2"], ["--data", "2", "--pipe", "2"]):
        mixture = ["--choices", "2", "--capacity", "0.75", "--expert-parallel", "--oversubscribe"]
        several, _ = figures(minigrad, tmp_path, *ranks, *mixture)
        assert several["config"]["strategy"] == "expert-parallel"
        for name in ("losses", "test_losses", "dropped_share"):
            assert several[name] == pytest.approx(one[name], rel=1e-11), (ranks, name)


def test_places_per_rank_are_another_mixture_and_said_to_be(minigrad):
    per_rank = ["--data", "2", "--expert-parallel", "--option", "capacity_per=rank"]
    status, out, err = minigrad("prove", *SMALL, *per_rank)
    assert status == 1 and not out and "strategy 'expert-parallel' does not train like one" in err
    assert minigrad("train", *FEW, *per_rank)[0] == 0


def test_no_place_and_room_for_all_are_said_in_the_report(minigrad, tmp_path):
    for capacity, share in (("0", 1.0), ("3", 0.0)):
        metrics, out = figures(minigrad, tmp_path, "--capacity", capacity)
        assert metrics["dropped_share"] == share and f"place │ {share:.1%} of the test text's" in out


def test_a_saved_mixture_and_its_checkpoint_are_those_of_one_rank(minigrad, tmp_path):
    metrics, _ = figures(minigrad, tmp_path, "--data", "2", "--expert-parallel", "--checkpoint", "c")
    (file,) = tmp_path.glob("runs/*/model.safetensors")
    notes = read_model(file).notes
    assert notes["experts"] == "3" and "choices" not in notes
    assert read_model(file).arrays["1.feed_forward.weight1"].shape == (3, 32, 8)
    status, out, _ = minigrad("test", str(file))
    assert status == 0 and f"{metrics['test_loss']:.3f} nats" in out
    assert minigrad("generate", str(file), "--symbols", "3")[0] == 0
    more, _ = figures(minigrad, tmp_path, "--epochs", "3", "--resume", "c")  # on one rank
    assert len(more["losses"]) == 9 and more["losses"][:6] == metrics["losses"]
    (other,) = (path for path in tmp_path.glob("runs/*/model.safetensors") if path != file)
    assert minigrad("test", str(other))[0] == 0


def test_a_captured_step_has_no_experts():
    settings = Training(net="transformer", experts=2, device="cupy", capture=True)
    with pytest.raises(ValueError, match="as many rows as chose them; leave --capture or --experts out"):
        settings.check_capture(traced=False)


TRANSFORMER = "train --net transformer"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"{TRANSFORMER} --data 2 --expert-parallel", "--expert-parallel shares experts; pass --experts 4"),
        (f"{TRANSFORMER} --strategy expert-parallel", "--expert-parallel shares experts; pass --experts 4"),
        (f"{TRANSFORMER} --experts 4 --choices 5", "can choose at most the 4 experts that there are, not 5"),
        (f"{TRANSFORMER} --experts 4 --capacity -0.5", "capacity is a number of at least 0, got -0.5"),
        (f"{TRANSFORMER} --experts 4 --penalty nan", "penalty is a number of at least 0, got nan"),
        (f"{TRANSFORMER} --choices 2", "--choices is for experts; pass --experts 4 too, or leave it out"),
        ("prove --net lenet --experts 4", "--experts is for nets that learn from text, and lenet takes"),
        (
            f"{TRANSFORMER} --experts 4 --data 2 --expert-parallel --strategy bucketed",
            "--expert-parallel is how --data trains together, and so is --strategy bucketed; leave one",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(minigrad, tmp_path, arguments, words):
    status, out, err = minigrad(*arguments.split())
    assert status == 1 and not out and err.count("\n") == 1 and words in err, err
    assert not (tmp_path / "runs").exists()
