"""Bugs of products in blocks on a grid of ranks, and of the linear layers that are made of them."""

import numpy as np

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from backends.model_parallel.grid_products.cannon import cannon
from backends.model_parallel.grid_products.lower_bounds import numbers_touched
from backends.model_parallel.grid_products.summa import (
    panels,
    summa,
    summa_gradient_of_a,
    summa_gradient_of_b,
)
from backends.model_parallel.grid_products.summa_25d import summa_25d
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn, ops, optim
from minigrad.data import Batch
from tests.backends.model_parallel.grid_products import product_laws
from tests.backends.model_parallel.grid_products.product_laws import Sizes
from tests.backends.model_parallel.pass_laws import passes_like_serial
from tests.bugs.bug import Bug

EVEN, UNEVEN = Sizes(4, 8, 4), Sizes(5, 7, 4)


def blocks_are_multiplied() -> None:
    for sizes, grid in ((EVEN, (2, 2)), (UNEVEN, (2, 3)), (UNEVEN, (3, 2))):
        product_laws.multiplies(summa, panels, sizes, grid)


def gradients_are_products() -> None:
    for sizes, grid in ((EVEN, (2, 2)), (UNEVEN, (2, 3)), (UNEVEN, (3, 2))):
        product_laws.gives_gradient_of_a(summa_gradient_of_a, panels, sizes, grid)
        product_laws.gives_gradient_of_b(summa_gradient_of_b, panels, sizes, grid)


def blocks_are_shifted() -> None:
    product_laws.shifts(cannon, Sizes(6, 6, 6), 3)
    product_laws.shifts(cannon, UNEVEN, 3)


def layers_share_the_terms() -> None:
    product_laws.multiplies_in_layers(summa_25d, EVEN, 2, (2, 2))


def cubes_touch_the_least() -> None:
    product_laws.bounds_touched(numbers_touched, {*np.ndindex(2, 2, 2)})
    product_laws.bounds_touched(numbers_touched, {(0, 0, 0), (1, 1, 1)})


def bounds_are_near_what_is_sent() -> None:
    product_laws.is_near_the_bounds(summa, panels, summa_25d, 2)


def clipped(parameters):
    return optim.SGD(parameters, 0.5, momentum=0.9).clipped(0.05)


def trains(plan: dict[str, str], ranks: int) -> None:
    """Three layers, with dropout, of batches smaller than the grid has rows too."""

    def build(_: object = None) -> nn.Module:
        rng = np.random.default_rng(0)
        layers: list[nn.Module] = [nn.Linear(5, 7, rng=rng), nn.Dropout(0.3, rng=np.random.default_rng(1))]
        return nn.Sequential(*layers, nn.Linear(7, 6, rng=rng), nn.Tanh(), nn.Linear(6, 3, rng=rng))

    rng = np.random.default_rng(0)
    data = [Batch(rng.normal(size=(n, 5)), rng.integers(0, 3, n)) for n in (5, 4, 1)]
    strategy = lambda c: ModelParallel(c, plan)  # noqa: E731
    law = lambda comm: trains_like_serial(  # noqa: E731
        strategy, comm, build, ops.cross_entropy, data, optimizer=clipped
    )
    run_ranks(ranks, law)


def layers_on_a_grid_train_like_serial() -> None:
    trains(dict.fromkeys("024", "grid 2x2"), 4)
    trains(dict.fromkeys("024", "grid 3x1"), 3)
    trains({"0": "column", "2": "grid 2x2", "4": "row"}, 4)


def tokens_on_a_grid_pass_like_serial() -> None:
    def build() -> nn.Module:
        rng = np.random.default_rng(0)
        layers: list[nn.Module] = [
            nn.Linear(4, 5, rng=rng),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(10, 3, rng=rng),
        ]
        return nn.Sequential(*layers).to(dtype=np.float64)

    plan, x = {"0": "grid 2x2", "3": "grid 2x2"}, np.random.default_rng(0).normal(size=(3, 2, 4))
    run_ranks(4, lambda comm: passes_like_serial(lambda c: ModelParallel(c, plan), comm, build, x))


OFF, SERIAL = "is off by", "differs|of its scale on rank"

BUGS = [
    Bug("panels are those of A's cut for B too", "summa.panels", "shares(k, rows)", "shares(k, columns)",
        blocks_are_multiplied, "rank 2 does not exist"),
    Bug("a panel's place in B is counted from the first term", "summa.panels", "start - block.start",
        "start - a.start", blocks_are_multiplied, f"mismatch|{OFF}"),
    Bug("C is overwritten, not added", "summa.summa", "c += columns_of_a @ rows_of_b",
        "c = columns_of_a @ rows_of_b", blocks_are_multiplied, OFF),
    Bug("B's panel comes from the row with A's number", "summa.summa", "b[panel.of_b], panel.row",
        "b[panel.of_b], panel.column", blocks_are_multiplied, f"rank 2 does not exist|{OFF}"),
    Bug("the gradient of A is broadcast where it must be summed", "summa_gradient_of_a",
        "reduce(grid.row, g @ rows_of_b.T, root=panel.column)",
        "broadcast(grid.row, g @ rows_of_b.T, panel.column)", gradients_are_products,
        "gradient of A .* is off by"),
    Bug("each rank keeps its own term of the gradient of B", "summa_gradient_of_b",
        "reduce(grid.column, columns_of_a.T @ g, root=panel.row)",
        "columns_of_a.T @ g if grid.column.rank == panel.row else None", gradients_are_products, OFF),
    Bug("A is skewed to the right", "cannon.cannon", "shifted(grid.row, a, grid.column.rank)",
        "shifted(grid.row, a, -grid.column.rank)", blocks_are_shifted, OFF),
    Bug("B is not skewed", "cannon.cannon", "shifted(grid.column, b, grid.row.rank)", "b",
        blocks_are_shifted, OFF),
    Bug("Cannon forgets the earlier products", "cannon.cannon", "c += a @ b", "c = a @ b",
        blocks_are_shifted, OFF),
    Bug("one shift more than needed", "cannon.cannon", "range(q - 1)", "range(q)", blocks_are_shifted, OFF),
    Bug("a shift by nothing is a message", "cannon.shifted", "not distance % comm.size", "comm.size == 1",
        blocks_are_shifted, "Cannon sends"),
    Bug("each layer takes the whole sum", "summa_25d.summa_25d",
        "terms[shares(len(terms), depth.size)[depth.rank]]", "terms", layers_share_the_terms, OFF),
    Bug("layers are not added", "summa_25d.summa_25d", "reduce(depth, summa(grid, a, b, own))",
        "summa(grid, a, b, own) if depth.rank == 0 else None", layers_share_the_terms, OFF),
    Bug("a bound counts sent and received as two", "numbers_touched", "return 3 * ", "return 6 * ",
        cubes_touch_the_least, "touch"),
    Bug("a rank meets M entries of each matrix in a phase", "lower_bounds.with_memory", "(2 * memory) ** 1.5",
        "memory**1.5", bounds_are_near_what_is_sent, "the bound is"),
    Bug("a bound has no entries at home", "without_a_limit", " - (m * k + k * n + m * n) / ranks", "",
        bounds_are_near_what_is_sent, "2.5D moves"),
    Bug("the gradient of a bias has the samples of one row", "GridLinear.__init__",
        "self.partial[self.bias] = grid.column", "pass", layers_on_a_grid_train_like_serial, SERIAL),
    Bug("the gradient of a bias is summed along the row", "GridLinear.__init__",
        "self.partial[self.bias] = grid.column", "self.partial[self.bias] = grid.row",
        layers_on_a_grid_train_like_serial, f"expected float64|{SERIAL}"),
    Bug("a norm counts a block for each row of ranks once", "BlockShard.parts",
        "super().parts * self.inner.parts", "super().parts", layers_on_a_grid_train_like_serial, SERIAL),
    Bug("a tensor that is split otherwise passes for split", "ShardedTensor.redistribute",
        "mine not in new", "all(mine.axis != shard.axis for shard in new)",
        layers_on_a_grid_train_like_serial, f"mismatch|{SERIAL}"),
    Bug("flattened samples are as many as features", "ShardedFlatten.sharded_forward",
        "s.repeat(pixels) if s.axis else s", "s.repeat(pixels)", tokens_on_a_grid_pass_like_serial,
        "do not make the 3 of axis 0"),
]  # fmt: skip
