"""Laws of backends/model_parallel/spatial/layers.py and tiled_features.py: nets with windows of any size,
and what holds for each of them when its images are split.
"""

from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import allreduce
from backends.comm.trace import Traced
from backends.laws import bound_for, trains_like_serial
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.spatial.receptive_field import Window
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch
from tests.backends.model_parallel.pass_laws import passes_like_serial
from tests.backends.strict import Strict

TILES = [(1, 1), (2, 1), (1, 2), (1, 3), (2, 2), (3, 2), (2, 3)]
SPLITS = [("rows", n) for n in range(1, 7)] + [(f"tiles {r}x{c}", r * c) for r, c in TILES]


def pairs(least, most):
    """A setting for rows and columns: one number, or two."""
    numbers = st.integers(least, most)
    return numbers | st.tuples(numbers, numbers)


def both(value):
    return (value, value) if isinstance(value, int) else value


@st.composite
def convolutions(draw, channels, kernel=7, dilation=3):
    groups = draw(st.sampled_from([g for g in (1, 2) if channels % g == 0]))
    return nn.Conv2d(
        channels,
        groups * draw(st.integers(1, 2)),
        draw(pairs(1, kernel)),
        stride=draw(pairs(1, 3)),
        padding=draw(pairs(0, 3)),
        dilation=draw(pairs(1, dilation)),
        groups=groups,
        bias=draw(st.booleans()),
        rng=np.random.default_rng(channels),
        dtype=np.float64,
    )


@st.composite
def poolings(draw):
    kernel = draw(pairs(1, 4))
    pool = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))
    return pool(kernel, stride=draw(st.none() | pairs(1, 3)), padding=draw(pairs(0, min(both(kernel)) // 2)))


def window_of(layer, side):
    """The layer's window on rows (0) or columns (1)."""
    settings, weight = layer.settings, getattr(layer, "weight", None)
    kernel = both(settings["kernel"]) if weight is None else weight.shape[2:]
    settings = settings["stride"] or kernel, settings["padding"], settings.get("dilation", 1)
    return Window(kernel[side], *(both(value)[side] for value in settings))


def smallest(windows, outputs=1):
    """How many rows it takes for the last of the windows to stand on them ``outputs`` times."""
    for window in reversed(windows):
        outputs = max((outputs - 1) * window.stride + window.extent - 2 * window.padding, 1)
    return outputs


@st.composite
def nets(draw, least=1, most=3, **limits):
    """Layers with windows, others between them, and the size of an image, just large enough or larger."""
    channels = first = draw(st.integers(1, 2))
    layers, windowed = [], []
    for _ in range(draw(st.integers(least, most))):
        windowed.append(draw(convolutions(channels, **limits) | poolings()))
        channels = len(windowed[-1].weight) if isinstance(windowed[-1], nn.Conv2d) else channels
        layers += [windowed[-1], *draw(st.sampled_from([[], [nn.Tanh()], [nn.LeakyReLU(0.3)]]))]
    sides = [smallest([window_of(layer, side) for layer in windowed]) for side in (0, 1)]
    return nn.Sequential(*layers), (first, *(side + draw(st.integers(0, 7)) for side in sides))


def passes(drawn, plan, ranks, *, samples=2, seed=0, strategy=ModelParallel):
    """One layer or several, of ``nets``, on images of the size drawn."""
    net, image = drawn
    x = np.random.default_rng(seed).normal(size=(samples, *image))
    run_ranks(
        ranks,
        lambda comm: passes_like_serial(
            lambda c: strategy(Strict(c), plan), comm, lambda: deepcopy(net), x, bound=1e-11
        ),
        rendezvous=seed % 2 == 1,
    )


def all_by(kind, net):
    return {str(i): kind for i in range(len(net.layers))}


def lenet(norm=True, pool: Any = nn.MaxPool2d, rows=4, columns=4, dtype: type = np.float64):
    """Two convolutions with batch-norm and pooling between them, on images of 2 x (4 rows) x (4 columns)."""

    def build(_=None):
        rng = np.random.default_rng(5)
        layers: list[nn.Module] = [nn.Conv2d(2, 3, 3, padding=1, bias=not norm, rng=rng)]
        layers += [nn.BatchNorm(3), nn.Tanh()] if norm else [nn.Tanh()]
        layers += [pool(2), nn.Conv2d(3, 2, 5, padding=2, stride=2, rng=rng), nn.ReLU()]
        layers += [pool(3, stride=1, padding=1), nn.Flatten(), nn.Linear(2 * rows * columns, 3, rng=rng)]
        net = nn.Sequential(*layers)
        net.to(dtype=dtype)
        return net

    return build, (2, 4 * rows, 4 * columns)


def batches(image, sizes, dtype: type = np.float64):
    rng = np.random.default_rng(len(sizes))
    return [Batch(rng.normal(size=(n, *image)).astype(dtype), rng.integers(0, 3, n)) for n in sizes]


def plan_for(net, kind, flatten):
    """All by ``kind`` up to the last layer; the flattened image gathered, or left split for a row layer.

    That is made to fit ("row"), or cuts the features in its own way ("other row").
    """
    plan, last = all_by(kind, net), len(net.layers) - 1
    del plan[str(last)]
    if flatten == "gathered":
        del plan[str(last - 1)]
    if flatten.endswith("row"):
        plan[str(last)] = "row"
    return plan


def trains(net, split, sizes, *, flatten="row", strategy=ModelParallel, dtype: type = np.float64):
    (build, image), (kind, ranks) = net, split
    plan = plan_for(build(), kind, flatten)
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            lambda c: strategy(c, plan, sample=image if flatten == "row" else None),
            comm,
            build,
            ops.cross_entropy,
            batches(image, sizes, dtype),
            dtype=dtype,
            bound=max(1e-11, bound_for(dtype)),
        ),
    )


def sends_halos_and_weights(window, tiles, samples, strategy=ModelParallel):
    """Rows: N C W (h_l + h_r) for each interior boundary; columns: the same, of the tiles' rows with halos.

    Backward the same again, or, at stride 1, as many rows and columns of the outputs. Then one all-reduce of
    all weights.
    """
    down, across = tiles
    height, width = down * window.stride * 13, across * window.stride * 13  # tiles are larger than any halo
    rng, halo_rows = np.random.default_rng(0), sum(window.halo)
    kernel, *settings = window
    settings = dict(zip(("stride", "padding", "dilation"), settings, strict=True))
    first = nn.Conv2d(1, 3, 1, rng=rng, dtype=np.float64)
    second = nn.Conv2d(3, 2, kernel, **settings, rng=rng, dtype=np.float64)
    reached = window.receptive_field(
        0, window.outputs(height), height
    ).stop  # a stride may leave the last rows over
    tall = reached + (down - 1) * (window.extent - window.stride) if down > 1 else height
    numbers = back = samples * 3 * halo_rows * ((down - 1) * width + (across - 1) * tall)
    if window.stride == 1 and window.padding < window.extent:
        tall = window.outputs(height) + (down - 1) * halo_rows
        back = samples * 2 * halo_rows * ((down - 1) * window.outputs(width) + (across - 1) * tall)
    sides = sum(side > 0 for side in window.halo)
    messages = sides * ((down - 1) * across + (across - 1) * down)

    def work(comm):
        traced = Traced(comm)
        sent = traced.record.ledger.sent
        backend = strategy(traced, dict.fromkeys("01", f"tiles {down}x{across}"))
        model: Any = backend.place(nn.Sequential(deepcopy(first), deepcopy(second)))
        counts = [sent()]
        with Tape() as tape:
            a = ShardedTensor(Tensor(np.ones((samples, 1, height, width))))
            for layer in model.layers:
                a = layer.sharded_forward(a)
                counts.append(sent())
        tape.backward(a.local, np.ones(a.local.shape))
        counts.append(sent())
        backend.finish(model, 0.0)
        counts.append(sent())
        allreduce(traced, np.concatenate([parameter.data.reshape(-1) for parameter in model.parameters()]))
        counts.append(sent())
        return np.diff(np.array(counts), axis=0)

    first_forward, forward, backward, finish, weights = np.sum(run_ranks(down * across, work), axis=0)
    assert not first_forward.any()
    assert tuple(forward) == (messages, 8 * numbers)
    assert tuple(backward) == (messages, 8 * back)
    assert tuple(finish) == tuple(weights)
