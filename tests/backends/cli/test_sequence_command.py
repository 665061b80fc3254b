"""Laws of backends/cli/parallel.py, options.py and training.py: ranks that share tokens are proved and
trained as one, and what does not fit is refused in one line, or noted.
"""

import json

import pytest

from backends.cli.parallel import ParallelConfig, ranks_of
from backends.cli.training import Training
from minigrad.text import course

SIZES = ["--length", "8", "--width", "8", "--heads", "2", "--blocks", "1"]
SMALL = ["--net", "transformer", *SIZES, "--transport", "threads", "--text", "few.txt"]
FEW = [*SMALL, "--warm-up", "2", "--batch", "7", "--epochs", "2", "--dtype", "float64"]


@pytest.fixture(autouse=True)
def few_paragraphs(tmp_path):
    (tmp_path / "few.txt").write_bytes(course()[:180])


PROVED = {
    "--sequence 2": "tokens by ring on 2 ranks",
    "--sequence 3 --sequence-form ulysses": "tokens by ulysses on 3 ranks",
    "--data 2 --sequence 2 --model 2": "replicated, tokens by ring on 2 x 2 x 2 ranks, data x sequence x",
    "--pipe 2 --sequence 2": "a 1f1b pipeline, tokens by ring on 2 x 2 ranks, pipe x sequence",
    "--sequence 2 --model 2 --split-tokens": "tokens by ring on 2 x 2 ranks, sequence x model",
    "--data 2 --sequence 2 --strategy sharded --option stage=3": "sharded, tokens by ring",
    "--sequence 2 --allreduce ring": "tokens by ring",
    "--data 2 --sequence 2 --allreduce auto": "replicated, tokens by ring",
}


@pytest.mark.parametrize("ranks", PROVED)
def test_shared_tokens_are_proved(minigrad, ranks):
    status, out, errors = minigrad("prove", *SMALL, "--batch", "5", *ranks.split())
    assert status == 0 and "PROVED" in out, out + errors
    assert PROVED[ranks] in " ".join(out.split())


def test_ranks_that_share_tokens_train_as_one(minigrad, tmp_path):
    def figures(*arguments):
        status, out, errors = minigrad("train", *FEW, *arguments, "--json", "m.json")
        assert status == 0, errors
        return json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))

    one = figures("--lr-schedule", "constant")
    figures("--lr-schedule", "constant", "--sequence", "2", "--epochs", "1", "--checkpoint", "c")
    for ranks in (
        "--sequence 2",
        "--sequence 3 --sequence-form ulysses",
        "--resume c",
        "--resume c --data 2",
    ):
        several = figures("--lr-schedule", "constant", *ranks.split())
        for name in ("losses", "test_losses", "train_loss"):
            assert several[name] == pytest.approx(one[name], rel=1e-12), (ranks, name)


MISTAKES = [
    (
        ["prove", "--sequence", "2"],
        "--sequence splits rows of tokens, and lenet has none; choose --net transformer",
    ),
    (
        ["prove", *SMALL, "--sequence-form", "megatron"],
        "split over the ranks of --model; pass --model 2 --split-tokens",
    ),
    (
        ["prove", *SMALL, "--sequence", "2", "--sequence-form", "wheel"],
        "unknown sequence form 'wheel'; choose",
    ),
    (
        ["train", *SMALL, "--sequence-form", "ring"],
        "--sequence-form is for --sequence of 2 or more; leave it out",
    ),
    (
        ["train", *SMALL, "--data", "2", "--sequence", "2", "--strategy", "proportional"],
        "goes by how fast each rank is, so ranks that share a model would not agree on the samples",
    ),
    (
        ["train", *SMALL, "--pipe", "2", "--sequence", "2", "--schedule", "pipedream"],
        "so it has no sequence axis; leave --sequence out, or choose a timetable such as 1f1b",
    ),
    (["train", *SMALL, "--strategy", "sequence-parallel"], "pass --sequence N instead"),
    (["train", *SMALL, "--sequence", "2", "--capture"], "leave --capture out"),
    (["train", *SMALL, "--sequence", "0"], "Invalid value for '--sequence'"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_mistake_ends_in_one_line(minigrad, arguments, message, tmp_path):
    status, out, err = minigrad(*arguments)
    assert status != 0 and not out
    assert message in " ".join(err.split())
    assert not (tmp_path / "runs").exists()


def notes(sequence, form, **sizes):
    parallel = ParallelConfig("serial", sequence=sequence, sequence_form=form)
    return " ".join(Training(net="transformer", parallel=parallel, **sizes).notes())


def test_ranks_without_work_are_noted():
    words = "8 ranks share rows of 4 tokens, so 4 of them have none; --length 8 gives each one"
    assert words in notes(8, "ring", length=4) and words in notes(8, "ulysses", length=4)
    assert "4 of 8 ranks have no head; --sequence-form ring keeps all busy" in notes(8, "ulysses")
    assert "have no head" not in notes(8, "ring") + notes(4, "ulysses")


def test_a_trace_names_the_ranks_of_each_pipeline():
    parallel = ParallelConfig("serial", data=2, pipe=2, sequence=2, model=2, schedule="1f1b")
    pipelines = parallel.trace_notes()["pipeline"]["ranks"]
    assert pipelines == [[rank, rank + 4] for rank in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert ranks_of(data=2, pipe=1, sequence=3, model=1) == "2 x 3 ranks, data x sequence"
