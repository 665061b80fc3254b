"""Bugs in the splitting of images: each turns the laws red."""

import threading

import numpy as np
import pytest

from backends.model_parallel import halo
from backends.model_parallel.geometry import Window
from backends.model_parallel.place import ModelParallel
from minigrad import nn
from tests.backends.spatial_laws import all_by, lenet, passes, sends_halos_and_weights, trains
from tests.bugs.mutant import mutant


def with_bug(name, *change):
    """A strategy made of the library's files, one of them changed."""
    names = ("geometry", "halo", "windows", "spatial", "place")
    files = {n: vars(mutant(f"backends.model_parallel.{n}", *([change] if n == name else []))) for n in names}
    files["windows"].update({op: files["halo"][op] for op in ("fetch", "take")})
    files["windows"]["Window"] = files["geometry"]["Window"]
    files["spatial"].update(
        {f: files["windows"][f] for f in ("seen_by", "window_along", "fetching_gradients")}
    )
    files["place"].update({made: files["spatial"][made] for made in ("tiling_of", "SPATIAL")})
    return files


def without_corners(fetch):
    """Rows and columns come, but not from those who are neighbours in both."""
    rows = {}

    def fetched(x, *, cut, wanted, value, width):
        y, needed = fetch(x, cut=cut, wanted=wanted, value=value, width=width), wanted[cut.comm.rank]
        first, last = (n - needed.start + needed.before for n in (cut.mine.start, cut.mine.stop))
        if cut.axis == 2:
            rows[threading.get_ident()] = first, last
            return y
        above = width[2][0]  # the rows' border is put on with the columns'
        near, (top, bottom) = np.zeros(y.shape[2:]), rows.pop(threading.get_ident())
        near[above + top : above + bottom] = near[:, first:last] = 1
        return y * near

    return fetched


WANTED = "wanted = [window.needs(*limits, cut.whole) for limits in pairwise(out.bounds)]"
GIVEN = "inner[along(axis, route.place)] = x[along(axis, route.kept)]"
BUGS = {
    "the halo is off by one": (
        "geometry", "low = min(max(start, 0), n)",
        "start, stop = start + (first > 0), stop + (first > 0)\n        low = min(max(start, 0), n)",
    ),
    "the halo's gradient is dropped": ("halo", "d[along(axis, route.gives[source])] += rows", "pass"),
    "the halo's gradient replaces the owner's": (
        "halo", "d[along(axis, route.gives[source])] += rows", "d[along(axis, route.gives[source])] = rows",
    ),
    "every tile has a border of its own": (
        "windows", WANTED, WANTED + """
        wanted = [
            type(n)(max(n[0], i), min(n[1], j), n[2] + max(i - n[0], 0), n[3] + max(n[1] - j, 0))
            for n, (i, j) in zip(wanted, pairwise(cut.bounds))
        ]""",
    ),
    "the border is the image's other end": (
        "halo", GIVEN, GIVEN + """
    framed = inside(y, {i: sides for i, sides in border.items() if i != axis})
    framed[along(axis, slice(mine.before))] = x[along(axis, slice(x.shape[axis] - mine.before, None))]""",
    ),
    "max pooling pads with zeros": ("spatial", "border = -math.inf", "border = 0.0"),
    "average pooling does not count the border": (
        "spatial", "operation = staticmethod(ops.avg_pool2d)",
        "operation = staticmethod(lambda x, **s: ops.avg_pool2d(x, **s)"
        " / ops.avg_pool2d(1.0 * (x.data != 0), **s))",
    ),
    "the border is put on twice": ("spatial", "(0, 0) if cuts else geometry.padding", "geometry.padding"),
    "the kernel is not turned round": ("windows", "[..., ::-1, ::-1]", ""),
    "groups change places": ("windows", "by_group.swapaxes(1, 2)", "by_group[::-1].swapaxes(1, 2)"),
    "going back, columns have no border": (
        "windows", "seen_by(Tensor(g), outs, cuts, back)",
        "ops.pad(seen_by(Tensor(g), outs, cuts, back._replace(padding=(back.padding[0], 0))),"
        " width=((0, 0), (0, 0), (0, 0), (0, 2 * back.padding[1])))",
    ),
    "images get their gradient twice": ("spatial", "Activation(a.x.detach(), a.cuts)", "a"),
    "batch-norm is each tile's own": ("spatial", "partial(allgather, tiling.comm)", "None"),
    "batch-norm's weights are not summed": (
        "spatial", 'self.partial = {"weight": tiling.comm, "bias": tiling.comm}', "pass",
    ),
    "features are numbered in the order of the ranks": (
        "spatial", "np.concatenate(parts))", "np.arange(numbers.size))",
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
        obeys_the_laws(with_bug(*BUGS[bug])["place"]["ModelParallel"])


def test_the_laws_see_that_a_corner_is_missing():
    rng, files = np.random.default_rng(0), with_bug("none")
    net = nn.Sequential(*(nn.Conv2d(2, 2, 3, padding=1, rng=rng, dtype=np.float64) for _ in range(2)))
    strategy = files["place"]["ModelParallel"]
    obeys_the_laws(strategy)
    files["windows"]["fetch"] = without_corners(halo.fetch)
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
                "windows", "if not last:", "if width.update({cut.axis: (0, 0)}):"
            )["place"]["ModelParallel"],
        )  # fmt: skip
