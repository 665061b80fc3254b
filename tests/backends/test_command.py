"""The command line: what it writes, and what it says to a mistake. Ranks are threads here."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from backends import cli, launch, proof, training
from backends.data_parallel import DataParallel
from backends.strategies import find_strategy, strategy_names


@pytest.fixture
def minigrad(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder: (exit status, output, errors)."""
    monkeypatch.chdir(tmp_path)
    for name in (*launch.RANK_VARIABLES, *launch.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigrad", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


def test_train_writes_figures_curves_and_json(minigrad, tmp_path):
    status, out, _ = minigrad("train", "--net", "mlp", "--epochs", "2", "--batch", "250", "--json", "m.json")
    assert status == 0 and "test accuracy" in out and "samples per second" in out
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert len(metrics["losses"]) == 40 and metrics["losses"][-1] < metrics["losses"][0]
    assert 0.5 < metrics["test_accuracy"] <= 1 and metrics["ranks"] == 1
    assert metrics["seconds"] > 0 and metrics["samples_per_second"] == pytest.approx(
        10_000 / metrics["seconds"]
    )
    assert metrics["config"]["net"] == "mlp" and metrics["config"]["batch"] == 250
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert {p.name for p in folder.iterdir()} == {"metrics.json", "curves.png"}


def test_thread_ranks_train_as_one(minigrad, tmp_path):
    for n in ("1", "3"):
        common = ["train", "--net", "sigmoid", "--batch", "all", "--epochs", "5", "--dtype", "float64"]
        assert minigrad(*common, "--data", n, "--transport", "threads", "--json", f"{n}.json")[0] == 0
    one, three = (json.loads((tmp_path / f"{n}.json").read_text()) for n in "13")
    assert three["losses"] == pytest.approx(one["losses"], rel=1e-9)
    assert three["ranks"] == 3 and three["losses"][-1] < three["losses"][0]


@pytest.mark.parametrize("net", ["mlp", "sigmoid", "lenet"])
def test_prove_passes_and_names_every_parameter(minigrad, tmp_path, net):
    arguments = ["prove", "--data", "3", "--transport", "threads", "--net", net, "--json", "p.json"]
    status, out, _ = minigrad(*arguments)
    found = json.loads((tmp_path / "p.json").read_text())
    assert status == 0 and found["passed"] and "PROVED" in out
    assert found["max_rel_error"] <= 1e-12
    names = [p["name"] for p in found["parameters"]]
    assert all(name in out for name in names) and len(set(names)) == len(names)
    assert set(found["parameters"][0]) >= {"name", "shape", "max_abs_error", "worst_rank"}


def test_prove_exits_1_when_the_gradients_differ(minigrad, tmp_path, monkeypatch):
    class Unweighted(DataParallel):
        def run(self, model, batch, loss_fn, weight, on_grad):
            return super().run(model, batch, loss_fn, 1 / self.size, on_grad)

    monkeypatch.setattr(proof, "find_strategy", lambda name: Unweighted)
    status, out, _ = minigrad("prove", "--data", "3", "--transport", "threads", "--json", "p.json")
    assert status == 1 and "NOT EQUAL" in out
    assert not json.loads((tmp_path / "p.json").read_text())["passed"]


def test_prove_in_single_precision(minigrad):
    assert minigrad("prove", "--data", "2", "--transport", "threads", "--dtype", "float32")[0] == 0


def test_doctor_names_what_it_found(minigrad):
    status, out, _ = minigrad("doctor")
    assert status == 0
    for word in ("Python", "NumPy", "BLAS", "mpiexec", "cores", "GPU", "mnist5k", np.__version__):
        assert word in out


MISTAKES = [
    (["train", "--net", "vg"], "unknown net 'vg'; choose one of mlp, lenet, vgg, sigmoid"),
    (["train", "--dataset", "cifar"], "unknown --dataset 'cifar'; choose one of mnist5k, mnist"),
    (["train", "--dtype", "half"], "unknown --dtype 'half'; choose one of float32, float64"),
    (["train", "--transport", "ucx"], "unknown transport 'ucx'; choose one of threads, mpi"),
    (["train", "--strategy", "magic"], "unknown strategy 'magic'; choose one of replicated, serial"),
    (["train", "--device", "tpu"], "unknown --device 'tpu'; choose one of numpy, cupy"),
    (["train", "--batch", "some"], "--batch must be a number of samples of at least 1, or all; got 'some'"),
    (["train", "--batch", "0"], "--batch must be a number of samples of at least 1, or all; got '0'"),
    (["train", "--lr", "-1"], "--lr must be a positive number, got -1.0"),
    (["train", "--lr", "nan"], "--lr must be a positive number, got nan"),
    (["train", "--schedule", "steep"], "unknown schedule 'steep'; choose one of constant, cosine"),
    (["train", "--data", "0"], "--data must be at least 1, got 0"),
    (["train", "--seed", "-3"], "--seed must be 0 or more, got -3"),
    (
        ["train", "--json", "no/where.json"],
        "cannot write no/where.json: its folder must exist and be writable",
    ),
    (["prove", "--batch", "6000", "--transport", "threads"], "--batch must be 1 to 5000, got 6000"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_mistake_ends_in_one_line(minigrad, arguments, message, tmp_path):
    status, out, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1
    assert err.startswith("minigrad: ") and message in err
    assert not (tmp_path / "runs").exists()


def test_a_loss_that_is_not_finite_stops_and_names_the_step(minigrad, tmp_path):
    minigrad("train", "--net", "mlp", "--epochs", "1", "--batch", "500", "--json", "kept.json")
    kept = (tmp_path / "kept.json").read_bytes()
    arguments = ["train", "--net", "mlp", "--lr", "1e6", "--epochs", "1", "--json", "kept.json"]
    status, _, err = minigrad(*arguments)
    assert status == 1 and err.count("\n") == 1
    assert "the loss is" in err and "at step" in err and "try a smaller --lr" in err
    assert (tmp_path / "kept.json").read_bytes() == kept  # the finished run's file is whole


def test_no_gpu_is_said_in_one_line(minigrad, monkeypatch):
    monkeypatch.setattr(cli, "cuda_problem", lambda: "CuPy finds no CUDA device; use --device numpy")
    assert minigrad("train", "--device", "cupy")[2] == (
        "minigrad: --device cupy: CuPy finds no CUDA device; use --device numpy\n"
    )


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
    assert status == 1 and "mpi4py is not installed; pip install 'minigrad-course[mpi]'" in err


def test_without_mpiexec_threads_still_work(minigrad, monkeypatch):
    monkeypatch.setattr(launch, "find_mpiexec", lambda: None)
    assert minigrad("prove", "--data", "2", "--net", "mlp")[0] == 0
    status, _, err = minigrad("prove", "--data", "2", "--transport", "mpi")
    assert status == 1 and ("there is no mpiexec beside" in err or "mpi4py is not installed" in err)


def test_a_wrong_number_of_ranks_is_refused(minigrad, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    assert "--data 3 needs 3 ranks, mpiexec started 2" in minigrad("train", "--data", "3")[2]


def test_damaged_data_is_said_in_one_line(minigrad, monkeypatch, tmp_path):
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).write_bytes(b"not IDX")
    monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path))
    status, _, err = minigrad("train", "--dataset", "mnist")
    assert status == 1 and "train-images-idx3-ubyte" in err and err.count("\n") == 1


def test_two_runs_of_one_second_get_folders_of_their_own(tmp_path):
    folders = {training.new_run_folder("mlp", tmp_path) for _ in range(3)}
    assert len(folders) == 3


def test_a_json_file_is_whole_or_untouched(tmp_path):
    file = tmp_path / "m.json"
    training.write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        training.write_json(file, {"a": object()})
    assert json.loads(file.read_text()) == {"a": 1}


def test_strategies_are_found_by_entry_point():
    assert {"serial", "replicated"} <= set(strategy_names())
    assert find_strategy("replicated") is DataParallel


def test_the_ranks_share_the_cores():
    threads = launch.environment(2)["OPENBLAS_NUM_THREADS"]
    assert int(threads) == int(os.environ.get("OPENBLAS_NUM_THREADS", max(1, launch.cores() // 2)))


def test_importing_the_command_needs_no_mpi4py():
    code = "import sys, backends.cli; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
