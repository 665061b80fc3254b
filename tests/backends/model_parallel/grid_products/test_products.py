"""Laws of backends/model_parallel/grid_products/: SUMMA, its gradients, Cannon and 2.5D, of any sizes on
any grids.
"""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.model_parallel.grid_products.cannon import cannon
from backends.model_parallel.grid_products.lower_bounds import numbers_touched
from backends.model_parallel.grid_products.summa import (
    panels,
    summa,
    summa_gradient_of_a,
    summa_gradient_of_b,
)
from backends.model_parallel.grid_products.summa_25d import LayeredGrid, summa_25d
from backends.model_parallel.layers.process_grid import ProcessGrid
from tests.backends.model_parallel.grid_products.product_laws import (
    Sizes,
    bounds_touched,
    gives_gradient_of_a,
    gives_gradient_of_b,
    is_near_the_bounds,
    multiplies,
    multiplies_in_layers,
    on_grid,
    shifts,
)

SIZES = st.builds(Sizes, *[st.integers(0, 13)] * 3)
GRIDS = st.tuples(st.integers(1, 4), st.integers(1, 4))


def with_edges(law):
    """Fewer rows, terms or columns than ranks; one row or column of ranks; terms that are cut two ways."""
    for sizes, grid in (
        ((1, 5, 7), (3, 2)), ((5, 1, 7), (2, 3)), ((5, 7, 1), (2, 3)), ((0, 4, 4), (2, 2)),
        ((4, 0, 4), (2, 2)), ((6, 5, 4), (1, 3)), ((6, 5, 4), (3, 1)), ((5, 7, 4), (2, 3)),
        ((1, 1, 1), (4, 4)),
    ):  # fmt: skip
        law = example(sizes=Sizes(*sizes), grid=grid)(law)
    return law


@given(sizes=SIZES, grid=GRIDS)
@with_edges
def test_summa_is_a_product(sizes, grid):
    multiplies(summa, panels, sizes, grid)


@given(sizes=SIZES, grid=GRIDS)
@with_edges
def test_the_gradient_of_the_first_matrix(sizes, grid):
    gives_gradient_of_a(summa_gradient_of_a, panels, sizes, grid)


@given(sizes=SIZES, grid=GRIDS)
@with_edges
def test_the_gradient_of_the_second_matrix(sizes, grid):
    gives_gradient_of_b(summa_gradient_of_b, panels, sizes, grid)


@given(sizes=SIZES, q=st.integers(1, 4))
@example(sizes=Sizes(1, 2, 1), q=3)
def test_cannon_is_a_product(sizes, q):
    shifts(cannon, sizes, q)


@given(sizes=SIZES, layers=st.integers(1, 3), grid=st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]))
@example(sizes=Sizes(3, 1, 2), layers=3, grid=(2, 2))
def test_layers_are_a_product(sizes, layers, grid):
    multiplies_in_layers(summa_25d, sizes, layers, grid)


@given(products=st.sets(st.tuples(*[st.integers(0, 3)] * 3)))
@example(products=set(np.ndindex(3, 3, 3)))
def test_no_products_touch_fewer_entries(products):
    bounds_touched(numbers_touched, products)


@pytest.mark.parametrize("q", [2, 3, 4])
def test_what_is_sent_is_near_the_bounds(q):
    is_near_the_bounds(summa, panels, summa_25d, q)


def test_nobody_waits_for_ever_where_sends_wait_for_their_receiver():
    def work(comm):
        grid, x = ProcessGrid(comm, 3, 3), np.ones((2, 2))
        terms = panels(6, 3, 3)
        for gradient in (summa, summa_gradient_of_a, summa_gradient_of_b):
            gradient(grid, x, x, terms)
        cannon(grid, x, x)
        summa_25d(LayeredGrid(comm, 9, 1, 1), x, x, 2)

    run_ranks(9, work, rendezvous=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda comm: ProcessGrid(comm, 2, 3), "a grid of 2x3 needs 6 ranks, got 2; give rows and columns"),
        (lambda comm: ProcessGrid(comm, 0, 2), "a grid of 0x2 needs 0 ranks, got 2"),
        (lambda comm: LayeredGrid(comm, 2, 2, 1), "2 layers of 2x1 need 4 ranks, got 2; give numbers whose"),
    ],
)
def test_a_grid_of_other_ranks_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(2, make)


def test_cannon_refuses_a_grid_that_is_not_square():
    with pytest.raises(ValueError, match="as many rows of ranks as columns, got 1x2; take summa"):
        on_grid((1, 2), cannon, np.ones((2, 2)), np.ones((2, 2)))
