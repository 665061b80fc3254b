"""How the inputs and settings of ops are drawn: shapes and layouts shrink, values stay away from kinks."""

from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy

from minigrad import ops
from minigrad.device import Array
from minigrad.testing import c_order, fortran_order, on_device, reversed_order, with_gaps

Values = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Drawn = tuple[list[Any], dict[str, Any]]  # inputs, settings


def shapes(max_dims: int = 3, min_side: int = 0, min_dims: int = 0) -> SearchStrategy[tuple[int, ...]]:
    """Shapes with sides up to 4, 0 and 1 among them."""
    return st.lists(st.integers(min_side, 4), min_size=min_dims, max_size=max_dims).map(tuple)


def arrays(shape: tuple[int, ...], values: Values) -> SearchStrategy[Array]:
    """float64 arrays on the device: C or Fortran order, with gaps, or with negative strides."""
    seeds = st.integers(0, 2**16)
    drawn = st.tuples(seeds, st.sampled_from([c_order, fortran_order, with_gaps, reversed_order]))
    return drawn.map(lambda d: d[1](on_device(values(np.random.default_rng(d[0]), shape))))


# Values


def normal(rng, shape):
    return rng.normal(size=shape)


def positive(rng, shape):
    return rng.uniform(0.5, 2, shape)


def far_from_zero(rng, shape):
    return rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)


def odd_twentieths(rng, shape):
    """0.05, 0.15, ...: never near the kinks at 0 and 1."""
    return (2 * rng.integers(-20, 20, shape) + 1) / 20


def even_twentieths(rng, shape):
    """Never near an odd one."""
    return rng.integers(-20, 20, shape) / 10


def distinct(rng, shape):
    """No ties, and a spread of at least 0.25 wherever two are: no maximum jumps, no variance is tiny."""
    n = int(np.prod(shape))
    return (rng.permutation(n).reshape(shape) - n / 2) * 0.5


def with_zeros(rng, shape):
    """Far from zero, or zero."""
    return far_from_zero(rng, shape) * rng.choice([0, 1, 1], shape)


def far_odd_twentieths(rng, shape):
    """Never near a kink at 0 or 3, on both sides of them."""
    return 2 * odd_twentieths(rng, shape)


def truth(rng, shape):
    return rng.random(shape) < 0.5


# Inputs

Setting = Callable[[tuple[int, ...]], SearchStrategy[Any]]  # may depend on the (first) input's shape


@st.composite
def of_shape(draw, drawn_shapes, *values: Values, **settings: Setting) -> Drawn:
    """One array per shape drawn."""
    sizes = draw(drawn_shapes)
    inputs = [draw(arrays(shape, kind)) for shape, kind in zip(sizes, values, strict=True)]
    return inputs, {name: draw(setting(sizes[0])) for name, setting in settings.items()}


def one(values: Values = normal, min_side=0, min_dims=0, **settings: Setting) -> SearchStrategy[Drawn]:
    return of_shape(shapes(min_side=min_side, min_dims=min_dims).map(lambda s: [s]), values, **settings)


def broadcast(*values: Values) -> SearchStrategy[Drawn]:
    pairs = hnp.mutually_broadcastable_shapes(num_shapes=len(values), max_dims=3, min_side=0, max_side=3)
    return of_shape(pairs.map(lambda s: s.input_shapes), *values)


def twins(*values: Values, **settings: Setting) -> SearchStrategy[Drawn]:
    """Several arrays of one shape."""
    return of_shape(shapes(min_dims=1).map(lambda s: [s] * len(values)), *values, **settings)


def labelled(drawn: Drawn) -> SearchStrategy[Drawn]:
    """With one integer label per row, each a column of the first input."""
    (logits,), settings = drawn
    labels = hnp.arrays(np.int64, logits.shape[0], elements=st.integers(0, logits.shape[1] - 1))
    return labels.map(lambda y: ([logits, on_device(y)], settings))


def with_label_options(drawn: Drawn) -> SearchStrategy[Drawn]:
    """With labels, of which the first counts, and the settings of ``cross_entropy``."""
    (logits,), _ = drawn
    classes, shape = logits.shape[1], (logits.shape[0], *logits.shape[2:])

    @st.composite
    def strategy(draw) -> Drawn:
        ignored = draw(st.sampled_from([None, -1, 0] if classes > 1 else [None, -1]))
        labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, classes - 1)))
        labels.reshape(-1)[1::2] = 0 if ignored is None else ignored
        labels.reshape(-1)[:1] = classes - 1
        settings = {
            "weight": draw(class_weights(logits.shape)),
            "ignore_index": ignored,
            "label_smoothing": draw(st.sampled_from([0.0, 0.25])),
            "reduction": draw(reductions(shape)),
        }
        return [logits, on_device(labels)], settings

    return strategy()


def class_weights(shape) -> SearchStrategy[Any]:
    return st.none() | st.just(np.linspace(0.5, 2, shape[1]))


def reductions(_) -> SearchStrategy[str]:
    return st.sampled_from(["mean", "sum", "none"])


def looked_up(drawn: Drawn) -> SearchStrategy[Drawn]:
    """With indices of any shape into the first axis; repeated ones are likely."""
    (table,), settings = drawn
    indices = shapes(max_dims=2).flatmap(
        lambda s: hnp.arrays(np.int32, s, elements=st.integers(0, table.shape[0] - 1))
    )
    return indices.map(lambda i: ([table, on_device(i)], settings))


def into_segments(drawn: Drawn) -> SearchStrategy[Drawn]:
    """With the segment of each row, one of three; repeated ones are likely."""
    (x,), _ = drawn
    segments = hnp.arrays(np.int32, x.shape[0], elements=st.integers(0, 2))
    return segments.map(lambda s: ([x, on_device(s)], {"count": 3}))


@st.composite
def in_groups(draw) -> Drawn:
    """Rows of some groups, of which some are empty, with a matrix and a bias for each group."""
    counts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    n_in, n_out = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    sizes = [(sum(counts), n_in), (len(counts), n_out, n_in), (len(counts), n_out)]
    return [draw(arrays(shape, normal)) for shape in sizes], {"counts": counts}


@st.composite
def attention_inputs(draw, packed: bool = False) -> Drawn:
    """Queries, keys and values, or one array of them, and settings that say who sees whom."""
    (samples, rows, heads, size), more = draw(st.tuples(*[st.integers(0, 3)] * 4)), draw(st.integers(0, 3))
    alone = packed or draw(st.booleans())  # a sequence that attends to itself
    columns = rows if alone else more
    shapes = [(samples, rows, heads, 3 * size)]
    if not packed:
        shapes = [(samples, n, heads, m) for n, m in ((rows, size), (columns, size), (columns, more))]
    settings: dict[str, Any] = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        whole = [(samples, heads, rows, columns), (heads, 1, columns), (rows, 1), (1, 1, rows, columns)]
        settings["mask"] = on_device(draw(hnp.arrays(bool, draw(st.sampled_from(whole)))))
    if alone and draw(st.booleans()):
        documents = hnp.arrays(np.int32, (samples, rows), elements=st.integers(-1, 1))
        settings["documents"] = on_device(draw(documents))
    return [draw(arrays(shape, normal)) for shape in shapes], settings


def one_of(*values: Any) -> Setting:
    return lambda _: st.sampled_from(values)


def some_axes(shape) -> SearchStrategy[Any]:
    """None, one axis, or several; from either end."""
    if not shape:
        return st.none()
    return st.none() | an_axis(shape) | hnp.valid_tuple_axes(len(shape), min_size=1)


def an_axis(shape) -> SearchStrategy[int]:
    """An axis of ``shape``; 0 and -1 for a number, as in NumPy."""
    count = max(len(shape), 1)
    return st.integers(-count, count - 1)


def a_flag(_) -> SearchStrategy[bool]:
    return st.booleans()


def a_size(_) -> SearchStrategy[Any]:
    """One size, or two, of which None is that of the images."""
    return st.integers(1, 4) | st.tuples(st.integers(1, 4), st.none() | st.integers(1, 4))


def an_order(shape) -> SearchStrategy[Any]:
    negative = st.permutations([i - len(shape) for i in range(len(shape))])
    return st.none() | st.permutations(range(len(shape))) | negative


def another_shape(shape) -> SearchStrategy[Any]:
    n = int(np.prod(shape))
    whole = st.permutations(shape).map(tuple)
    return whole | st.just((-1, 1)) | st.just(-1) if n else whole


def any_index(shape) -> SearchStrategy[Any]:
    basic = hnp.basic_indices(shape, allow_newaxis=True)
    mask = hnp.arrays(bool, shape)
    if not shape or 0 in shape:
        return basic | mask
    integers = hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=4))
    first = st.lists(st.integers(-shape[0], shape[0] - 1), min_size=1, max_size=4)
    last = st.lists(st.integers(-shape[-1], shape[-1] - 1), min_size=1, max_size=4)
    slices = st.sampled_from([slice(None), slice(None, None, -1)])
    behind = st.builds(lambda part, numbers: (*[part] * (len(shape) - 1), numbers), slices, last)
    return basic | mask | integers | first | behind


def indexed(*values: Values) -> Callable[[Drawn], SearchStrategy[Drawn]]:
    """With an axis, indices along it that may repeat, elsewhere at most as long, and values for them."""

    @st.composite
    def strategy(draw, drawn: Drawn) -> Drawn:
        (x,), _ = drawn
        axis = draw(an_axis(x.shape)) if x.ndim else -1
        n = x.shape[axis] if x.ndim else 1
        sizes = [draw(st.integers(0, m)) for m in x.shape]
        if x.ndim:
            sizes[axis] = draw(st.integers(0, 3)) if n else 0
        indices = draw(hnp.arrays(np.int64, tuple(sizes), elements=st.integers(0, max(n - 1, 0))))
        return [x, on_device(indices), *[draw(arrays(tuple(sizes), kind)) for kind in values]], {"axis": axis}

    return strategy


@st.composite
def reductions_at_places(draw) -> Drawn:
    """Elements and values without ties, with the places of these."""
    inputs, settings = draw(one(normal).flatmap(indexed(distinct)))
    reduce = draw(st.sampled_from(["sum", "mean", "amax", "amin"]))
    return inputs, settings | {"reduce": reduce, "include_self": draw(st.booleans())}


SUBSCRIPTS: dict[str, list[Any]] = {
    "ij,jk->ik": [(2, 3), (3, 2)],
    "bij,bkj": [(2, 2, 3), (2, 3, 3)],
    "bqhd,bkhd->bhqk": [(2, 3, 2, 2), (2, 1, 2, 2)],
    "ii->i": [(3, 3)],
    "iji": [(2, 3, 2)],
    "ijk->kj": [(2, 3, 2)],
    "i,j->ji": [(2,), (3,)],
    "ij,ij->i": [(2, 3), (2, 3)],
    "ij,ij": [(2, 3), (2, 1)],
    "ik,kj,jl->il": [(2, 3), (3, 2), (2, 3)],
    "ij,ij,j->ij": [(2, 2), (2, 2), (2,)],
    "...ij,...jk->...ik": [(2, 1, 2, 3), (4, 3, 2)],
    "...i->...": [(2, 3)],
    "i...,i->": [(2, 3), (2,)],
    "aab,bc,d": [(2, 2, 3), (3, 0), (2,)],
    "ij,jk": [(2, 0), (0, 3)],
    ",i": [(), (2,)],
}


@st.composite
def contractions(draw) -> Drawn:
    subscripts = draw(st.sampled_from(list(SUBSCRIPTS)))
    shapes = SUBSCRIPTS[subscripts]
    return [draw(arrays(shape, normal)) for shape in shapes], {"subscripts": subscripts}


def concatenation(joins) -> SearchStrategy[Drawn]:
    @st.composite
    def strategy(draw) -> Drawn:
        shape = draw(shapes(min_dims=1))
        axis = draw(an_axis(shape))
        inputs = []
        for _ in range(draw(st.integers(1, 3))):
            size = list(shape)
            if joins is ops.concatenate:
                size[axis] = draw(st.integers(0, 3))
            inputs.append(draw(arrays(tuple(size), normal)))
        return inputs, {"axis": axis}

    return strategy()


MATRICES = hnp.mutually_broadcastable_shapes(
    signature="(m?,n),(n,p?)->(m?,p?)", max_dims=2, min_side=0, max_side=3
).map(lambda s: s.input_shapes)
PIXELS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 2), st.just(2)).map(
    lambda s: [s[: 2 + s[2]]]  # two to four axes: samples, classes, rows, columns
)
ROWS = st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 3))  # samples, in, out
LAYER = ROWS.map(lambda s: [s[:2], (s[2], s[1]), s[2:]])  # x, weight, bias
LAYERS = st.tuples(shapes(max_dims=2), ROWS).map(lambda s: [(*s[0], s[1][1]), (s[1][2], s[1][1]), s[1][2:]])
NORM = st.tuples(ROWS, st.booleans()).map(lambda d: [d[0][: 2 + d[1]], d[0][1:2], d[0][1:2]])
NORM_IMAGES = ROWS.map(lambda s: [(*s[:2], s[2], 2), s[1:2], s[1:2]])
NORM_LAST = st.tuples(ROWS, st.integers(1, 2)).map(lambda d: [d[0], d[0][d[1] :], d[0][d[1] :]])
NORM_GROUPS = ROWS.map(lambda s: [(s[0], 2 * s[1], s[2], 2), (2 * s[1],), (2 * s[1],)])
IMAGES = st.tuples(*[st.integers(least, most) for least, most in ((0, 2), (1, 2), (1, 5), (1, 5))])
IMAGE = IMAGES.map(lambda s: [s])


@st.composite
def windows(draw, n_arrays: int, values=normal, **others: Setting) -> Drawn:
    """Images, and for n_arrays = 2 or 3 filters and bias; settings in which the window fits."""
    stride, padding = draw(st.tuples(st.integers(1, 2), st.integers(1, 3))), draw(st.integers(0, 1))
    kernel = draw(st.tuples(st.integers(max(1, 2 * padding), 3), st.integers(max(1, 2 * padding), 3)))
    n, size = draw(st.integers(1, 2)), draw(st.tuples(st.integers(5, 6), st.integers(5, 6)))
    if n_arrays == 1:
        x = draw(arrays((n, draw(st.integers(1, 2)), *size), values))
        settings = {"kernel": kernel, "stride": draw(st.none() | st.just(stride)), "padding": padding}
        return [x], settings | {name: draw(setting(size)) for name, setting in others.items()}
    groups, per_group, filters = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sizes = [(n, groups * per_group, *size), (groups * filters, per_group, *kernel), (groups * filters,)]
    inputs = [draw(arrays(s, values)) for s in sizes[:n_arrays]]
    border = {"stride": stride, "padding": padding}
    if draw(st.integers(0, 3)) == 0:
        border = {"padding": "same"}
    return inputs, border | {"dilation": draw(st.integers(1, 2)), "groups": groups}


@st.composite
def pooled_windows(draw) -> Drawn:
    """Images, filters and bias; settings in which a window of the pooling fits."""
    groups, n, filters = (draw(st.integers(1, 2)) for _ in range(3))
    kernel, pool = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (3, 2))
    sizes = [(n, 2 * groups, 5, 6), (groups * filters, 2, *kernel), (groups * filters,)]
    settings = {"padding": draw(st.integers(0, 1)), "groups": groups, "relu": draw(st.booleans())}
    return [draw(arrays(s, normal)) for s in sizes], settings | {"pool": pool}


@st.composite
def signals(draw) -> Drawn:
    """Signals, filters and bias; settings in which the window fits."""
    groups, per_group, filters, kernel = (draw(st.integers(1, most)) for most in (2, 2, 2, 3))
    sizes = [
        (draw(st.integers(0, 2)), groups * per_group, draw(st.integers(5, 6))),
        (groups * filters, per_group, kernel),
        (groups * filters,),
    ]
    border = draw(st.sampled_from([{"padding": "same"}, {"stride": 2, "padding": 1}, {"stride": 1}]))
    return [draw(arrays(s, normal)) for s in sizes], border | {"groups": groups, "dilation": 2}


@st.composite
def transposed_signals(draw) -> Drawn:
    """Signals, filters and bias, and settings with which something is left of the output."""
    groups, kernel, stride = (draw(st.integers(1, most)) for most in (2, 3, 3))
    sizes = [(draw(st.integers(0, 2)), groups, draw(st.integers(2, 3))), (groups, 2, kernel), (2 * groups,)]
    settings = {"stride": stride, "groups": groups, "padding": int(kernel > 1), "output_padding": stride - 1}
    return [draw(arrays(s, normal)) for s in sizes], settings


@st.composite
def pooled_signals(draw, values=normal) -> Drawn:
    """Signals, and settings in which the window fits."""
    x = draw(arrays((draw(st.integers(0, 2)), 2, draw(st.integers(5, 6))), values))
    windows = {"kernel": 3, "stride": draw(st.sampled_from([None, 1, 2])), "padding": draw(st.integers(0, 1))}
    return [x], windows | {"ceil_mode": draw(st.booleans())}


@st.composite
def transposed_windows(draw) -> Drawn:
    """Images, filters and bias, and settings with which something is left of the output."""
    groups, per_group, filters, rows, columns = (draw(st.integers(1, most)) for most in (2, 2, 2, 3, 3))
    sizes = [
        (draw(st.integers(0, 2)), groups * per_group, draw(st.integers(2, 3)), draw(st.integers(2, 3))),
        (groups * per_group, filters, rows, columns),
        (groups * filters,),
    ]
    settings = {"stride": draw(st.tuples(st.integers(1, 3), st.integers(2, 3))), "groups": groups}
    settings |= {"padding": (int(rows > 1), int(columns > 2)), "dilation": draw(st.integers(1, 2))}
    more = draw(st.integers(0, max(settings["stride"][0], settings["dilation"]) - 1))
    settings["output_padding"] = (more, draw(st.integers(0, 1)))
    return [draw(arrays(s, normal)) for s in sizes], settings
