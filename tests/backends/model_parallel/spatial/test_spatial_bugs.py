"""Laws of backends/model_parallel/spatial/halo.py, receptive_field.py and layers.py: each bug in the
splitting of images turns the laws red.
"""

import threading

import numpy as np
import pytest

from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.spatial import halo
from backends.model_parallel.spatial.receptive_field import Window
from minigrad import nn
from tests.backends.model_parallel.spatial.spatial_laws import (
    all_by,
    lenet,
    passes,
    sends_halos_and_weights,
    trains,
)
from tests.bugs.mutant import mutant


def with_bug(name, *change):
    """A strategy made of the library's files, one of them changed."""
    paths = {
        **{n: f"spatial.{n}" for n in ("receptive_field", "halo", "layers")},
        "model_parallel": "model_parallel",
    }
    files = {
        n: vars(mutant(f"backends.model_parallel.{path}", *([change] if n == name else [])))
        for n, path in paths.items()
    }
    files["halo"]["window_along"] = files["layers"]["window_along"] = files["receptive_field"]["window_along"]
    files["layers"].update({f: files["halo"][f] for f in ("receptive_field_of", "with_fetched_gradients")})
    files["model_parallel"].update({made: files["layers"][made] for made in ("tiling_of", "SPATIAL")})
    return files


def without_corners(fetch):
    """Rows and columns come, but not from those who are neighbours in both."""
    rows = {}

    def fetched(x, *, shard, needed, value, width, whole):
        y = fetch(x, shard=shard, needed=needed, value=value, width=width, whole=whole)
        if whole:
            return y
        mine = needed[shard.comm.rank]
        first, last = (
            n - mine.start + mine.before for n in (shard.local_slice.start, shard.local_slice.stop)
        )
        if shard.axis == 2:
            rows[threading.get_ident()] = first, last
            return y
        above = width[2][0]  # the rows' border is put on with the columns'
        near, (top, bottom) = np.zeros(y.shape[2:]), rows.pop(threading.get_ident())
        near[above + top : above + bottom] = near[:, first:last] = 1
        return y * near

    return fetched


NEEDED = "needed = [window.receptive_field(*limits, shard.length) for limits in pairwise(out.bounds)]"
GIVEN = "inner[index_along(axis, route.own_place)] = x[index_along(axis, route.own_rows)]"
BUGS = {
    "the halo is off by one": (
        "receptive_field", "low = min(max(start, 0), n)",
        "start, stop = start + (first > 0), stop + (first > 0)\n        low = min(max(start, 0), n)",
    ),
    "the halo's gradient is dropped": ("halo", "d[index_along(axis, route.sends[source])] += rows", "pass"),
    "the halo's gradient replaces the owner's": (
        "halo", "d[index_along(axis, route.sends[source])] += rows",
        "d[index_along(axis, route.sends[source])] = rows",
    ),
    "every tile has a border of its own": (
        "halo", NEEDED, NEEDED + """
        needed = [
            type(n)(max(n[0], i), min(n[1], j), n[2] + max(i - n[0], 0), n[3] + max(n[1] - j, 0))
            for n, (i, j) in zip(needed, pairwise(shard.bounds))
        ]""",
    ),
    "the border is the image's other end": (
        "halo", GIVEN, GIVEN + """
    framed = inside(y, {i: sides for i, sides in border.items() if i != axis})
    framed[index_along(axis, slice(mine.before))] = x[index_along(axis, slice(x.shape[axis] - mine.before,
    None))]""",
    ),
    "max pooling pads with zeros": ("layers", "border = -math.inf", "border = 0.0"),
    "average pooling does not count the border": (
        "layers", "operation = staticmethod(ops.avg_pool2d)",
        "operation = staticmethod(lambda x, **s: ops.avg_pool2d(x, **s)"
        " / ops.avg_pool2d(1.0 * (x.data != 0), **s))",
    ),
    "the border is put on twice": ("layers", "(0, 0) if shards else geometry.padding", "geometry.padding"),
    "the kernel is not turned round": ("halo", "[..., ::-1, ::-1]", ""),
    "groups change places": ("halo", "by_group.swapaxes(1, 2)", "by_group[::-1].swapaxes(1, 2)"),
    "going back, columns have no border": (
        "halo", "receptive_field_of(Tensor(g), outs, shards, back)",
        "ops.pad(receptive_field_of(Tensor(g), outs, shards, back._replace(padding=(back.padding[0], 0))),"
        " width=((0, 0), (0, 0), (0, 0), (0, 2 * back.padding[1])))",
    ),
    "images get their gradient twice": ("layers", "ShardedTensor(a.local.detach(), a.shards)", "a"),
    "batch-norm is each tile's own": ("layers", "partial(allgather, tiling.comm)", "lambda x: [x]"),
    "batch-norm's weights are not summed": (
        "layers", "self.partial = dict.fromkeys(layer.parameters(), tiling.comm)", "pass",
    ),
    "features are numbered in the order of the ranks": (
        "layers", "np.concatenate(parts))", "np.arange(numbers.size))",
    ),
}  # fmt: skip


def obeys_the_laws(strategy):
    rng = np.random.default_rng(0)
    net = nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, rng=rng),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.Conv2d(2, 2, 5, padding=1, groups=2, rng=rng),
        nn.AvgPool2d(3, stride=1, padding=1),
    )
    net.to(dtype=np.float64)
    for kind, ranks in (("rows", 3), ("tiles 2x2", 4)):
        passes((net, (2, 9, 8)), all_by(kind, net), ranks, strategy=strategy)
        trains(lenet(), (kind, ranks), [3], strategy=strategy)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_see_the_bug(bug):
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        obeys_the_laws(with_bug(*BUGS[bug])["model_parallel"]["ModelParallel"])


def test_the_laws_see_that_a_corner_is_missing():
    rng, files = np.random.default_rng(0), with_bug("none")
    net = nn.Sequential(*(nn.Conv2d(2, 2, 3, padding=1, rng=rng, dtype=np.float64) for _ in range(2)))
    strategy = files["model_parallel"]["ModelParallel"]
    obeys_the_laws(strategy)
    files["halo"]["fetch"] = without_corners(halo.fetch)
    passes((net, (2, 4, 6)), all_by("rows", net), 2, strategy=strategy)
    with pytest.raises(AssertionError, match="differs from serial"):
        passes((net, (2, 4, 6)), all_by("tiles", net), 4, strategy=strategy)


def test_the_laws_see_that_gradients_of_whole_weights_are_not_summed():
    class Forgets(ModelParallel):
        def finish(self, model, loss):
            return loss

    with pytest.raises(AssertionError, match="differs from serial"):
        obeys_the_laws(Forgets)


def test_a_border_that_travels_shows_in_the_bytes():
    """Rows of border are put on last, or a tile would send them along with its columns."""
    with pytest.raises(AssertionError):
        sends_halos_and_weights(
            Window(3, 1, 1), (2, 2), 1,
            with_bug(
                "halo", "if not last:", "if width.update({shard.axis: (0, 0)}):"
            )["model_parallel"]["ModelParallel"],
        )  # fmt: skip
