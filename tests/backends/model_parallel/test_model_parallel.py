"""Laws of backends/model_parallel/model_parallel.py and plan.py: any model whose layers a plan names
trains like serial; the default plan moves least.
"""

import json
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel, SplitLayers
from backends.model_parallel.plan import choose, default_plan, numbers, read_plan, show
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.models import DIGIT, find_net
from tests.backends.model_parallel.split_models import sent
from tests.backends.model_parallel.transformer_laws import Net as TransformerNet


class Block(nn.Module):
    """A residual layer with dropout."""

    def __init__(self, width, rng):
        self.wide, self.narrow = nn.Linear(width, 7, rng=rng), nn.Linear(7, width, rng=rng)
        self.drop = nn.Dropout(0.3, rng=rng)

    def forward(self, x):
        return x + self.drop(self.narrow(ops.tanh(self.wide(x))))


class Net(nn.Module):
    """Not a Sequential: one inside, a list of layers, a block, a tied, an unused and a frozen parameter."""

    def __init__(self, rng):
        self.front = nn.Sequential(nn.Linear(4, 6, rng=rng), nn.Tanh(), nn.Linear(6, 5, rng=rng))
        self.blocks = [Block(5, rng), Block(5, rng)]
        self.tied, self.unused = nn.Linear(5, 5, rng=rng), nn.Linear(5, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)
        self.blocks[0].wide.weight.requires_grad = False

    def forward(self, x):
        for layer in (self.front, *self.blocks, self.tied, self.tied):
            x = ops.tanh(layer(x))
        return self.last(x)


def nested(rng):
    """Sequentials and a block inside a Sequential."""
    inner = nn.Sequential(
        nn.Linear(6, 7, rng=rng), nn.Sequential(nn.Tanh(), nn.Linear(7, 5, bias=False, rng=rng), nn.Tanh())
    )  # before a batch norm a bias has nearly no gradient: one eps of a weight moves it by 1e-12 of itself
    return nn.Sequential(
        nn.Linear(4, 6, rng=rng), inner, nn.BatchNorm(5), Block(5, rng), nn.Linear(5, 3, rng=rng)
    )


def convolutional(rng):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, rng=rng),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.BatchNorm(4),
        nn.Flatten(),
        nn.Linear(16, 8, rng=rng),
        nn.Tanh(),
        nn.Linear(8, 3, rng=rng),
    )


def sequences(rng):
    """Linear layers on more than two axes."""
    return nn.Sequential(
        nn.Linear(4, 5, rng=rng), nn.Tanh(), nn.Dropout(0.3, rng=rng), nn.Linear(5, 4, rng=rng),
        nn.Tanh(), nn.Linear(4, 2, rng=rng), nn.Flatten(), nn.Linear(12, 3, rng=rng),
    )  # fmt: skip


def batches_of(*shape, sizes=(5, 3, 4)):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, *shape)), rng.integers(0, 3, n)) for n in sizes]


LINEAR = st.sampled_from(["column", "row", "gathered", "grid", None])
NAMES = {
    Net: [
        "front.0",
        "front.2",
        "blocks.0.wide",
        "blocks.1.wide",
        "blocks.1.narrow",
        "tied",
        "unused",
        "last",
    ],
    nested: ["0", "1.0", "1.1.1", "3.wide", "3.narrow", "4"],
    convolutional: ["5", "7"],
}
SHAPES = {Net: (4,), nested: (4,), convolutional: (2, 4, 4), sequences: (2, 3, 4)}
OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "clipped": lambda p: optim.SGD(p, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda p: optim.LARS(p, 1.0).clipped(0.5),
    "adam": lambda p: optim.Adam(p, 0.01, weight_decay=0.1),
}


@st.composite
def plans(draw, build):
    kinds = {name: draw(LINEAR) for name in NAMES[build]}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def law(build, ranks, plan, strategy=ModelParallel, optimizer="momentum", **settings):
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            lambda comm: strategy(comm, plan, **settings),
            comm,
            build,
            ops.cross_entropy,
            batches_of(*SHAPES[build]),
            optimizer=OPTIMIZERS[optimizer],
        ),
    )


@pytest.mark.parametrize("build", [Net, nested])
@given(data=st.data(), ranks=st.integers(1, 5), optimizer=st.sampled_from(sorted(OPTIMIZERS)))
def test_any_plan_trains_like_serial(build, data, ranks, optimizer):
    law(build, ranks, data.draw(plans(build)), optimizer=optimizer)


@pytest.mark.parametrize("build", [Net, nested, convolutional])
@pytest.mark.parametrize("sample", [False, True])
def test_the_default_plan_trains_like_serial(build, sample):
    for ranks in (1, 2, 3):
        law(build, ranks, None, sample=SHAPES[build] if sample else None, batch_size=2)


@pytest.mark.parametrize("plan", [{"0": "column", "3": "row", "5": "gathered"}, {"5": "column", "7": "row"}])
@pytest.mark.parametrize("sample", [None, (2, 3, 4)], ids=str)
def test_layers_of_sequences_train_like_serial(plan, sample):
    law(sequences, 3, plan, sample=sample)


def test_micro_batches_train_like_serial():
    plain = lambda rng: nn.Sequential(nn.Linear(4, 6, rng=rng), nn.Tanh(), nn.Linear(6, 3, rng=rng))  # noqa: E731
    strategy = lambda comm: ModelParallel(comm, {"0": "column", "2": "row"}, micro_batches=3)  # noqa: E731
    run_ranks(3, lambda comm: trains_like_serial(strategy, comm, plain, ops.cross_entropy, batches_of(4)))


def test_every_rank_has_all_arrays_under_their_serial_names():
    serial = convolutional(np.random.default_rng(0)).to(dtype=np.float64)

    def work(comm):
        model = convolutional(np.random.default_rng(comm.rank)).to(dtype=np.float64)
        backend = ModelParallel(comm, {"0": "filters", "5": "row", "7": "column"}, sample=(2, 4, 4))
        placed = backend.place(model)
        shapes = {name: p.shape for name, p in placed.named_parameters().items()}
        return shapes, {**backend.state.full_parameters(placed), **backend.state.full_state(placed)}

    for shapes, results in run_ranks(3, work):
        assert list(shapes) == list(serial.named_parameters().keys())
        assert shapes["5.weight"][0] == 8 and shapes["5.weight"][1] in (
            4,
            8,
        )  # 1, 1 and 2 channels of 4 pixels
        assert results.keys() == serial.state_dict().keys()
        for name, value in serial.state_dict().items():
            np.testing.assert_array_equal(results[name], value)


# Disagreement and mistakes


def placing(ranks, plan_of, build=convolutional):
    run_ranks(
        ranks, lambda comm: ModelParallel(comm, plan_of(comm.rank)).place(build(np.random.default_rng(0)))
    )


def test_ranks_with_different_plans_or_models_are_told():
    with pytest.raises(
        ValueError, match="rank 0 has plan = .*column.*, rank 2 has .*row.*; give all ranks the"
    ):
        placing(3, lambda rank: {"5": "row" if rank == 2 else "column"})
    with pytest.raises(ValueError, match="rank 0 has plan = None, rank 1 has {'5': 'row'}"):
        placing(2, lambda rank: {"5": "row"} if rank else None)
    with pytest.raises(ValueError, match="the ranks built different models: 0.weight"):
        run_ranks(
            2,
            lambda comm: ModelParallel(comm, {}).place(
                convolutional(np.random.default_rng(0))
                if comm.rank
                else find_net("lenet").build(np.random.default_rng(0))
            ),
        )


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"9": "row"},
            "names layer '9', which the model does not have; layers that can be split, and how: \"0\" (f",
        ),
        ({"9": "row"}, '"5" (column, row, gathered, classes, grid); '),
        (
            {"0": "row"},
            "layer 0, Conv2d(2, 4, 3, padding=1), cannot be split by 'row'; choose filters, channels",
        ),
        ({"5": "filters"}, "cannot be split by 'filters'; choose column, row, gathered, classes"),
        ({"0": "filters 2"}, "cannot be split by 'filters 2'; choose filters, channels"),
        ({"5": "row "}, "cannot be split by 'row '; choose column, row, gathered, classes"),
        ({"5": 2}, "cannot be split by 2; choose column, row, gathered, classes"),
        ({"1": "column"}, "layer 1, Tanh(), cannot be split by 'column'; choose rows, tiles"),
        ({"2": "rows 2"}, "layer 2, images are split by 'rows', 'tiles' or for example 'tiles 2x3', got"),
        ({"2": "tiles 3x2"}, "layer 2, tiles 3x2 need 6 ranks, got 2; give rows and columns of tiles whose"),
        ({"0": "groups"}, "layer 0, Conv2d(2, 4, 3, padding=1) has one group"),
        (
            {"5": "classes"},
            "layer 5 cannot be split by 'classes': only the last layer of a Sequential can be",
        ),
    ],
)
def test_a_plan_that_does_not_fit_names_what_would(plan, message):
    with pytest.raises(ValueError) as refused:
        placing(2, lambda rank: plan)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("build", "plan", "message"),
    [
        (nested, {"1": "row"}, "layer 1, Sequential(Linear(6, 7), "),
        (nested, {"1": "row"}, "cannot be split by 'row'; name layers inside of it"),
        (nested, {"1.0": "rows"}, "layer 1.0, Linear(6, 7), cannot be split by 'rows'; choose column, row"),
        (
            nested,
            {"2": "rows"},
            "layer 2, rows and tiles are of images (N, C, H, W), got shape (0, 5); leave",
        ),
        (
            Net,
            {"blocks.0.drop": "row"},
            "layer blocks.0.drop, Dropout(0.3), cannot be split by 'row'; choose",
        ),
        (Net, {"last": "classes"}, "layer last cannot be split by 'classes': only the last layer of a Seq"),
    ],
)
def test_the_layer_is_named_wherever_it_is(build, plan, message):
    with pytest.raises(ValueError) as refused:
        run_ranks(
            2,
            lambda comm: ModelParallel(comm, plan, sample=SHAPES[build]).place(
                build(np.random.default_rng(0))
            ),
        )
    assert message in str(refused.value)


def test_a_layer_that_shares_its_weight_stays_whole():
    def tied(rng):
        model = nn.Sequential(nn.Linear(4, 4, rng=rng), nn.Tanh(), nn.Linear(4, 4, rng=rng))
        vars(model[2])["weight"] = vars(model[0])["weight"]
        return model

    with pytest.raises(ValueError, match=r"layer 0 shares a parameter with others \(0.weight, 2.weight\)"):
        placing(2, lambda rank: {"0": "column"}, tied)
    assert default_plan(tied(np.random.default_rng(0)), 2, 1) == {}


def test_a_plan_file_is_json_or_toml(tmp_path):
    plan = {"1": "column", "blocks.0.wide": "row"}
    as_json, as_toml = tmp_path / "plan.json", tmp_path / "plan.toml"
    as_json.write_text(json.dumps(plan), encoding="utf-8")
    as_toml.write_text('1 = "column"\n"blocks.0.wide" = "row"\n', encoding="utf-8")
    assert read_plan(as_json) == read_plan(as_toml) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no plan file .*plan.json; write one such as"),
        ("{", "plan.json cannot be read: .*; write one such as"),
        ("[1]", r"must give a kind for each layer, got \[1\]; write one such as"),
        ('{"0": "rows", "1": 2}', "must give a kind for each layer, got 2 for layer 1; write one such as"),
    ],
)
def test_a_plan_file_that_is_none_is_refused(tmp_path, text, message):
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_plan(file)


def test_a_toml_plan_is_shown_as_toml(tmp_path):
    (tmp_path / "plan.toml").write_text("1 = = 2", encoding="utf-8")
    with pytest.raises(ValueError, match='plan.toml cannot be read: .*; write one such as 1 = "column"'):
        read_plan(tmp_path / "plan.toml")


# The default plan


@pytest.mark.parametrize(
    ("net", "plan"),
    [
        ("mlp", {"1": "column", "3": "row"}),
        ("lenet", {"7": "row"}),
        ("vgg", {"11": "row"}),
        ("sigmoid", {"1": "column", "3": "row"}),
    ],
)
def test_the_nets_of_the_lessons_split_their_large_linear_layers(net, plan):
    model = find_net(net).build(np.random.default_rng(0))
    for ranks in (2, 4):
        assert default_plan(model, ranks, 64, DIGIT) == default_plan(model, ranks, 64) == plan


def test_the_choice_can_be_read():
    model = find_net("lenet").build(np.random.default_rng(0))
    text = show(choose(model, 2, 64, DIGIT))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[3] == "7 Linear(1568, 128) row 200,832 58,368"
    assert len(lines) == 6 and lines[0].startswith("layer split by") and lines[-1] == "all 213,012 58,368"
    everything = choose(model, 2, 10**6, DIGIT)
    assert [c.kind for c in everything if c.kind] == []  # too many samples: weights are cheaper


SPLITS = {nn.Linear: ("column", "row", None), nn.Conv2d: ("filters", "channels", None)}
SMALL = {
    "linear": lambda rng: nn.Sequential(
        nn.Linear(8, 6, rng=rng), nn.Tanh(), nn.Linear(6, 8, rng=rng), nn.Tanh(), nn.Linear(8, 4, rng=rng)
    ),
    "images": lambda rng: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 1, rng=rng),
        nn.Flatten(),
        nn.Linear(24, 4, rng=rng),
    ),
}


def most_moved(build, plan, x):
    """The most that one of two ranks sends in a step, and twice the numbers that it holds."""

    def work(comm):
        forward, backward = sent(comm, build(), plan, x, wants_gradient=False)
        own = ModelParallel(comm, plan).place(build()).parameters()
        return forward[1] + backward[1] + 2 * sum(p.size for p in own)

    return max(run_ranks(2, work))


@pytest.mark.parametrize("net", SMALL)
@settings(max_examples=6)
@given(batch_size=st.sampled_from([2, 4, 8, 16, 64]))
def test_the_default_plan_is_the_cheapest_of_all_as_they_run(net, batch_size):
    """Every plan is run on two ranks: what it sends and twice what a rank holds are never less."""
    shape = (8,) if net == "linear" else (2, 4, 4)
    x = np.ones((batch_size, *shape))
    build = lambda: SMALL[net](np.random.default_rng(0)).to(dtype=np.float64)  # noqa: E731
    layers = {i: SPLITS[type(la)] for i, la in build().children().items() if type(la) in SPLITS}
    moved = partial(most_moved, build, x=x)
    choices = choose(build(), 2, batch_size, shape)
    chosen = {c.name: c.kind for c in choices if c.kind}
    plans = [
        {name: kind for name, kind in zip(layers, kinds, strict=True) if kind}
        for kinds in product(*layers.values())
    ]
    biases = 2 * sum(p.shape[0] for n, p in build().named_parameters().items() if n.endswith("bias"))
    assert abs(moved(chosen) - numbers(choices)) <= biases  # counted as split with their layer, always
    assert moved(chosen) <= min(map(moved, plans)) + biases


@pytest.mark.parametrize("symbols", [3, 900])
def test_the_costs_of_a_transformer_are_what_it_sends(symbols):
    """But for norms, places and biases, which a rank holds whole, and the loss, which is not run here."""
    net, n = TransformerNet(symbols=symbols, size=8, hidden=16, p=0.0), 4
    build = lambda: net.build(np.random.default_rng(0)).to(dtype=np.float64)  # noqa: E731
    model: Any = build()
    choices = choose(model, 2, n, (net.tokens,))
    plan = {c.name: c.kind for c in choices if c.kind}
    assert plan == net.plan(vocabulary=symbols == 900) == default_plan(model, 2, n, (net.tokens,))
    assert default_plan(model, 2, n) == net.plan()
    moved = partial(most_moved, build, x=np.zeros((n, net.tokens), int))

    parameters = model.named_parameters().items()
    whole = 2 * sum(p.size for n, p in parameters if p.ndim == 1 or n.endswith("position"))
    loss = 6 * n * net.tokens / 2 if symbols == 900 else 0
    assert abs(moved(plan) + loss - numbers(choices)) <= whole
    other = moved(net.plan(vocabulary=symbols != 900))
    assert moved(plan) < other + whole


def test_the_table_of_a_transformer_shows_blocks_and_both_ends():
    net = TransformerNet(symbols=900)
    text = show(choose(net.build(np.random.default_rng(0)), 2, 4, (net.tokens,)))
    lines = [line.split()[:3] for line in text.splitlines()]
    assert lines[2] == ["1", "TransformerBlock", "heads"] and lines[5][:2] == ["4", "Unembedding(8,"]


# Seeded bugs


class KeepsItsOwnStart(ModelParallel):
    def place(self, model):
        own = model.state_dict()
        placed = super().place(model)
        for name, p in placed.named_parameters().items():
            if p.shape == own[name].shape:
                p.data[...] = own[name]
        return placed


class CountsWholeParametersOften(SplitLayers):
    """The norm that clipping needs counts what every rank holds once for each rank."""

    def global_square_norms(self, model, squares):
        self.backend.rank, rank = 0, self.backend.rank
        result = super().global_square_norms(model, squares)
        self.backend.rank = rank
        return result


class KnowsOnlyItsOwnNorm(SplitLayers):
    def global_square_norms(self, model, squares):
        return squares


class ForgetsTheOrderOfParts(SplitLayers):
    def unshard_values(self, model, values):
        result = super().unshard_values(model, values)
        return {n: v if v is None else np.roll(v, n == "0.weight", axis=0) for n, v in result.items()}


def with_state(state_class):
    return type(state_class.__name__, (ModelParallel,), {"state_class": state_class})


@pytest.mark.parametrize(
    "bug",
    [
        KeepsItsOwnStart,
        *map(with_state, (CountsWholeParametersOften, KnowsOnlyItsOwnNorm, ForgetsTheOrderOfParts)),
    ],
)
def test_the_law_catches(bug):
    plan = {"0": "column", "1.0": "row", "3.wide": "column"}
    law(nested, 3, plan, optimizer="clipped")
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(nested, 3, plan, bug, optimizer="clipped")
