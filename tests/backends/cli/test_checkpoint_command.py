"""Laws of backends/cli/checkpointing.py, lengths.py and checkpoint_command.py: ``train --checkpoint`` and
``--resume`` on threads, ``checkpoint show`` and ``verify``, and wrong use.
"""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from backends.checkpoint import Checkpoints
from backends.checkpoint.checkpoints import sealed, unsealed
from backends.comm import run_ranks
from minigrad.lr_schedules import cosine
from minigrad.metrics_log import read_metrics
from tests.backends.checkpoint.commands import LAYOUTS, results, resumes_with_the_same_bits
from tests.backends.lanes import thorough

TRAIN = ["train", "--net", "sigmoid", "--batch", "1000", "--epochs", "2", "--transport", "threads"]


@pytest.mark.parametrize(
    "layout", [layout if i % 2 == 0 else thorough(layout) for i, layout in enumerate(LAYOUTS)], ids=" ".join
)
def test_a_resumed_training_ends_with_the_same_bits(minigrad, tmp_path, layout):
    resumes_with_the_same_bits(minigrad, tmp_path, layout, "--transport", "threads")


def test_a_run_that_chose_its_all_reduce_resumes_with_the_same_bits(minigrad, tmp_path):
    """It does not measure again: other links could lead to another order of the sums."""
    layout = ["--data", "3", "--strategy", "bucketed", "--allreduce", "auto", "--option", "bucket_bytes=auto"]
    resumes_with_the_same_bits(minigrad, tmp_path, layout, "--transport", "threads")
    whole, resumed = (
        json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("whole.json", "resumed.json")
    )
    assert (
        resumed["config"]["links"] == whole["config"]["links"] and resumed["allreduce"] == whole["allreduce"]
    )


@pytest.mark.parametrize(
    "layout",
    [["backup-workers", "--option", "backups=1"], ["server"], ["server", "--staleness", "2"]],
    ids=" ".join,
)
def test_nobody_waits_for_a_late_rank_between_checkpoints(minigrad, layout):
    """Whoever did would wait for ever, as late ranks wait for answers."""
    train = [*TRAIN, "--data", "4", "--strategy", *layout, "--checkpoint", "kept", "--every", "3"]
    status, _, errors = minigrad(*train)
    assert status == 0, errors
    status, out, errors = minigrad(*train, "--resume", "kept")
    assert status == 0 and "resumed from kept/step-00000010, at step 10" in out, errors


def test_other_ranks_go_on(minigrad, tmp_path):
    """In another layout sums have another order: the accuracy is the same, but for an image or two."""
    accuracies = {}
    for layout in (["--data", "2"], ["--resume", "kept", "--pipe", "3"], ["--resume", "kept"]):
        status, out, errors = minigrad(*TRAIN, "--checkpoint", "kept", "--every", "3", *layout)
        assert status == 0, errors
        accuracies[tuple(layout)] = out.split("test accuracy")[1].split("%")[0].strip(" │")
    first, *others = map(float, accuracies.values())
    assert all(abs(other - first) <= 0.21 for other in others), accuracies


def test_a_checkpoint_is_safetensors_files(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--data", "2", "--checkpoint", "kept", "--every", "5")[0] == 0
    newest = sorted((tmp_path / "kept").iterdir())[-1]
    arrays = {name: a for file in newest.glob("*.safetensors") for name, a in load_file(file).items()}
    (model,) = tmp_path.glob("runs/*/model.safetensors")
    assert newest.name == "step-00000010"
    for name, array in load_file(model).items():  # the last step is one of those that are saved
        assert arrays[f"model/{name}"].tobytes() == array.tobytes(), name


def test_damage_is_named_and_the_older_one_taken(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "4")[0] == 0
    status, out, _ = minigrad("checkpoint", "verify", "kept")
    assert (status, out) == (0, "whole: kept/step-00000010\nwhole: kept/step-00000008\n")
    status, out, _ = minigrad("checkpoint", "show", "kept")
    assert status == 0 and "step-00000010" in out and "model/" in out
    file = tmp_path / "kept/step-00000010/rank-0.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    status, out, _ = minigrad("checkpoint", "verify", "kept")
    assert status == 1 and out.startswith("damaged: kept/step-00000010/rank-0.safetensors is not what was")
    status, out, _ = minigrad(*TRAIN, "--resume", "kept", "--checkpoint", "new")
    assert status == 0 and "skipped a checkpoint" in out and "at step 8" in out
    for file in tmp_path.glob("kept/*/rank-0.safetensors"):
        file.write_bytes(b"")
    status, out, err = minigrad("checkpoint", "show", "kept")
    assert status == 1 and out.count("damaged: ") == 2 and "no checkpoint in kept is whole" in err, out + err


@pytest.mark.parametrize("ranks", [["--data", "2"], []], ids=" ".join)
def test_why_no_checkpoint_can_be_used_is_in_the_error(minigrad, tmp_path, ranks):
    """And nothing there is changed, nor removed."""
    assert minigrad(*TRAIN, *ranks, "--checkpoint", "kept", "--every", "4")[0] == 0
    first, second = sorted((tmp_path / "kept").iterdir())
    (first / "manifest.json").write_text("{}", encoding="utf-8")
    reseal(second, format=3)
    status, _, errors = minigrad(*TRAIN, *ranks, "--resume", "kept")
    assert status == 1 and errors == (
        "minigrad: no checkpoint in kept can be used: kept/step-00000010 has format 3, and this version "
        "reads 2; kept/step-00000008/manifest.json is not what was written: its checksum differs; nothing in "
        "the folder was changed, and a training in another folder begins anew\n"
    )
    assert sorted((tmp_path / "kept").iterdir()) == [first, second]


def reseal(generation, **changed):
    """Write the manifest with other values and the checksum that belongs to them; None removes one."""
    body = unsealed(json.loads((generation / "manifest.json").read_bytes())) | changed
    content = sealed({name: value for name, value in body.items() if value is not None})
    (generation / "manifest.json").write_bytes(content)


def test_a_manifest_that_lacks_something_is_refused_in_one_line(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "4")[0] == 0
    shutil.rmtree(tmp_path / "kept/step-00000008")
    generation = tmp_path / "kept/step-00000010"
    facts = json.loads((generation / "manifest.json").read_bytes())["facts"]
    names = ["config", "history", "of each rank", "optimizer", "step_number", "test_accuracies", "chosen"]
    assert set(names) < set(facts)
    for name in names:
        reseal(generation, facts={n: value for n, value in facts.items() if n != name})
        for command in (["checkpoint", "show", "kept"], [*TRAIN, "--resume", "kept"]):
            status, _, errors = minigrad(*command)
            assert errors.count("\n") == status and "Traceback" not in errors, (name, errors)
    for file in ({}, {"bytes": 3, "crc32": 4}, {"bytes": 3, "crc32": 4, "arrays": {"a": {}}}):
        reseal(generation, files={"rank-0.safetensors": file})
        for command in (["checkpoint", "show", "kept"], [*TRAIN, "--resume", "kept"]):
            status, out, errors = minigrad(*command)
            assert "is no manifest: it needs a step" in out + errors, (file, out, errors)


def test_the_place_of_a_checkpoint_is_in_its_manifest(minigrad, tmp_path):
    """Whatever somebody has renamed."""
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "4")[0] == 0
    (tmp_path / "kept/step-00000008").rename(tmp_path / "kept/step-00000090")
    status, out, errors = minigrad(*TRAIN, "--resume", "kept", "--checkpoint", "new")
    assert status == 0 and "resumed from kept/step-00000010, at step 10" in out, errors
    status, _, errors = minigrad(*TRAIN, "--checkpoint", "kept")
    assert status == 1 and "the newest step-00000010; pass --resume" in errors


def test_resume_goes_on_writing(minigrad, tmp_path):
    """Into the same folder, as often as it is told."""
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "4")[0] == 0
    shutil.rmtree(tmp_path / "kept/step-00000010")
    status, _, errors = minigrad(*TRAIN, "--resume", "kept", "--every", "1", "--keep", "3")
    assert status == 0, errors
    assert [g.name[-2:] for g in sorted((tmp_path / "kept").iterdir())] == ["08", "09", "10"]


def test_a_training_goes_on_after_its_end(minigrad, tmp_path):
    """With a constant rate it is the longer training, bit for bit; with another one the rate is said."""
    train = [*TRAIN, "--lr-schedule", "constant"]
    assert minigrad(*train, "--epochs", "3", "--checkpoint", "whole", "--json", "whole.json")[0] == 0
    whole, weights = results(tmp_path, "whole.json")
    shutil.rmtree(tmp_path / "runs")
    assert minigrad(*train, "--checkpoint", "kept")[0] == 0
    shutil.rmtree(tmp_path / "runs")
    status, out, errors = minigrad(*train, "--resume", "kept", "--epochs", "3", "--json", "rest.json")
    assert status == 0 and "resumed from kept/step-00000010, at step 10" in out, errors
    rest, others = results(tmp_path, "rest.json")
    for name in ("losses", "test_accuracies", "test_accuracy", "train_accuracy"):
        assert rest[name] == whole[name], name
    assert others == weights
    status, out, errors = minigrad(*train, "--resume", "kept", "--epochs", "3")
    assert status == 0 and "note: all 15 steps were taken before; a larger --epochs goes on" in out, errors
    status, _, errors = minigrad(*train, "--resume", "kept", "--epochs", "2")
    assert status == 1 and "holds 15 steps, and --epochs 2 has 10; pass --epochs 3 or more" in errors


def test_a_longer_training_says_its_rate(minigrad, tmp_path):
    """The log has the rate of each step as it was."""
    assert minigrad(*TRAIN, "--checkpoint", "kept")[0] == 0
    status, out, errors = minigrad(*TRAIN, "--resume", "kept", "--epochs", "4")
    words = " ".join(out.split())
    assert status == 0, errors
    assert "the training has 20 steps, not 10; by the schedule cosine over all of them" in words, out
    log = max((read_metrics(file) for file in tmp_path.glob("runs/*/metrics.jsonl")), key=len)
    rates = [record["lr"] for record in log if "lr" in record]
    lr = rates[0]
    expected = [cosine(lr, 10 if step < 10 else 20)(step) for step in range(20)]
    assert rates == pytest.approx(expected)


MISTAKES = [
    (["--resume", "nowhere"], "there is no checkpoint in nowhere; leave --resume out"),
    (["--checkpoint", "kept"], "kept holds checkpoints already, the newest step-00000010; pass --resume"),
    (
        ["--resume", "kept", "--seed", "1"],
        "comes from a training with --seed 0, and this is one with --seed 1;",
    ),
    (
        ["--resume", "kept", "--lr", "0.5"],
        "comes from a training without --lr, and this is one with --lr 0.5;",
    ),
    (
        ["--checkpoint", "new", "--data", "3", "--strategy", "server", "--option", "survive=True"],
        "ranks of ParameterServer may leave here, and a checkpoint is written by all ranks;",
    ),
    (["--checkpoint", "new", "--data", "2", "--strategy", "elastic"], "ranks of Elastic may leave"),
    (["--checkpoint", "new", "--keep", "0"], "'--keep'"),
    (["--resume", "own"], "own/step-00000003 was written by your own program, not by minigrad train; resume"),
    (["--resume", "own/file"], "there is no checkpoint in own/file; leave --resume out"),
    (["--checkpoint", "own/file"], "cannot write into own/file: File exists"),
    (["--restarts", "2"], "--restarts goes on from a checkpoint; add --checkpoint DIR, or leave it out"),
    (["--checkpoint", "new", "--restarts", "-1"], "'--restarts'"),
]


def test_a_mistake_ends_in_one_line(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "5")[0] == 0
    run_ranks(1, lambda comm: write_own(comm, tmp_path / "own"))
    for arguments, words in MISTAKES:
        status, _, errors = minigrad(*TRAIN, *arguments)
        assert status in (1, 2) and words in errors and errors.count("\n") == 1, (arguments, errors)
        assert not (tmp_path / "new").exists(), arguments


def write_own(comm, folder):
    """A checkpoint by a program that is not minigrad train, and a file beside it."""
    checkpoints = Checkpoints(folder, comm)
    checkpoints.write(3, {"a": np.ones(3)}, {})
    checkpoints.wait()
    (folder / "file").touch()


def test_a_program_s_own_checkpoint_is_shown(minigrad, tmp_path):
    run_ranks(2, lambda comm: write_own(comm, tmp_path / "own"))
    assert "(see minigrad checkpoint show --help)" in minigrad("checkpoint", "show")[2]
    status, out, errors = minigrad("checkpoint", "show", "own")
    assert status == 0 and "step-00000003 │ 3    │      │ 2 ranks " in out, out + errors


def test_two_paths_of_one_folder_are_the_same(minigrad, tmp_path):
    assert minigrad(*TRAIN, "--checkpoint", "kept", "--every", "5")[0] == 0
    status, out, errors = minigrad(*TRAIN, "--checkpoint", "kept", "--resume", str(tmp_path / "kept"))
    assert status == 0 and "at step 10" in out, errors


def test_a_disk_that_is_full_does_not_end_a_training(minigrad, tmp_path, monkeypatch):
    monkeypatch.setattr("backends.checkpoint.disk.Disk.write", full)
    status, out, errors = minigrad(*TRAIN, "--checkpoint", "kept", "--every", "5")
    assert status == 0, errors
    words = " ".join(out.split())
    assert (
        "the checkpoint of step 5 cannot be written to kept: No space left on device; the training" in words
    )
    assert not list((tmp_path / "kept").glob("step-*"))


def full(disk, file, content) -> None:
    """The write of a disk that is full."""
    raise OSError(28, "No space left on device")
