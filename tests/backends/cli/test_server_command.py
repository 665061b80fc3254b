"""Laws of backends/cli/strategy_flags.py and minigrad/declaration.py: the command's flags for parameter
servers and for compressed gradients. Ranks are threads here.
"""

import json
import warnings
from inspect import signature

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel.compression import Compressed
from backends.launch import launch
from backends.registry import declared_flags, load_strategy, strategy_names
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.declaration import settings_of
from tests.backends.data_parallel.compression.compression_laws import COMPRESSORS
from tests.bugs.mutant import mutant

TRAIN = ["train", "--net", "sigmoid", "--epochs", "1", "--batch", "500", "--transport", "threads"]
SERVER = ["--strategy", "server"]
COMPRESSED = ["--strategy", "compressed"]


@pytest.mark.parametrize(
    ("strategy", "flags"),
    [
        ("server", {"servers": 2}),
        ("server", {"servers": 2, "staleness": 1}),
        ("server", {"staleness": 0}),
        ("compressed", {"compress": "dgc", "density": 0.05}),
        ("compressed", {"density": 0.25}),
        ("compressed", {"compress": "one-bit"}),
    ],
)
def test_a_flag_is_its_option(minigrad, tmp_path, strategy, flags):
    """Both ways to say it have the same run written down."""
    common = [*TRAIN, "--data", "4", "--strategy", strategy]
    flagged = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    spelled = [text for name, value in flags.items() for text in ("--option", f"{name}={value}")]
    for file, words in (("flags.json", flagged), ("options.json", spelled)):
        status, _, err = minigrad(*common, *words, "--json", file)
        assert status == 0, err
    one, two = (
        json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("flags.json", "options.json")
    )
    assert one["config"] == two["config"] and one["config"]["options"] == flags
    if strategy == "compressed" or flags.get("staleness") == 0:  # others go as their messages come
        assert one["losses"] == two["losses"]


def test_flags_and_other_options_go_together(minigrad, tmp_path):
    words = ["--compress", "dgc", "--option", "masking=False", "--option", "micro_batches=2"]
    assert minigrad(*TRAIN, "--data", "2", *COMPRESSED, *words, "--json", "m.json")[0] == 0
    options = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["config"]["options"]
    assert options == {"compress": "dgc", "masking": False, "micro_batches": 2}


def test_prove_takes_the_compressor_that_loses_nothing(minigrad):
    common = ["prove", "--data", "3", "--net", "mlp", "--transport", "threads", *COMPRESSED, "--compress"]
    assert minigrad(*common, "identity")[0] == 0
    assert "does not train like one serial machine" in minigrad(*common, "top-k")[2]


def test_every_flag_is_an_option_of_the_strategies_that_declare_it():
    """Compressors take what the strategy hands on; a function is an option by its name."""
    for name, owners in declared_flags().items():
        for strategy, flag in owners.items():
            axis = "data" if strategy in strategy_names() else "pipe"
            made = load_strategy(strategy, axis)
            handed_on = any(name in settings_of(kind.__init__) for kind in COMPRESSORS.values())
            assert name in signature(made).parameters or handed_on
            assert (flag.read is None) == (name in settings_of(made) or handed_on)


MISTAKES = [
    (
        ["--data", "2", "--servers", "1"],
        "--servers is for --strategy server, and the strategy here is replic",
    ),
    (
        ["--data", "2", *COMPRESSED, "--staleness", "1"],
        "--staleness is for --strategy server, and the strategy here is compressed; choose that one, or",
    ),
    (
        ["--data", "2", *SERVER, "--compress", "dgc"],
        "--compress is for --strategy compressed, and the strategy",
    ),
    (
        ["--data", "2", "--density", "0.1"],
        "--density is for --strategy compressed, and the strategy here is rep",
    ),
    (
        ["--data", "3", *SERVER, "--servers", "2", "--option", "servers=1"],
        "--servers 2 and --option servers=1 set the same; leave one of them out",
    ),
    (
        ["--data", "2", *COMPRESSED, "--compress", "dgc", "--option", "compress=dgc"],
        "--compress dgc and --option compress=dgc set the same; leave one of them out",
    ),
    (
        ["--data", "4", *SERVER, "--servers", "4"],
        "of 4 ranks 1 to 3 can be servers, got 4; take fewer servers or start more ranks",
    ),
    (["--data", "4", *SERVER, "--option", "servers=0"], "of 4 ranks 1 to 3 can be servers, got 0"),
    (["--data", "1", *SERVER], "--strategy server needs a server and a worker, got 1 rank; pass --data 2 or"),
    (["--data", "2", *SERVER, "--staleness", "-1"], "staleness must be at least 0 steps, got -1"),
    (
        ["--data", "2", *SERVER, "--staleness", "1", "--option", "softsync=1"],
        "staleness=1 and softsync=1 choose different consistency models; pass one",
    ),
    (
        ["--data", "2", *COMPRESSED, "--compress", "gzip"],
        f"unknown compressor 'gzip'; choose one of {', '.join(COMPRESSORS)}",
    ),
    *(
        (
            ["--data", "2", *COMPRESSED, *compress, "--density", density],
            f"density is the share of entries that are sent, above 0 and at most 1, got {density}",
        )
        for compress in ([], ["--compress", "dgc"], ["--compress", "random-k"])
        for density in ("0.0", "-0.1", "1.5", "nan")
    ),
    (
        ["--data", "2", *COMPRESSED, "--compress", "one-bit", "--density", "0.1"],
        "strategy 'compressed, compress=one-bit' has no option 'density'",
    ),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=lambda x: " ".join(x) if type(x) is list else "")
def test_a_mistake_ends_in_one_line_before_any_rank_starts(minigrad, monkeypatch, tmp_path, words, message):
    monkeypatch.setattr(launch, "run_ranks", lambda *_: pytest.fail("ranks were started"))
    status, _, err = minigrad(*TRAIN, *words)
    assert status == 1 and err.count("\n") == 1
    assert err.startswith(f"minigrad: {message}")
    assert not (tmp_path / "runs").exists()


def test_what_is_not_a_number_is_refused_as_the_command_reads_it(minigrad):
    for flag in ("--servers", "--staleness", "--density"):
        status, _, err = minigrad(*TRAIN, "--data", "2", flag, "many")
        assert status == 2 and flag in err and err.count("\n") == 1


def place_and_train(compress, *layers, ranks=3, steps=3, strategy=Compressed):
    """A few steps of all ranks; what they warned of."""

    def work(comm):
        backend = strategy(comm, compress=compress)
        rng = np.random.default_rng(0)
        model = backend.place(nn.Sequential(*(make(rng) for make in layers)))
        optimizer = optim.SGD(model.parameters(), 0.1)
        batch = Batch(np.ones((6, 4)), np.zeros(6, int))
        for _ in range(steps):
            optimizer.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)

    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        run_ranks(ranks, work)
    return [str(warning.message) for warning in messages]


def linear(rng):
    return nn.Linear(4, 4, rng=rng)


def plain(rng):
    return nn.Linear(4, 4, rng=rng, bias=False)


def test_what_is_sent_whole_is_said_once():
    assert place_and_train("power-sgd", linear, linear) == [
        "compress=power-sgd sends 2 of 4 parameters as they are, 8 of 40 numbers; no matrices: 0.bias, 1.bias"
    ]


@pytest.mark.parametrize(
    "change", [("if whole and self.rank == 0:", "if whole:"), ("if whole and self.rank == 0:", "if False:")]
)
def test_the_law_catches_what_is_said_by_all_and_by_none(change):
    broken = mutant("backends.data_parallel.compression.compressed", change).Compressed
    assert len(place_and_train("power-sgd", linear, strategy=broken)) != 1


@pytest.mark.parametrize("compress", [name for name in COMPRESSORS if name != "power-sgd"])
def test_what_makes_all_smaller_says_nothing(compress):
    assert not place_and_train(compress, linear, steps=1)


def test_where_all_are_matrices_nothing_is_said():
    assert not place_and_train("power-sgd", plain)
