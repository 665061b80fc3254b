"""Laws of backends/model_parallel/grid_products/summa.py, cannon.py, summa_25d.py and lower_bounds.py:
products in blocks are products, send what their formulas say, and no less than the bounds.

The oracle is the product of the whole matrices. Cuts and panels are found here by loops over the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel.grid_products.lower_bounds import numbers_touched, with_memory, without_a_limit
from backends.model_parallel.grid_products.summa_25d import LayeredGrid
from backends.model_parallel.layers.process_grid import ProcessGrid

BOUND = 1e-12


class Sizes(NamedTuple):
    """C (m, n) = A (m, k) B (k, n)."""

    m: int
    k: int
    n: int

    @property
    def a(self) -> int:
        return self.m * self.k

    @property
    def b(self) -> int:
        return self.k * self.n

    @property
    def c(self) -> int:
        return self.m * self.n


class Sent(NamedTuple):
    """Of one rank: its block, or None, and the messages and numbers that it sent and received."""

    block: Any
    messages: int
    numbers: int
    received: int


def owner(i: int, n: int, parts: int) -> int:
    """The part that element i of n is in, where part q ends before n (q + 1) // parts."""
    return next(q for q in range(parts) if i < n * (q + 1) // parts)


def runs(k: int, rows: int, columns: int) -> list[int]:
    """How many consecutive terms have one owner in A's cut and one in B's, in order."""
    owners = [(owner(i, k, columns), owner(i, k, rows)) for i in range(k)]
    return [owners.count(pair) for pair in sorted(set(owners))]


def part(x: np.ndarray, place: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """Block (i, j) of a matrix that is cut into rows x columns."""
    (i, j), (rows, columns) = place, grid
    down = [owner(q, len(x), rows) == i for q in range(len(x))]
    across = [owner(q, x.shape[1], columns) == j for q in range(x.shape[1])]
    return np.ascontiguousarray(x[np.array(down, bool)][:, np.array(across, bool)])


def matrices(sizes: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and a gradient of C."""
    rng = np.random.default_rng(sizes)
    m, k, n = sizes
    return rng.normal(size=(m, k)), rng.normal(size=(k, n)), rng.normal(size=(m, n))


def on_grid(
    grid: tuple[int, int],
    multiply: Callable[..., Any],
    first: np.ndarray,
    second: np.ndarray,
    layers: int = 1,
    *,
    is_layered: bool = False,
) -> list[Sent]:
    """What ``multiply(grid, block, block)`` gives on each rank; layers but the first get empty blocks."""

    def work(comm: Any) -> Sent:
        traced = Traced(comm)
        layer, place = divmod(comm.rank, grid[0] * grid[1])
        shape = LayeredGrid(traced, layers, *grid) if is_layered else ProcessGrid(traced, *grid)
        blocks = [part(x, divmod(place, grid[1]), grid) for x in (first, second)]
        if layer:
            blocks = [np.zeros((0, 0))] * 2
        before, after = traced.record.ledger.sent(), traced.record.ledger.received()
        block = multiply(shape, *blocks)
        sent, received = traced.record.ledger.sent(), traced.record.ledger.received()
        messages, numbers = sent.messages - before.messages, (sent.bytes - before.bytes) // 8
        return Sent(block, messages, numbers, (received.bytes - after.bytes) // 8)

    return run_ranks(layers * grid[0] * grid[1], work)


def is_product(
    what: str, blocks: Sequence[Any], first: np.ndarray, second: np.ndarray, grid: tuple[int, int]
) -> None:
    """Assert that the blocks, by rank, are those of ``first @ second``."""
    whole, scale = first @ second, np.abs(first) @ np.abs(second)
    for place, block in zip(product(range(grid[0]), range(grid[1])), blocks, strict=True):
        expected = part(whole, place, grid)
        assert block.shape == expected.shape, f"{what} {place} has shape {block.shape}, not {expected.shape}"
        off = np.abs(block - expected).max(initial=0.0)
        assert off <= BOUND * scale.max(initial=1.0), f"{what} {place} is off by {off:.1e}"


def sends(what: str, ranks: Sequence[Sent], messages: int, numbers: int) -> None:
    """Assert what all ranks together have sent, exactly."""
    actual = sum(r.messages for r in ranks), sum(r.numbers for r in ranks)
    assert actual == (messages, numbers), f"{what} sends {actual}, by formula {(messages, numbers)}"


def multiplies(summa: Any, panels: Any, sizes: Sizes, grid: tuple[int, int]) -> None:
    """Assert that SUMMA is a product, in blocks, and sends m k (c - 1) + k n (r - 1) numbers."""
    a, b, _ = matrices(sizes)
    rows, columns = grid
    terms = panels(sizes.k, rows, columns)
    ranks = on_grid(grid, lambda shape, x, y: summa(shape, x, y, terms), a, b)
    is_product("block of C", [r.block for r in ranks], a, b, grid)
    sends("SUMMA", ranks, *summa_costs(sizes, grid))
    products = [r.block.size * sizes.k for r in ranks]
    is_above_bounds(ranks, products, entries_of(sizes, grid))


def gives_gradient_of_a(gradient: Any, panels: Any, sizes: Sizes, grid: tuple[int, int]) -> None:
    """Assert that the gradient of A is G B^T, for as many messages as the product."""
    _, b, g = matrices(sizes)
    terms = panels(sizes.k, *grid)
    ranks = on_grid(grid, lambda shape, x, y: gradient(shape, x, y, terms), g, b)
    is_product("gradient of A", [r.block for r in ranks], g, b.T, grid)
    sends("the gradient of A", ranks, *summa_costs(sizes, grid))


def gives_gradient_of_b(gradient: Any, panels: Any, sizes: Sizes, grid: tuple[int, int]) -> None:
    """Assert that the gradient of B is A^T G, for as many messages as the product."""
    a, _, g = matrices(sizes)
    terms = panels(sizes.k, *grid)
    ranks = on_grid(grid, lambda shape, x, y: gradient(shape, x, y, terms), a, g)
    is_product("gradient of B", [r.block for r in ranks], a.T, g, grid)
    sends("the gradient of B", ranks, *summa_costs(sizes, grid))


def summa_costs(sizes: Sizes, grid: tuple[int, int]) -> tuple[int, int]:
    """Messages and numbers of all ranks: c - 1 copies of A and r - 1 of B, in a message for each panel."""
    rows, columns = grid
    messages = len(runs(sizes.k, rows, columns)) * (rows * (columns - 1) + columns * (rows - 1))
    return messages, sizes.a * (columns - 1) + sizes.b * (rows - 1)


def shifts(cannon: Any, sizes: Sizes, q: int) -> None:
    """Assert that Cannon's algorithm is a product; its skew and q - 1 shifts send what they should."""
    a, b, _ = matrices(sizes)
    ranks = on_grid((q, q), cannon, a, b)
    is_product("block of C", [r.block for r in ranks], a, b, (q, q))
    first_row, first_column = sizes.m // q, sizes.n // q  # which the skew leaves in place
    skew = (sizes.m - first_row) * sizes.k + sizes.k * (sizes.n - first_column)
    sends("Cannon", ranks, 2 * q * q * (q - 1) + 2 * q * (q - 1), (sizes.a + sizes.b) * (q - 1) + skew)
    products = [r.block.size * sizes.k for r in ranks]
    is_above_bounds(ranks, products, entries_of(sizes, (q, q)))


def multiplies_in_layers(summa_25d: Any, sizes: Sizes, layers: int, grid: tuple[int, int]) -> None:
    """Assert that 2.5D is a product on the first layer; copies and sum are 3 x (layers - 1) matrices more."""
    a, b, _ = matrices(sizes)
    rows, columns = grid
    ranks = on_grid(grid, lambda shape, x, y: summa_25d(shape, x, y, sizes.k), a, b, layers, is_layered=True)
    is_product("block of C", [r.block for r in ranks[: rows * columns]], a, b, grid)
    assert all(r.block is None for r in ranks[rows * columns :]), "another layer has a block of C"
    messages, numbers = summa_costs(sizes, grid)
    messages += 3 * (layers - 1) * rows * columns
    sends("2.5D", ranks, messages, numbers + (sizes.a + sizes.b + sizes.c) * (layers - 1))
    lengths = runs(sizes.k, rows, columns)
    count = [len(lengths) * i // layers for i in range(layers + 1)]
    terms = [sum(lengths[count[i] : count[i + 1]]) for i in range(layers)]
    places = [r.block.size for r in ranks[: rows * columns]]
    products = [size * number for number in terms for size in places]
    nothing = [0] * (len(ranks) - len(places))
    is_above_bounds(ranks, products, [*entries_of(sizes, grid), *nothing])


def entries_of(sizes: Sizes, grid: tuple[int, int]) -> list[int]:
    """How many entries of A, B and C each rank has."""
    shapes = (sizes.m, sizes.k), (sizes.k, sizes.n), (sizes.m, sizes.n)
    places = product(range(grid[0]), range(grid[1]))
    return [sum(part(np.zeros(shape), place, grid).size for shape in shapes) for place in places]


def is_above_bounds(ranks: Sequence[Sent], products: Sequence[int], entries: Sequence[int]) -> None:
    """Assert that each rank sends and receives what its products touch, but for the entries that it has."""
    for i, (rank, w, own) in enumerate(zip(ranks, products, entries, strict=True)):
        counted, least = rank.numbers + rank.received, numbers_touched(w) - own
        assert counted >= least - 1e-6, f"rank {i} sends and receives {counted} numbers, at least {least:.1f}"


def bounds_touched(touched: Callable[[float], float], products: set[tuple[int, int, int]]) -> None:
    """Assert that any set of products touches no fewer entries, and a cube of them exactly as many."""
    pairs = [(0, 1), (1, 2), (0, 2)]  # entries of A (i, l), of B (l, j) and of C (i, j)
    count = sum(len({(p[x], p[y]) for p in products}) for x, y in pairs)
    assert count >= touched(len(products)) - 1e-9, f"{len(products)} products touch {count} entries"
    edge = round(len(products) ** (1 / 3))
    cube = touched(edge**3)
    assert abs(cube - 3 * edge**2) < 1e-9, f"a cube of edge {edge} touches {3 * edge**2}, not {cube:.2f}"


def is_near_the_bounds(summa: Any, panels: Any, summa_25d: Any, q: int) -> None:
    """Assert the factors between what is sent and the bounds, for N x N on p = q x q and on p = q x q x q.

    SUMMA receives 2 (q - 1) N^2 / p numbers a rank, less than 10 times N^2 / (2 sqrt(6 p)), the first term of
    the bound with room for three blocks, and more than the bound with room for two panels too. On q layers
    2.5D sends and receives 10/3 of the bound without a limit, and so reaches it up to that factor.
    """
    n = q * q
    sizes, terms = Sizes(n, n, n), panels(n, q, q)
    a, b, _ = matrices(sizes)
    ranks = on_grid((q, q), lambda shape, x, y: summa(shape, x, y, terms), a, b)
    p, mean = q * q, sum(r.received for r in ranks) / (q * q)
    assert mean == 2 * (q - 1) * n * n / p, f"a rank receives {mean} numbers"
    first_term = with_memory(*sizes, p, 3 * n * n / p) + 3 * n * n / p
    assert abs(first_term - n * n / (2 * (6 * p) ** 0.5)) < 1e-9 * first_term, f"the bound is {first_term}"
    assert mean < 10 * first_term, f"{mean} numbers are 10 times {first_term:.1f} or more"
    assert 2 * mean >= with_memory(*sizes, p, 5 * n * n / p), f"{2 * mean} numbers are fewer than the bound"
    layered = on_grid((q, q), lambda shape, x, y: summa_25d(shape, x, y, n), a, b, layers=q, is_layered=True)
    mean, least = sum(r.numbers + r.received for r in layered) / q**3, without_a_limit(*sizes, q**3)
    assert abs(mean - 10 / 3 * least) < 1e-9 * mean, f"2.5D moves {mean:.1f}, the bound is {least:.1f}"
