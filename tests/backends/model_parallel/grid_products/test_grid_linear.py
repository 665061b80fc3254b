"""Laws of backends/model_parallel/grid_products/linear.py and
backends/model_parallel/layers/process_grid.py: a net whose linear layers are blocks on a grid passes and
trains like the serial one, for any batch.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel import ModelParallel
from backends.model_parallel.grid_products.linear import GridLinear
from backends.model_parallel.layers.process_grid import ProcessGrid, process_grid_of
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch
from tests.backends.model_parallel.grid_products.product_laws import Sizes, owner, part, summa_costs
from tests.backends.model_parallel.pass_laws import passes_like_serial
from tests.backends.model_parallel.split_models import sent

BETWEEN = {
    "tanh": lambda n: nn.Tanh(),
    "gelu": lambda n: nn.GELU(),
    "dropout": lambda n: nn.Dropout(0.4, rng=np.random.default_rng(n)),
    "layer norm": lambda n: nn.LayerNorm(n),
}
GRIDS = [(r, c) for r in range(1, 7) for c in range(1, 7) if r * c <= 6]
WHOLE = {"1": "grid", "3": "grid", "5": "grid"}


def mlp(widths, between, *, bias=True, frozen=()):
    """Builds linear layers 1, 3, 5, ... of these widths, with one layer between any two."""

    def build(rng=None):
        rng = np.random.default_rng(len(widths))
        layers: list[nn.Module] = [nn.Flatten()]
        for i, (n_in, n_out) in enumerate(zip(widths, widths[1:], strict=False)):
            layers += [BETWEEN[between[i - 1]](n_in)] if i else []
            layers += [nn.Linear(n_in, n_out, rng=rng, bias=bias)]
        for number in frozen:
            layers[number].weight.requires_grad = False
        return nn.Sequential(*layers).to(dtype=np.float64)

    return build


@st.composite
def nets(draw):
    """A net of up to four linear layers, on a grid, of which some are split otherwise or not at all."""
    n = draw(st.integers(1, 4))
    rows, columns = draw(st.sampled_from(GRIDS))
    widths = draw(st.lists(st.integers(3, 8), min_size=n + 1, max_size=n + 1))
    between = draw(st.lists(st.sampled_from(sorted(BETWEEN)), min_size=n - 1, max_size=n - 1))
    kinds = st.sampled_from(
        [f"grid {rows}x{columns}"] * 4 + [f"grid {columns}x{rows}", "column", "row", None]
    )
    plan = {str(2 * i + 1): draw(kinds) for i in range(n)}
    frozen = draw(st.sets(st.sampled_from([2 * i + 1 for i in range(n)]), max_size=n)) - {2 * n - 1}
    build = mlp(widths, between, bias=draw(st.booleans()), frozen=frozen)
    return build, {name: kind for name, kind in plan.items() if kind}, widths, rows * columns


EDGES = mlp((5, 4, 3), ["tanh"]), {"1": "grid 4x1", "3": "grid 4x1"}, (5, 4, 3), 4  # a batch of 1, on 4 rows


@given(net=nets(), samples=st.integers(1, 7))
@example(net=EDGES, samples=1)
def test_passes_like_serial(net, samples):
    build, plan, widths, ranks = net
    x = np.random.default_rng(samples).normal(size=(samples, widths[0]))
    run_ranks(ranks, lambda comm: passes_like_serial(lambda c: ModelParallel(c, plan), comm, build, x))


@given(net=nets(), sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3))
@example(net=EDGES, sizes=[1])
@example(net=(mlp((5, 7, 4), ["tanh"]), {"1": "grid 2x3", "3": "grid 3x2"}, (5, 7, 4), 6), sizes=[5, 4, 1])
def test_trains_like_serial(net, sizes):
    build, plan, widths, ranks = net
    rng = np.random.default_rng(widths)
    data = [Batch(rng.normal(size=(n, widths[0])), rng.integers(0, widths[-1], n)) for n in sizes]
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            lambda c: ModelParallel(c, plan), comm, build, ops.cross_entropy, data, optimizer=clipped
        ),
    )


def clipped(parameters):
    return optim.SGD(parameters, 0.5, momentum=0.9).clipped(0.05)


def tokens(rng=None):
    """Linear layers of tokens (N, S, features), and of all of them flattened."""
    rng = np.random.default_rng(0)
    layers: list[nn.Module] = [nn.Linear(4, 5, rng=rng), nn.GELU(), nn.Linear(5, 3, rng=rng), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(6, 3, rng=rng)).to(dtype=np.float64)


@given(grid=st.sampled_from(GRIDS), samples=st.integers(1, 4), has_sample=st.booleans())
def test_tokens_pass_like_serial(grid, samples, has_sample):
    kind = "grid {}x{}".format(*grid)
    plan, x = {"0": kind, "2": kind, "4": kind}, np.random.default_rng(samples).normal(size=(samples, 2, 4))
    strategy = lambda c: ModelParallel(c, plan, sample=(2, 4) if has_sample else None)  # noqa: E731
    run_ranks(grid[0] * grid[1], lambda comm: passes_like_serial(strategy, comm, tokens, x))


def test_data_by_grid_trains_like_serial():
    build = mlp((5, 7, 6, 3), ["tanh", "dropout"])
    rng = np.random.default_rng(0)
    data = [Batch(rng.normal(size=(n, 5)), rng.integers(0, 3, n)) for n in (7, 5, 1)]

    def strategy(comm):
        grid = Grid(comm, data=2, model=4)
        return Stack(DataParallel(grid.data), ModelParallel(grid.model, WHOLE, micro_batches=2))

    run_ranks(8, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, data))


@pytest.mark.parametrize("grid", [(2, 2), (2, 3), (3, 2), (1, 4), (4, 1)])
def test_a_rank_has_its_block(grid):
    """Of the weight transposed: rows by the row of ranks, columns by their column; and no more."""
    rows, columns = grid
    layer: Any = nn.Linear(7, 5, rng=np.random.default_rng(0)).to(dtype=np.float64)

    def work(comm):
        model: Any = ModelParallel(comm, {"0": "grid {}x{}".format(*grid)}).place(nn.Sequential(layer))
        place = divmod(comm.rank, columns)
        np.testing.assert_array_equal(model[0].weight.data, part(layer.weight.data.T, place, grid).T)
        own = [owner(q, 5, columns) == place[1] for q in range(5)]
        np.testing.assert_array_equal(model[0].bias.data, layer.bias.data[own])
        assert all(p.data.base is None for p in model.parameters())  # no view keeps the whole alive

    run_ranks(rows * columns, work)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (2, 3), (3, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("samples", [1, 5, 12])
def test_layers_on_a_grid_send_their_products_and_both_ends(grid, samples):
    """Between them nothing: blocks stay blocks. The ends gather the output, and the gradient of the input."""
    (rows, columns), widths = grid, (5, 7, 4)
    kind, x = "grid {}x{}".format(*grid), np.ones((samples, widths[0]))
    build = mlp(widths, ["tanh"])

    def numbers(wants_gradient):
        plan = {"1": kind, "3": kind}
        work = lambda comm: sent(comm, build(), plan, x, wants_gradient=wants_gradient)  # noqa: E731
        ranks = run_ranks(rows * columns, work)
        return [sum(numbers for _, numbers in passes) for passes in zip(*ranks, strict=True)]

    first, second = (
        summa_costs(Sizes(samples, k, n), grid)[1] for k, n in zip(widths, widths[1:], strict=False)
    )
    output = samples * widths[-1] * (rows - 1 + rows * (columns - 1))
    gradient = samples * widths[0] * (columns - 1 + columns * (rows - 1))
    assert numbers(False) == [first + second + output, first + 2 * second]
    assert numbers(True) == [first + second + output, 2 * (first + second) + gradient]


@pytest.mark.parametrize(
    ("ranks", "kind", "shape"),
    [
        (4, "grid", (2, 2)),
        (6, "grid", (3, 2)),
        (5, "grid", (5, 1)),
        (6, "grid 2x3", (2, 3)),
        (6, "rows", None),
    ],
)
def test_a_kind_names_a_grid(ranks, kind, shape):
    def work(comm):
        grid = process_grid_of(kind, comm)
        assert (grid and (grid.column.size, grid.row.size)) == shape

    run_ranks(ranks, work)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("grid 3x2", "layer 1, a grid of 3x2 needs 6 ranks, got 2; give rows and columns whose product is 2"),
        ("grid 2", "layer 1, a grid is written as 'grid' or for example 'grid 2x3', got 'grid 2'"),
    ],
)
def test_a_grid_that_does_not_fit_names_what_would(kind, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(2, lambda comm: ModelParallel(comm, {"1": kind}).place(mlp((5, 4), [])()))


def test_inputs_of_another_size_are_named():
    build = mlp((5, 4), [])
    with pytest.raises(ValueError, match="takes 5 channels or features, those before it give 6"):
        run_ranks(2, lambda comm: ModelParallel(comm, {"1": "grid"}).place(build())(np.ones((2, 6))))


def test_an_input_without_samples_is_named():
    with pytest.raises(ValueError, match=r"takes x \(samples, ..., in\), got \(5,\); give it an axis"):
        run_ranks(2, lambda comm: GridLinear(nn.Linear(5, 4, rng=0), ProcessGrid(comm, 2, 1))(np.ones(5)))


def test_a_layer_says_what_it_has():
    def work(comm):
        return repr(GridLinear(nn.Linear(7, 5, rng=0), ProcessGrid(comm, 2, 1)))

    assert run_ranks(2, work)[0] == "GridLinear(3 of 7, 5 of 5, grid 2x1)"
