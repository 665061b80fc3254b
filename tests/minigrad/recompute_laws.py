"""Laws of minigrad/recompute.py and forward_pass.py: a segment that runs again changes no
bit, over drawn models.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np

from minigrad import Parameter, Tape, Tensor, nn, ops, recomputed, testing
from minigrad.device import to_host
from minigrad.forward_pass import ForwardPass
from minigrad.memory import base_of, retained_arrays
from minigrad.nn import conv as conv_layers
from minigrad.tape import finish_weights
from minigrad.testing import on_device

WIDTH = 4


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


class Noise(nn.Module):
    """Adds numbers of a generator that other layers share."""

    def __init__(self, rng):
        self.rng = rng

    def forward(self, x):
        return x + on_device(self.rng.random(WIDTH, np.float32))


KINDS = [
    *("linear", "tied", "frozen", "squared", "tanh", "dropout", "noise"),
    *("norm", "replaced", "nested", "inside"),
]


def build(kinds, seed, recomputed: Any = recomputed):
    """A model with a layer of each kind; all layers of noise draw from one generator."""
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
            return nn.Sequential(nn.Dropout(0.3, rng=rng), Noise(rng), tied, nn.BatchNorm(WIDTH))
        return {
            "linear": lambda: nn.Linear(WIDTH, WIDTH, rng=rng),
            "squared": lambda: Squared(rng),
            "tanh": nn.Tanh,
            "dropout": lambda: nn.Dropout(0.4, rng=rng),
            "noise": lambda: Noise(rng),
            "norm": lambda: nn.BatchNorm(WIDTH),
            "replaced": Replaced,
            "inside": lambda: recomputed(nn.Sequential(nn.Dropout(0.3, rng=rng), Squared(rng), tied), 2),
        }[kind]()

    model = nn.Sequential(*map(layer, kinds))
    model.to(device=testing.DEVICE)
    return model, rng


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
        "step": draw(st.sampled_from([None, 0, 5])),
    }


def way(case):
    """The micro-batches' forwards and backwards, one after the other."""
    micros = range(case["micros"])
    if case["order"] == "each in turn":
        return [(step, i) for i in micros for step in ("forward", "backward")]
    back = micros if case["order"] == "first in, first out" else micros[::-1]
    return [*(("forward", i) for i in micros), *(("backward", i) for i in back)]


# The laws; each takes the function under test


def places_of(step, micro):
    """The pass of a micro-batch of three samples in a step, or none."""
    return nullcontext() if step is None else ForwardPass(step, range(3 * micro, 3 * micro + 3))


def trained(model, rng, case):
    """All that a step of several micro-batches leaves, by name, and what was announced, in order."""
    names = {id(p): name for name, p in model.named_parameters().items()}
    data = np.random.default_rng(case["seed"] + 1).normal(size=(case["micros"], 3, WIDTH)).astype(np.float32)
    xs = [Tensor(on_device(x), requires_grad=case["leaf"]) for x in data]
    if case["lent"]:
        for p in model.parameters():
            p.grad_buffer = on_device(np.full(p.shape, np.nan, np.float32))
    results: dict[str, Any] = {}
    announced: list[tuple[str, np.ndarray]] = []
    rest, tapes = [], {}

    def note(leaf):
        if id(leaf) in names:
            announced.append((names[id(leaf)], to_host(leaf.grad).copy()))

    steps = way(case)
    for n, (step, i) in enumerate(steps):
        if step == "forward":
            with places_of(case["step"], i), Tape() as tape:
                y = model(xs[i])
                tapes[i] = tape, (y * y).mean()
            results[f"y {i}"] = y.data
        elif tapes[i][1].tape is not None:
            on_leaf = note if n == len(steps) - 1 and not case["weights_later"] else None
            tape, loss = tapes.pop(i)
            rest += tape.backward(loss, 1 / len(xs), on_leaf, weights_later=case["weights_later"])
    finish_weights(rest, note)
    results |= {f"x {i}": x.grad for i, x in enumerate(xs)}
    results |= {f"gradient of {name}": p.grad for name, p in model.named_parameters().items()}
    results |= {f"state {name}": array for name, array in model.state_dict().items()}
    results |= {
        f"lent to {name}": np.array(p.grad_buffer is None) for name, p in model.named_parameters().items()
    }
    results |= {"drawn next": rng.random(3), "evaluated": model(xs[0]).data}
    return {name: None if a is None else to_host(a) for name, a in results.items()}, announced


def changes_nothing(recomputed, case):
    """Values, gradients, statistics, random numbers and announcements are those of the plain model."""
    plain, order = trained(*build(case["kinds"], case["seed"], lambda model, _: model), case)
    model, rng = build(case["kinds"], case["seed"], recomputed)
    actual, told_again = trained(recomputed(model, case["segments"]), rng, case)
    assert plain.keys() == actual.keys()
    for name, expected in plain.items():
        assert same(expected, actual[name]), name
    assert [name for name, _ in order] == [name for name, _ in told_again], "announced in another order"
    for name, g in told_again:
        assert same(g, plain[f"gradient of {name}"]), f"{name} was announced before it was final"


def same(a, b):
    return a is b is None or (a is not None and b is not None and np.array_equal(a, b))


def one_segment_is_held_at_a_time(recomputed, pairs, segments):
    """N equal layers in k segments: k inputs after forward; k + N/k arrays in backward, then fewer."""
    model, x = deep(pairs), on_device(np.ones((ROWS, COLUMNS)))
    sizes = []
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
        sizes.append(bytes_in(entries))

    spy = type("Spy", (kind,), {"record": record})
    for entry in again:
        entry.__class__ = spy
    tape.backward(y, 1.0)
    assert sizes == [(k + 1 + pairs // segments) * x.nbytes for k in range(segments - 1, -1, -1)], (
        "in backward"
    )


ROWS, COLUMNS = 200, 50


def deep(pairs):
    rng = np.random.default_rng(0)
    layers = [(nn.Linear(COLUMNS, COLUMNS, rng=rng, dtype=np.float64), nn.Tanh()) for _ in range(pairs)]
    model = nn.Sequential(*(layer for pair in layers for layer in pair))
    model.to(device=testing.DEVICE)
    return model


def bytes_in(entries):
    own = {id(base_of(entry.data)) for entry in entries if isinstance(entry, Tensor)}
    arrays = {
        id(b): b
        for e in entries
        if isinstance(e, list)
        for b in map(base_of, retained_arrays([p for *_, p in e]))
    }
    return sum(b.nbytes for key, b in arrays.items() if key not in own)


class Wavering(nn.Module):
    """x * weight; from the second run on + another layer's weight."""

    def __init__(self, weight, other):
        self.weight, self.other, self.runs = weight, lambda: other, 0  # not its own

    def forward(self, x):
        self.runs += 1
        return x * self.weight if self.runs == 1 else x * self.weight + self.other()


class Product(nn.Module):
    def __init__(self, weight):
        self.weight = weight

    def forward(self, x):
        return x * self.weight


def a_leaf_that_was_passed_is_entered_anew(recomputed):
    """What a second run uses besides, of leaves that were passed, goes to no other leaf's gradient."""
    own, other, x = (Parameter(on_device(np.full(3, value))) for value in (2.0, 5.0, 7.0))
    with Tape() as tape:
        loss = recomputed(nn.Sequential(Wavering(own, other), Product(other)), 2)(x).sum()
    tape.backward(loss)
    for leaf, expected in ((own, 7 * 5), (x, 2 * 5), (other, 7 * 2 + 5)):
        assert leaf.grad is not None and to_host(leaf.grad).tolist() == [expected] * 3


def no_bit_of_a_convolutional_network_changes(recomputed, seed, segments):
    """Also where a bound would stand between layers that are computed in one pass."""
    x = on_device(np.random.default_rng(seed).normal(size=(3, 2, 8, 8)).astype(np.float32))
    runs = []
    for again in (False, True):
        rng = np.random.default_rng(seed)
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, rng=rng), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm(4), nn.GELU(),
            nn.Conv2d(4, 4, 3, rng=rng), nn.Flatten(), nn.Dropout(0.5, rng=rng), nn.Linear(16, 3, rng=rng),
        )  # fmt: skip
        model.to(device=testing.DEVICE)
        model = recomputed(model, segments) if again else model
        with patch.object(conv_layers, "pays", lambda *_: True):
            with Tape() as tape:
                loss = ops.cross_entropy(model(x), on_device([0, 1, 2]))
            tape.backward(loss)
        runs.append([to_host(p.grad) for p in model.parameters()] + list(model.state_dict().values()))
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)
