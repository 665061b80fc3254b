"""Laws of backends/registry.py and minigrad/lookup.py: a package of someone else adds a strategy, a
schedule, a compressor and an all-reduce by entry points.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from backends import laws
from backends.cli import main, options, proof, train
from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.grid import Grid
from backends.launch.launch import mpi_problem
from backends.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.stack import Stack
from minigrad.mnist import load
from minigrad.models import DIGIT, find_net
from minigrad.serial import Serial
from tests.backends.lanes import thorough

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "example_package"
THREADS = ["--transport", "threads"]
PROVED = [
    ["--data", "3", "--strategy", "grouped", "--groups", "3"],
    ["--data", "3", "--allreduce", "star"],
    ["--data", "3", "--strategy", "compressed", "--compress", "reversed"],
    ["--pipe", "2", "--schedule", "last-in-first-out", "--micro", "3"],
]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """A folder with the package as pip installs it: the module, and the entry points that it declares.

    It is installed for this process and for those that it starts; the command reads its flags again.
    """
    folder = tmp_path_factory.mktemp("site")
    (folder / "minigrad_example.py").write_bytes((PACKAGE / "minigrad_example.py").read_bytes())
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"minigrad_example-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    lines = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", path)
        patch.setenv("COLUMNS", "200")
        read_flags()
        yield
    read_flags()
    sys.modules.pop("minigrad_example", None)


def read_flags():
    for module in (options, train, proof, main):
        importlib.reload(module)


@pytest.mark.parametrize("flags", PROVED, ids=" ".join)
def test_each_is_proved(minigrad, flags):
    status, out, err = minigrad("prove", "--net", "mlp", *THREADS, *flags)
    assert status == 0 and "PROVED" in out, err


@pytest.mark.usefixtures("few_digits")
def test_each_trains_from_the_command_line_as_one_machine(minigrad, tmp_path):
    common = ["--net", "mlp", "--batch", "100", "--epochs", "1", "--dtype", "float64", "--json", "m.json"]

    def losses(*flags):
        status, out, err = minigrad("train", *common, *THREADS, *flags)
        assert status == 0, err
        figures = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
        if "grouped" in flags:
            assert figures["gradient reductions"] == 3 * 5 and figures["config"]["options"] == {"groups": 3}
            assert re.search(r"gradient reductions\W+15\b", out)
        return figures["losses"]

    one = losses()
    for flags in PROVED:
        assert losses(*flags) == pytest.approx(one, rel=1e-9)


FLAGS = ("--allreduce", "--compress")


def test_the_flag_is_in_the_help_of_both_commands(minigrad):
    for command in ("train", "prove"):
        out = minigrad(command, "--help")[1]
        assert "Options of grouped" in out and "--groups" in out and "GROUPS" in out
        assert "grouped" in out.partition("--strategy")[2] and "last-in-first-out" in out
        words = {flag: out.partition(flag)[2].replace("│", " ").replace(",", " ").split() for flag in FLAGS}
        assert "star" in words["--allreduce"] and "reversed" in words["--compress"]


MISTAKES = [
    (
        ["--groups", "2"],
        "--groups is for --strategy grouped, and the strategy here is replicated; choose that",
    ),
    (["--strategy", "grouped", "--groups", "0"], "--groups must be at least 1, got 0"),
    (
        ["--strategy", "grouped", "--groups", "2", "--option", "groups=3"],
        "--groups 2 and --option groups=3 set the same; leave one of them out",
    ),
    (
        ["--strategy", "grouped", "--servers", "1"],
        "--servers is for --strategy server, and the strategy here",
    ),
    (["--strategy", "grouped", "--allreduce", "star"], "and the strategy here is grouped; choose that one"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_a_flag_that_does_not_fit_is_refused_in_one_line(minigrad, flags, message):
    status, out, err = minigrad("train", "--data", "2", *THREADS, *flags)
    assert status == 1 and not out and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    ("transport", "shape"), [("threads", "2 x 2 x 2"), ("mpi", "2 x 2"), thorough("mpi", "2 x 2 x 2")]
)
def test_it_stands_in_a_stack(tmp_path, transport, shape):
    """In processes that are started when the package is there."""
    if transport == "mpi" and mpi_problem():
        pytest.skip(str(mpi_problem()))
    axes = zip(("--data", "--pipe", "--model"), shape.split(" x "), strict=False)
    grid = [*(word for axis in axes for word in axis), "--strategy", "grouped", "--transport", transport]
    command = [sys.executable, "-m", "backends", "prove", "--net", "mlp", *grid, "--json", "proof.json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120)
    assert ended.returncode == 0 and f"grouped 1f1b pipelines on {shape} ranks" in ended.stdout, ended.stderr
    assert json.loads((tmp_path / "proof.json").read_text(encoding="utf-8"))["max_rel_error"] <= 2e-15


def test_it_stands_in_a_traced_stack():
    from minigrad_example import GroupedDataParallel  # pyright: ignore

    net = find_net("mlp")
    batch = net.prepare(load("mnist5k").train[:13], "float64")

    def stack(comm):
        grid = Grid(comm, data=2, pipe=2, model=2)
        sample = {"sample": DIGIT, "batch_size": 6}
        pipeline = Pipeline(grid.pipe, micro_batches=4, **sample)
        return Stack(GroupedDataParallel(grid.data), pipeline, ModelParallel(grid.model, **sample))

    def compare(comm):
        traced = Traced(comm)
        return laws.differences_from_serial(
            stack, traced, net.build, net.loss, [batch], dtype=np.float64, serial=Serial(4)
        )

    result = run_ranks(8, partial(compare))[0]
    assert max(difference.relative for difference in result) <= 2e-15
