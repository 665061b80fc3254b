"""Running a segment again changes what a tape holds, and no bit of what comes out."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.sharded import Sharded
from backends.laws import trains_like_serial
from backends.model_parallel.layers import LayerWise
from minigrad import Parameter, Tape, Tensor, nn, ops, recomputed, testing
from minigrad.data import Batch
from minigrad.held import arrays_in, base_of
from minigrad.recompute import Replay, Segment
from minigrad.tape import finish_weights
from minigrad.testing import on_device, to_host
from tests.bugs.mutant import mutant

WIDTH = 4
on_host = pytest.mark.skipif(testing.DEVICE != "numpy", reason="tracemalloc sees the host's memory only")


# What is drawn: models with everything that a second run could do wrong


class Squared(nn.Module):
    """Uses its weight three times, twice in one op; and a leaf that is new in every forward."""

    def __init__(self, rng):
        self.weight = Parameter(rng.normal(size=WIDTH).astype(np.float32))

    def forward(self, x):
        fresh = Tensor(on_device(np.ones(WIDTH, np.float32)), requires_grad=True)
        return x * self.weight + self.weight * self.weight * fresh


class Replaced(nn.Module):
    """A running mean that is not moved in place but replaced, and is used in training too."""

    def __init__(self):
        self.running = np.zeros(WIDTH, np.float32)

    def forward(self, x):
        self.running = 0.5 * self.running + x.data.mean(0)
        return x - self.running


KINDS = ["linear", "tied", "frozen", "squared", "tanh", "dropout", "norm", "replaced", "nested", "inside"]


def build(kinds, seed, recomputed: Any = recomputed):
    """A model with a layer of each kind; all dropouts draw from one generator."""
    rng = np.random.default_rng(seed)
    tied = nn.Linear(WIDTH, WIDTH, rng=rng)

    def layer(kind):
        if kind == "tied":
            return tied
        if kind == "frozen":
            frozen = nn.Linear(WIDTH, WIDTH, rng=rng)
            frozen.weight.requires_grad = False
            return frozen
        if kind == "nested":
            return nn.Sequential(nn.Dropout(0.3, rng=rng), tied, nn.BatchNorm(WIDTH))
        return {
            "linear": lambda: nn.Linear(WIDTH, WIDTH, rng=rng),
            "squared": lambda: Squared(rng),
            "tanh": nn.Tanh,
            "dropout": lambda: nn.Dropout(0.4, rng=rng),
            "norm": lambda: nn.BatchNorm(WIDTH),
            "replaced": Replaced,
            "inside": lambda: recomputed(nn.Sequential(nn.Dropout(0.3, rng=rng), Squared(rng), tied), 2),
        }[kind]()

    return nn.Sequential(*map(layer, kinds)).to(device=testing.DEVICE), rng


@st.composite
def cases(draw):
    """Kinds of layers, segments of them, and how the micro-batches go forward and back."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=7))
    n = len(kinds)
    bounds = st.lists(st.integers(0, n), min_size=2, unique=True).map(sorted)
    segments = draw(st.one_of(st.none(), st.integers(1, n), bounds))
    return {
        "kinds": kinds,
        "segments": segments,
        "seed": draw(st.integers(0, 99)),
        "micros": draw(st.integers(1, 3)),
        "order": draw(st.sampled_from(["each in turn", "first in, first out", "last in, first out"])),
        "weights_later": draw(st.booleans()),
        "lent": draw(st.booleans()),
        "leaf": draw(st.booleans()),
    }


# The laws; each takes the function under test


def trained(model, rng, case):
    """All that a step of several micro-batches leaves, by name, and what was announced, in order."""
    names = {id(p): name for name, p in model.named_parameters().items()}
    data = np.random.default_rng(case["seed"] + 1).normal(size=(case["micros"], 3, WIDTH)).astype(np.float32)
    xs = [Tensor(on_device(x), requires_grad=case["leaf"]) for x in data]
    if case["lent"]:
        for p in model.parameters():
            p.buffer = on_device(np.full(p.shape, np.nan, np.float32))
    found: dict[str, Any] = {}
    announced: list[tuple[str, np.ndarray]] = []
    rest, waiting = [], []

    def note(leaf):
        if id(leaf) in names:
            announced.append((names[id(leaf)], to_host(leaf.grad).copy()))

    def back(tape, loss):
        nonlocal left
        left -= 1
        told = note if not left and not case["weights_later"] else None
        if loss.tape is tape:
            rest.extend(tape.backward(loss, 1 / len(xs), told, weights_later=case["weights_later"]))

    left = len(xs)
    for i, x in enumerate(xs):
        with Tape() as tape:
            y = model(x)
            loss = (y * y).mean()
        found[f"y {i}"] = y.data
        waiting.append((tape, loss))
        if case["order"] == "each in turn":
            back(*waiting.pop())
    for kept in waiting if case["order"] == "first in, first out" else waiting[::-1]:
        back(*kept)
    finish_weights(rest, note)
    found |= {f"x {i}": x.grad for i, x in enumerate(xs)}
    found |= {f"gradient of {name}": p.grad for name, p in model.named_parameters().items()}
    found |= {f"state {name}": array for name, array in model.state_dict().items()}
    found |= {"drawn next": rng.random(3), "evaluated": model(xs[0]).data}
    return {name: None if a is None else to_host(a) for name, a in found.items()}, announced


def changes_nothing(recomputed, case):
    """Values, gradients, statistics, random numbers and announcements are those of the plain model."""
    plain, told = trained(*build(case["kinds"], case["seed"], lambda model, _: model), case)
    model, rng = build(case["kinds"], case["seed"], recomputed)
    found, told_again = trained(recomputed(model, case["segments"]), rng, case)
    assert plain.keys() == found.keys()
    for name, wanted in plain.items():
        assert (wanted is None) == (found[name] is None), name
        assert wanted is None or np.array_equal(wanted, found[name]), name
    assert [name for name, _ in told] == [name for name, _ in told_again], "announced in another order"
    for name, g in told_again:
        assert np.array_equal(g, plain[f"gradient of {name}"]), f"{name} was announced before it was final"


def one_segment_is_held_at_a_time(recomputed, pairs, segments):
    """Of N equal layers in k segments: k inputs after forward; k + N/k arrays in backward, then fewer."""
    model, x = deep(pairs), on_device(np.ones((ROWS, COLUMNS)))
    held = []
    with Tape() as plain:
        deep(pairs)(x)
    with Tape() as tape:
        y = recomputed(model, [2 * pairs * i // segments for i in range(segments + 1)])(x)
    assert plain.nbytes == (pairs + 1) * x.nbytes
    assert tape.nbytes == segments * x.nbytes, "held after forward"
    again = [entry for entry in tape.entries if not isinstance(entry, Tensor) and type(entry) is not list]
    kinds = {type(entry) for entry in again}
    assert len(again) == segments and len(kinds) == 1
    kind = kinds.pop()

    def record(self, entries):
        kind.record(self, entries)
        held.append(bytes_in(entries))

    spy = type("Spy", (kind,), {"record": record})
    for entry in again:
        entry.__class__ = spy
    tape.backward(y, 1.0)
    assert held == [(k + 1 + pairs // segments) * x.nbytes for k in range(segments - 1, -1, -1)], (
        "in backward"
    )


ROWS, COLUMNS = 200, 50


def deep(pairs):
    rng = np.random.default_rng(0)
    layers = [(nn.Linear(COLUMNS, COLUMNS, rng=rng, dtype=np.float64), nn.Tanh()) for _ in range(pairs)]
    return nn.Sequential(*(layer for pair in layers for layer in pair)).to(device=testing.DEVICE)


def bytes_in(entries):
    own = {id(base_of(entry.data)) for entry in entries if isinstance(entry, Tensor)}
    held = {
        id(b): b for e in entries if isinstance(e, list) for b in map(base_of, arrays_in([p for *_, p in e]))
    }
    return sum(b.nbytes for key, b in held.items() if key not in own)


# The library keeps them


@settings(max_examples=10 * settings.default.max_examples)
@given(case=cases())
def test_no_bit_changes(case):
    changes_nothing(recomputed, case)


@given(seed=st.integers(0, 9), segments=st.integers(1, 9))
def test_no_bit_of_a_convolutional_network_changes(seed, segments):
    x = on_device(np.random.default_rng(seed).normal(size=(3, 2, 8, 8)).astype(np.float32))
    runs = []
    for again in (False, True):
        rng = np.random.default_rng(seed)
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, rng=rng), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm(4), nn.GELU(),
            nn.Conv2d(4, 4, 3, rng=rng), nn.Flatten(), nn.Dropout(0.5, rng=rng), nn.Linear(16, 3, rng=rng),
        ).to(device=testing.DEVICE)  # fmt: skip
        with Tape() as tape:
            loss = ops.cross_entropy(
                (recomputed(model, segments) if again else model)(x), on_device([0, 1, 2])
            )
        tape.backward(loss)
        runs.append([to_host(p.grad) for p in model.parameters()] + list(model.state_dict().values()))
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("pairs", "segments"), [(1, 1), (16, 1), (16, 4), (16, 16), (12, 3)])
def test_one_segment_is_held_at_a_time(pairs, segments):
    one_segment_is_held_at_a_time(recomputed, pairs, segments)


def test_the_input_counts_unless_it_is_a_leaf():
    x = on_device(np.ones((ROWS, COLUMNS)))
    for leaf in (False, True):
        with Tape() as tape:
            recomputed(deep(4), 4)(Tensor(x, requires_grad=leaf))
        assert tape.nbytes == (4 - leaf) * x.nbytes


@on_host
def test_the_peak_is_that_of_the_formula():
    def peak(model):
        tracemalloc.start()
        x = np.ones((ROWS, COLUMNS))
        with Tape() as tape:
            loss = model(x).sum()
        tape.backward(loss)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found / x.nbytes

    plain, weights = deep(16), 16 * (COLUMNS + 1) / ROWS
    peak(plain)
    # Beside what tapes hold there are the weights' gradients, and the few arrays that one op works with.
    assert 17 < peak(deep(16)) < 17 + weights + 4
    assert 8 < peak(recomputed(deep(16), 4)) < 8 + weights + 4
    assert peak(recomputed(deep(16))) < peak(recomputed(deep(16), 1))


def test_by_default_there_are_about_root_n_segments_that_differ_by_one_layer_at_most():
    for n in range(1, 40):
        bounds = recomputed(nn.Sequential(*(nn.Tanh() for _ in range(n)))).bounds
        lengths = {b - a for a, b in zip(bounds, bounds[1:], strict=False)}
        assert (bounds[0], bounds[-1]) == (0, n) and max(lengths) - min(lengths) <= 1
        assert abs(len(bounds) - 1 - n**0.5) <= 0.5


def test_names_layers_and_parameters_are_the_models():
    model, _ = build(KINDS, 0)
    again = recomputed(model, 3)
    assert again.named_parameters() == model.named_parameters()
    assert list(again.state_dict()) == list(model.state_dict())
    assert again[2] is model[2] and len(again) == len(model)
    assert recomputed(again, 2).bounds == (0, 5, 10)


def test_what_is_outside_the_bounds_is_recorded():
    with Tape() as tape:
        recomputed(deep(4), (2, 4, 6))(on_device(np.ones((ROWS, COLUMNS))))
    assert sum(isinstance(entry, Segment) for entry in tape.entries) == 2
    assert tape.nbytes == 5 * ROWS * COLUMNS * 8  # x, the two segments' inputs, the last input and output


def test_a_model_without_gradients_leaves_no_entry():
    model = deep(2)
    for p in model.parameters():
        p.requires_grad = False
    with Tape() as tape:
        y = recomputed(model)(on_device(np.ones((1, COLUMNS))))
    assert not tape.entries and not y.requires_grad


def test_an_error_names_the_layer():
    with pytest.raises(ValueError, match=r"layer 2, in Linear\(50, 50\): linear takes x"), Tape():
        model = deep(2)
        recomputed(nn.Sequential(nn.Tanh(), nn.Tanh(), model[0]), 2)(np.ones((2, 7)))


class OwnForward(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    ("model", "segments", "message"),
    [
        (nn.Tanh(), None, "of a Sequential, not of a model with a forward of its own, Tanh"),
        (OwnForward(nn.Tanh()), 1, "not of a model with a forward of its own, OwnForward"),
        (nn.Sequential(nn.Tanh(), nn.Tanh()), 3, "a model of 2 layers has 1 to 2 segments, not 3"),
        (nn.Sequential(nn.Tanh()), 0, "a model of 1 layers has 1 to 1 segments, not 0"),
        (nn.Sequential(nn.Tanh()), (0,), r"2 or more numbers that rise within 0 to 1, got \(0,\)"),
        (nn.Sequential(nn.Tanh()), (0, 2), "rise within 0 to 1"),
        (nn.Sequential(nn.Tanh()), (0, 0, 1), "rise within 0 to 1"),
    ],
)
def test_segments_that_do_not_fit_are_refused(model, segments, message):
    with pytest.raises(ValueError, match=message):
        recomputed(model, segments)


# Replay, by itself


def test_a_replay_runs_again_what_ran_whatever_ran_in_between():
    model, rng = build(["linear", "dropout", "replaced", "norm", "nested"], 3)
    xs = [on_device(np.random.default_rng(i).normal(size=(3, WIDTH)).astype(np.float32)) for i in range(3)]
    replays, ys = [], []
    for x in xs:
        replays.append(Replay(model))
        with Tape():
            ys.append(model(x).data)
    state, drawn = model.state_dict(), rng.bit_generator.state
    for i in (1, 0, 1, 2):
        with replays[i], Tape():
            np.testing.assert_array_equal(to_host(model(xs[i]).data), to_host(ys[i]))
        assert rng.bit_generator.state == drawn
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(array, state[name], name)


def test_modules_that_share_a_state_array_share_it_in_a_replay_and_have_it_back():
    first, second = Replaced(), Replaced()
    second.running = first.running
    shared, replay = first.running, Replay(first, second)
    with pytest.raises(ZeroDivisionError), replay:
        assert first.running is second.running is not shared
        first.running += 1
        raise ZeroDivisionError
    assert first.running is second.running is shared and not shared.any()


# Under strategies


def convolutional(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, rng=rng), nn.BatchNorm(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng),
    )  # fmt: skip


@pytest.mark.parametrize(
    "strategy",
    [
        lambda comm: DataParallel(comm, batch_norm="synchronised"),
        lambda comm: Bucketed(comm, bucket_bytes=100, first_bucket_bytes=100, batch_norm="synchronised"),
        lambda comm: Sharded(comm, stage=2, bucket_bytes=100, batch_norm="synchronised"),
        lambda comm: Sharded(comm, stage=3, overlap=True, batch_norm="synchronised"),
        LayerWise,
    ],
    ids=["replicated", "bucketed", "stage 2", "stage 3", "layers"],
)
def test_ranks_train_a_recomputed_model_like_one_machine_the_plain_one(strategy):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 1, 6, 6)), rng.integers(0, 3, n)) for n in (6, 5)]
    again = lambda rng: recomputed(convolutional(rng), 3)  # noqa: E731
    run_ranks(
        2,
        lambda comm: trains_like_serial(
            strategy, comm, again, ops.cross_entropy, batches, oracle=convolutional
        ),
    )


# Each law turns red where it should

BUGS = {
    "masks are drawn anew": ("            rng.bit_generator.state = then\n", "            pass\n"),
    "the generator stays where the second run began": (
        "            rng.bit_generator.state = state\n",
        "            pass\n",
    ),
    "generators of modules inside are overlooked": ("yield from generators(child)", "yield from ()"),
    "statistics move twice": ("setattr(owner, name, copies[id(array)])", "pass"),
    "statistics are those behind the first run": (
        "then.copy() for array, (_, _, then)",
        "array.copy() for array, _",
    ),
    "the second run leaves its statistics": (
        "            setattr(owner, name, array)\n",
        "            pass\n",
    ),
    "a gradient counts twice": (
        "[(index, y.shape, lambda g: g)])",
        "[(index, y.shape, lambda g: g)] * 2)",
    ),
    "a leaf is announced when its segment is done": (
        "for leaf in first.entries]",
        "for leaf in first.entries[:0]]",
    ),
    "leaves are those of the end of the forward": (" if i < len(entries)", ""),
    "the input's memory is used again": (
        "        y = Tensor(run(x.detach()))\n",
        "        y = Tensor(run(x.detach()))\n    x.data.fill(0)\n",
    ),
    "the output is kept for the input": ("Segment(index, x.data,", "Segment(index, y.data,"),
    "the input's gradient is lost": (
        "if index is not None:\n            x.tape",
        "if False:\n            x.tape",
    ),
    "layers run in the order they are written in": (
        "tape, order = current_tape.get(), self.order()",
        "tape, order = current_tape.get(), [*range(len(self))][::-1]",
    ),
    "what is outside the bounds does not run": (
        "return self.through(order[self.bounds[-1] :], x)",
        "return x",
    ),
    "frozen": ("if any(i is not None for i in (index, *found))", "if index is not None"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_bits_catches_recomputation_where(bug):
    broken = mutant("minigrad.recompute", BUGS[bug]).recomputed

    @settings(max_examples=300, phases=[Phase.generate], database=None)
    @given(case=cases())
    def check(case):
        changes_nothing(broken, case)

    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        check()


@pytest.mark.parametrize(
    "change",
    [
        ("with Unrecorded() as first:", "with tape, Unrecorded() as first:"),
        ("self.run, self.replay, self.leaves = run, replay, leaves", "self.run = run"),
    ],
)
def test_the_law_of_memory_catches(change):
    pass


def test_an_unchanged_copy_keeps_the_laws():
    copy = mutant("minigrad.recompute").recomputed
    assert copy is not recomputed
    one_segment_is_held_at_a_time(copy, 4, 2)

    @given(case=cases())
    def check(case):
        changes_nothing(copy, case)

    check()
