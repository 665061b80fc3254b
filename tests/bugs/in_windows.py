"""Bugs of pools, transposed convolutions, interpolation and normalisations of samples."""

from functools import partial
from unittest.mock import patch

import numpy as np

from minigrad import nn, ops, testing
from minigrad.ops.fast import conv_pool, kernel_rows
from minigrad.ops.fast.conv import ALGORITHMS
from minigrad.ops.geometry import Geometry
from tests.bugs.bug import Bug
from tests.minigrad.ops import extremes, norm_laws, op_laws, window_laws
from tests.minigrad.ops.fast import fast_form_laws

# Laws


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def pools_are_their_definitions() -> None:
    x = -abs(drawn(2, 2, 6, 5)) - 1
    windows = {"kernel": (3, 2), "stride": (2, 3), "padding": (1, 1), "ceil_mode": True}
    for dilation in ((1, 1), (2, 1)):
        window_laws.pool_is_its_definition(ops.max_pool2d, x, False, **windows, dilation=dilation)
    for count in (True, False):
        window_laws.pool_is_its_definition(ops.avg_pool2d, x, True, **windows, count_include_pad=count)
    testing.gradient_matches_difference(partial(ops.max_pool2d, kernel=2, dilation=2), drawn(2, 2, 5, 5))


def readable_pools_are_their_definitions() -> None:
    with window_laws.readable_pools():
        pools_are_their_definitions()


def means_of_half_precision_add_in_single() -> None:
    mean = partial(ops.avg_pool2d, kernel=(60, 50))
    op_laws.half_precision_loses_only_its_own_digits(mean, 3 + drawn(1, 3, 60, 50))


def windows_of_minus_infinities_have_a_gradient() -> None:
    x, g = np.full((1, 1, 4, 4), -np.inf), np.arange(1.0, 10).reshape(1, 1, 3, 3)
    fast_form_laws.in_both_forms(extremes.pooling_takes_one, ops.max_pool2d, x, g, 2, 2, 1)


def pools_of_signals_are_their_definitions() -> None:
    windows = {"kernel": (1, 3), "stride": (1, 2), "padding": (0, 1), "ceil_mode": True}
    for op, more in ((ops.max_pool1d, {"dilation": (1, 2)}), (ops.avg_pool1d, {"count_include_pad": False})):
        pool = window_laws.pool_of_rows(op)
        window_laws.pool_is_its_definition(pool, drawn(2, 2, 1, 7), op is ops.avg_pool1d, **windows, **more)


def adaptive_pools_are_their_definitions() -> None:
    x = np.random.default_rng(0).integers(-1, 2, (2, 2, 7, 5)).astype(float)
    window_laws.adaptive_pool_is_its_definition(ops.adaptive_avg_pool2d, x, (4, 3), True)
    window_laws.adaptive_pool_is_its_definition(ops.adaptive_max_pool2d, x, (4, 3), False)
    x[:, :, -1, -1] = np.nan
    window_laws.adaptive_pool_is_its_definition(ops.adaptive_max_pool2d, x, (4, 3), False)


def maxima_by_loops_are_the_readable_ones() -> None:
    """With ties, with windows of which no pixel is larger than the border, with NaN, and with many taps."""
    x = np.random.default_rng(0).integers(-1, 2, (2, 3, 6, 5)).astype(float)
    x[:, 0] = -np.inf
    x[:, 1, 4, 3:] = np.nan
    pool = partial(ops.max_pool2d, kernel=3, stride=2, padding=1)
    windows_by_loops_are_the_readable_ones(pool, x, roundings=0)
    windows_by_loops_are_the_readable_ones(
        partial(ops.adaptive_max_pool2d, output_size=(4, 3)), x, roundings=0
    )
    long = np.arange(-400.0, 400).reshape(1, 1, 2, 400)
    windows_by_loops_are_the_readable_ones(partial(ops.max_pool2d, kernel=(2, 300)), long, roundings=0)


def means_by_loops_are_the_readable_ones() -> None:
    settings = {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True}
    for pool in (
        partial(ops.avg_pool2d, **settings),
        partial(ops.avg_pool2d, **settings, count_include_pad=False),
        partial(ops.avg_pool2d, kernel=2),
        partial(ops.adaptive_avg_pool2d, output_size=(4, 3)),
    ):
        windows_by_loops_are_the_readable_ones(pool, drawn(2, 3, 6, 4))


def interpolation_by_loops_is_the_readable_one() -> None:
    for settings in ({"mode": "nearest"}, {"mode": "bilinear"}):
        op = partial(ops.interpolate, size=(5, 9), **settings)
        windows_by_loops_are_the_readable_ones(op, drawn(2, 3, 3, 4))


def windows_by_loops_are_the_readable_ones(op, x: np.ndarray, roundings: int | None = None) -> None:
    g = np.random.default_rng(1).integers(-9, 10, op(x).shape).astype(float)
    fast_form_laws.loops_are_the_readable_form(op, g, x, roundings=roundings)


def a_pool_holds_a_byte_for_each_maximum() -> None:
    window_laws.pool_holds(ops.max_pool2d, drawn(2, 3, 8, 8), 1)
    window_laws.pool_holds(ops.avg_pool2d, drawn(2, 3, 8, 8), 0)


def transposed_convolutions_are_adjoints() -> None:
    more = {"stride": (2, 1), "dilation": (1, 2), "output_padding": (1, 1), "padding": (0, 1), "groups": 2}
    for seed in range(3):
        window_laws.transposed_is_the_adjoint(ops.conv_transpose2d, ops.conv2d, seed, **more)
        of_signals = {name: pair if name == "groups" else pair[:1] for name, pair in more.items()}
        window_laws.transposed_is_the_adjoint(ops.conv_transpose1d, ops.conv1d, seed, **of_signals)
    inputs = drawn(2, 4, 3, 3), drawn(4, 2, 2, 3), drawn(4)
    testing.gradient_matches_difference(partial(ops.conv_transpose2d, **more), *inputs)
    op_laws.pullbacks_keep_the_contract(partial(ops.conv_transpose2d, **more), *inputs)


def same_is_padding_at_the_end() -> None:
    window_laws.same_is_padding_at_the_end(ops.conv2d, drawn(2, 2, 4, 5), drawn(3, 2, 2, 3), (1, 2))
    f = partial(ops.conv2d, padding="same")
    testing.gradient_matches_difference(f, drawn(2, 2, 4, 5), drawn(3, 2, 2, 3))


def fast_convolutions_are_the_direct_one() -> None:
    rng = np.random.default_rng(0)
    for name, channels, filters, groups, stride, padding, dilation in (
        ("depthwise", 3, 3, 3, (1, 2), (1, 1), (2, 3)),
        ("depthwise", 3, 3, 3, (1, 1), (1, 1), (1, 1)),
        ("im2col", 4, 6, 2, (2, 3), (1, 2), (1, 2)),
        ("im2col", 1, 4, 1, (1, 1), (1, 1), (1, 1)),
        ("kernel_rows", 4, 6, 2, (1, 1), (1, 1), (1, 1)),
        ("winograd", 2, 3, 1, (1, 1), (2, 1), (2, 2)),
        ("winograd_rows", 4, 6, 2, (1, 1), (1, 1), (1, 1)),
    ):
        geometry = Geometry((3, 3), stride, padding, dilation, groups)
        shapes = (
            (2, 9, 8, channels),
            (filters, channels // groups, 3, 3),
            (2, *geometry.output(9, 8), filters),
        )
        x, w, g = (rng.integers(-4, 5, shape).astype(float) for shape in shapes)
        (y, pullbacks), (value, oracles) = (ALGORITHMS[a](x, w, geometry) for a in (name, "direct"))
        for fast, slow in ((y, value), *((f(g), h(g)) for f, h in zip(pullbacks, oracles, strict=True))):
            np.testing.assert_allclose(fast, slow, atol=1e-10, err_msg=name)


def depthwise_convolutions_are_alike() -> None:
    op = partial(ops.conv2d, stride=(1, 2), padding=(1, 2), groups=3)
    g = op(drawn(2, 3, 5, 6), drawn(3, 1, 2, 3)).data
    fast_form_laws.loops_are_the_readable_form(op, g, drawn(2, 3, 5, 6), drawn(3, 1, 2, 3), drawn(3))


def kernels_of_integers_are_numbers() -> None:
    for name in ("winograd", "winograd_rows"):
        window_laws.integers_are_numbers(partial(ops.conv2d, algorithm=name))


def interpolation_is_its_definition() -> None:
    modes = ({"mode": "nearest"}, {"mode": "bilinear"}, {"mode": "nearest-exact"})
    for mode in (*modes, {"mode": "bilinear", "align_corners": True}):
        for scale in ({"scale_factor": (3, 2)}, {"size": (5, 3)}):
            window_laws.interpolation_is_its_definition(ops.interpolate, drawn(2, 2, 3, 4), **scale, **mode)
            testing.gradient_matches_difference(partial(ops.interpolate, **scale, **mode), drawn(2, 2, 3, 4))
    factor = {"scale_factor": (7 / 6, 1), "mode": "nearest"}
    window_laws.interpolation_is_its_definition(ops.interpolate, drawn(1, 1, 900, 1), **factor)
    window_laws.interpolation_spreads_to_neighbours_only(ops.interpolate, np.inf)


def samples_are_normalized() -> None:
    x, channels = 2 * drawn(2, 4, 3, 2) + 1, drawn(4)
    norm_laws.normalizes_groups(ops.group_norm, x, 2, groups=2)
    norm_laws.normalizes_groups(ops.instance_norm, x, 4)
    testing.gradient_matches_difference(partial(ops.group_norm, groups=2), x, channels, channels)
    norm_laws.divides_by_the_root_mean_square(ops.rms_norm, x, drawn(3, 2), 0.1)
    norm_laws.several_axes_are_one(ops.layer_norm, x, drawn(3, 2), drawn(3, 2))
    testing.gradient_matches_difference(ops.rms_norm, x, drawn(3, 2))


def one_pass_is_the_ops_one_by_one() -> None:
    rng = np.random.default_rng(0)
    shapes = (3, 2, 8, 7), (4, 2, 3, 2), (4,)
    x, *others = (rng.integers(-1, 2, shape).astype(float) for shape in shapes)
    for outlier, cache in ((0.0, 1), (np.nan, conv_pool.WINDOW_BYTES)):
        x[0, 0, 3, 3] = outlier
        settings = {"pool": (2, 3), "padding": (1, 0), "relu": True}
        with patch.object(conv_pool, "WINDOW_BYTES", cache):
            window_laws.is_convolution_pooling_and_relu(ops.conv_pool2d, (x, *others), **settings)


def one_pass_by_winograd_is_the_ops_one_by_one() -> None:
    inputs = drawn(3, 2, 9, 7), drawn(4, 2, 3, 3), drawn(4)
    settings = {"pool": (2, 2), "padding": (1, 0), "relu": True}
    for algorithm in ("winograd", "winograd_rows"):
        fastest = patch.object(conv_pool, "fastest", lambda *_, name=algorithm: name)
        with patch.object(conv_pool, "WINDOW_BYTES", 1), fastest:
            window_laws.is_convolution_pooling_and_relu(ops.conv_pool2d, inputs, bits=False, **settings)


def convolutions_of_bands_are_the_direct_one() -> None:
    with patch.object(kernel_rows, "IMAGE_BYTES", 1):
        fast_convolutions_are_the_direct_one()


def a_relu_goes_with_batch_norm() -> None:
    x, weight = np.random.default_rng(0).normal(size=(2, 6, 3)), np.array([1.0, 0, -2])
    norm_laws.takes_the_relu_behind_it(ops.batch_norm, x[0], x[1], weight, weight)


def a_normalisation_holds_one_array() -> None:
    for norm in (ops.batch_norm, ops.layer_norm, partial(ops.group_norm, groups=1)):
        norm_laws.holds_one_array(norm, drawn(64, 16, 8, 16))


def normalisations_by_loops_are_the_readable_ones() -> None:
    x, g = drawn(2, 4, 5, 8) + 3, drawn(2, 4, 5, 8)[::-1]
    for op, n in (
        (ops.batch_norm, 4),
        (partial(ops.batch_norm, relu=True), 4),
        (partial(ops.group_norm, groups=2), 4),
        (ops.layer_norm, 8),
    ):
        fast_form_laws.loops_are_the_readable_form(op, g, x, drawn(n), drawn(n))


def another_batch_norm_has_no_relu() -> None:
    class Doubled(nn.BatchNorm):
        def forward(self, x):
            return super().forward(x) * 2.0

    norm_laws.stands_for_its_layers(nn.Sequential(Doubled(3), nn.ReLU()), drawn(6, 3), ops_less=0)


def only_windows_side_by_side_are_one_pass() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, rng=0), nn.ReLU(), nn.MaxPool2d(2, stride=1))
    x = drawn(1, 1, 64, 64).astype(np.float32)
    assert np.array_equal(model(x).numpy(), model[2](model[1](model[0](x))).numpy()), "other layers"


# Bugs

DIFFERENCE = "central difference"

BUGS = [
    Bug("a last window begins behind the image", "pool_geometry",
        "min(-(-(n + 2 * p - extent) // step), (n + p - 1) // step)", "-(-(n + 2 * p - extent) // step)",
        pools_are_their_definitions, "shapes|Mismatch"),
    Bug("a maximum starts from 0", "write_maxima", "y[n, i] = -np.inf", "y[n, i] = 0",
        pools_are_their_definitions, "Mismatched elements"),
    Bug("zeros stand around the readable image for a maximum", "max_of_windows", "border=lowest(x)",
        "border=0", maxima_by_loops_are_the_readable_ones, "the value"),
    Bug("padding counts although it should not", "window_tables", "padding if count_include_pad else 0",
        "padding", pools_are_their_definitions, "Mismatched elements"),
    Bug("padding counts in a readable mean although it should not", "elements_of_windows",
        "if count_include_pad:", "if True:", readable_pools_are_their_definitions, "Mismatched elements"),
    Bug("what is behind the padding counts in a mean", "window_tables",
        "np.minimum(stop, n + border) - np.maximum(first, -border)", "stop - np.maximum(first, -border)",
        pools_are_their_definitions, "Mismatched elements"),
    Bug("what is behind the padding counts in a readable mean", "elements_of_windows",
        "not any(geometry.extra) and (count_include_pad or not any(geometry.padding))",
        "count_include_pad or not any(geometry.padding)", means_by_loops_are_the_readable_ones, "the value"),
    Bug("the gradient of a tile is not divided", "mean_of_tiles", "share = (g / (kh * kw))[", "share = g[",
        means_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("readable windows that overlap overwrite one another's gradient", "add_at_taps",
        "padded[place] += part", "padded[place] = part", maxima_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("a readable window gives NaN's gradient away", "max_of_windows", "first | xp.isnan(value)", "first",
        maxima_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("the last of equal elements is the largest", "max_of_windows", " & (winner == -1)", "",
        maxima_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("loops give a tie to the last pixel", "write_maxima", "(value > top) |", "(value >= top) |",
        maxima_by_loops_are_the_readable_ones, "gradient 0", thorough=True),
    Bug("loops overlook NaN", "write_maxima", " | (value != value)", "",
        maxima_by_loops_are_the_readable_ones, "the value", thorough=True),
    Bug("loops leave the last tap out", "write_maxima", "for k in range(len(taps)):",
        "for k in range(len(taps) - 1):", pools_are_their_definitions, "Mismatched elements",
        thorough=True),
    Bug("the border of a window is a pixel of its own", "write_gradient_of_maxima",
        "places[k if k > least else least]", "places[k]", windows_of_minus_infinities_have_a_gradient, "for",
        thorough=True),
    Bug("the gradient of a maximum is counted from the image's edge", "write_gradient_of_maxima",
        "r, s = rows[i, 0], columns[j, 0]", "r, s = max(rows[i, 0], 0), max(columns[j, 0], 0)",
        maxima_by_loops_are_the_readable_ones, "gradient 0", thorough=True),
    Bug("maxima of two windows overwrite one another's gradient", "write_gradient_of_maxima",
        "least else least]] += g", "least else least]] = g", maxima_by_loops_are_the_readable_ones,
        "gradient 0", thorough=True),
    Bug("every tap has a number of one byte", "max_by_loops", "np.uint8 if len(taps) <= 256 else np.uint32",
        "np.uint8", maxima_by_loops_are_the_readable_ones, "gradient 0", thorough=True),
    Bug("a pool holds a word for each maximum", "max_by_loops", "np.uint8 if len(taps) <= 256 else np.uint32",
        "np.uint32", a_pool_holds_a_byte_for_each_maximum, "the tape holds"),
    Bug("the gradient holds the images", "means_by_loops", "write_gradient_of_means(g, *tables(), d)",
        "write_gradient_of_means(g, *tables(), d + 0 * x)", a_pool_holds_a_byte_for_each_maximum,
        "the tape holds", thorough=True),
    Bug("all windows of a row have the first one's divisor", "write_means",
        "divisor = x.dtype.type(rows[i, 2] * columns[j, 2])",
        "divisor = x.dtype.type(rows[i, 2] * columns[0, 2])", means_by_loops_are_the_readable_ones,
        "the value", thorough=True),
    Bug("a window's sums begin with those of the rows above", "write_means", "            of_tall[:] = 0\n",
        "", pools_are_their_definitions, "Mismatched elements", thorough=True),
    Bug("loops of means leave the last column out", "write_means", "for b in range(longest):",
        "for b in range(longest - 1):", pools_are_their_definitions, "Mismatched elements", thorough=True),
    Bug("means of two windows overwrite one another's gradient", "write_gradient_of_means",
        "wide[s, c] += share", "wide[s, c] = share", means_by_loops_are_the_readable_ones, "gradient 0",
        thorough=True),
    Bug("a signal's windows stand side by side", "avg_pool1d",
        '{"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}',
        '{"kernel": kernel, "stride": None, "padding": padding, "ceil_mode": ceil_mode}',
        pools_of_signals_are_their_definitions, "shapes|Mismatch"),
    Bug("adaptive windows are rounded down at both ends", "resize.spans", "-(-(i + 1) * n // count)",
        "(i + 1) * n // count", adaptive_pools_are_their_definitions, "Mismatched elements"),
    Bug("the first largest is sought down the columns", "along_axes",
        "step(x, columns, 2)\n    y, to_narrow = step(narrow, rows, 1)",
        "step(x, rows, 1)\n    y, to_narrow = step(narrow, columns, 2)",
        maxima_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("adaptive windows have the taps of the last one", "adaptive_pool.tables_and_taps",
        "down[:, 2].max(), across[:, 2].max()", "down[-1, 2], across[0, 2]",
        adaptive_pools_are_their_definitions, "Mismatched elements"),
    Bug("windows that overlap overwrite one another's gradient", "in_each_window", "d[window] += pullback",
        "d[window] = pullback", means_by_loops_are_the_readable_ones, "gradient 0"),
    Bug("output padding is forgotten", "transposed_sizes", "(n - 1) * s - 2 * p + extent + more",
        "(n - 1) * s - 2 * p + extent", transposed_convolutions_are_adjoints, "the output has"),
    Bug("a window more than x has is not seen", "conv_transpose2d", "(rows - height, columns - width))",
        "(0, 0))", transposed_convolutions_are_adjoints, "the output has|shape"),
    Bug("a transposed convolution gives away what it holds", "conv_transpose2d",
        "[:, :height, :width].copy()", "[:, :height, :width]", transposed_convolutions_are_adjoints,
        "gives away what it holds"),
    Bug("a channel's last tap overwrites the others", "sums_of_products", "out[t] += part[t] * f[t]",
        "out[t] = part[t] * f[t]", fast_convolutions_are_the_direct_one, "Mismatched elements",
        thorough=True),
    Bug("a channel's gradient goes to the column before", "sums_of_products",
        "part = images[n, row, (first * across + spans[m, 0]) * channels :]",
        "part = images[n, row, max(first * across + spans[m, 0] - (into == IMAGES), 0) * channels :]",
        fast_convolutions_are_the_direct_one, "Mismatched elements", thorough=True),
    Bug("the kernels of channels are sums of one row", "sums_of_products",
        "(across > 1 or i == outputs.shape[1] - 1)", "i == 0", fast_convolutions_are_the_direct_one,
        "Mismatched elements", thorough=True),
    Bug("the readable depthwise convolution forgets its padding in backward", "by_taps",
        "return d[:, ph : ph + height, pw : pw + width]", "return d[:, :height, :width]",
        depthwise_convolutions_are_alike, "gradient 0"),
    Bug("tiles of rows begin without the padding", "winograd_rows.in_tiles", "band.start * out - ph",
        "band.start * out", fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("windows behind the last column count for the kernel", "winograd_rows.kernel_gradient",
        "gradients = np.zeros((IN, windows", "gradients = np.ones((IN, windows",
        fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("the last product of six rows counts for the first output", "powers", "np.eye(count, dtype=int)[-1]",
        "np.eye(count, dtype=int)[0]", fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("the fractions of a kernel of integers are cut off", "Way.__call__",
        "else a.astype(fractions) for a in (x, w)", "else a for a in (x, w)", kernels_of_integers_are_numbers,
        "Mismatched elements"),
    Bug("a phase of the image begins with the gradient", "phases", "start = above - (taps[-1]",
        "start = -(taps[-1]", fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("every phase begins where the first one does", "sum_of_phases",
        "column.start - left : column.stop - left", "0 : column.stop - column.start",
        fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("a pixel's shares are those of windows that begin there", "add_back", "tap_row - i * row", "tap_row",
        fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("a gradient has as many images as the value of a transposed convolution", "add_back",
        "xp.empty((groups, few, n, ", "xp.empty((groups, few, shape[0], ",
        transposed_convolutions_are_adjoints, "broadcast|reshape|match"),
    Bug("a matrix of few windows has their columns first", "all_windows",
        "patches.transpose(5, 3, 4, 0, 1, 2)", "patches.transpose(5, 4, 3, 0, 1, 2)",
        fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("a kernel is turned in one direction only", "rotated_kernel", "[..., ::-1, ::-1]", "[..., ::-1]",
        fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("remainders of rows come back as those of columns", "dilation.join", "transpose(2, 3, 0, 4, 1, 5)",
        "transpose(2, 3, 1, 4, 0, 5)", fast_convolutions_are_the_direct_one, "Mismatched elements"),
    Bug("a signal's steps are single ones", "conv_transpose1d", "output_padding, **settings)",
        'output_padding, **settings | {"stride": 1})', transposed_convolutions_are_adjoints,
        "the output has|output_padding"),
    Bug("same is one row short of same", "geometry_of_shapes", "extra=(rows % 2, columns % 2)",
        "extra=(0, 0)", same_is_padding_at_the_end, "is not as large as"),
    Bug("the gradient keeps the border of same", "Way.with_extra_border", "to_larger(g)[:, :height, :width]",
        "to_larger(g)", same_is_padding_at_the_end, "shape|broadcast"),
    Bug("a tie goes to the second pixel", "maxima", "np.greater(", "np.greater_equal(",
        one_pass_is_the_ops_one_by_one, "gradient of the images"),
    Bug("a NaN is no largest pixel", "maxima", "if np.isnan(y.max()):", "if False:",
        one_pass_is_the_ops_one_by_one, "gradient of the images"),
    Bug("windows that others have overwritten are kept", "by_phase", "x.itemsize, min(KEPT, WINDOW_BYTES)",
        "x.itemsize, KEPT", one_pass_is_the_ops_one_by_one, "the value"),
    Bug("all images get the first one's parts of the gradient", "by_phase", "all_shares(g)[:, *place]",
        "all_shares(g)[:, *[slice(part.stop - part.start) for part in place]]",
        one_pass_is_the_ops_one_by_one, "gradient of the images"),
    Bug("the gradient stands in the border that it was made with", "by_phase",
        "top * row + left * column, strides", "0, strides", one_pass_is_the_ops_one_by_one,
        "gradient of the images"),
    Bug("the ReLU behind the pooling lets every gradient through", "by_phase",
        "(y[run] == 0).view(np.uint8) * np.uint8(NONE)", "np.uint8(0)", one_pass_is_the_ops_one_by_one,
        "gradient of the images"),
    Bug("a bias gets the gradients that the ReLU stops", "by_phase",
        "masked(of_outputs(g), winners != NONE) if relu else", "", one_pass_is_the_ops_one_by_one,
        "gradient of the bias"),
    Bug("the phases are numbered down the columns", "conv_pool.in_blocks",
        "kw * c * number, tall * kw * c * number", "tall * kw * c * number, kw * c * number",
        one_pass_is_the_ops_one_by_one, "value"),
    Bug("the phases of tiles of rows are numbered down the columns", "pool_rows",
        ".reshape(shape).transpose(2, 4, 0, 1, 3)", ".reshape(shape).transpose(4, 2, 0, 1, 3)",
        one_pass_by_winograd_is_the_ops_one_by_one, "gradient of the images"),
    Bug("all images are pooled as the first ones", "pool_rows", "whole_tiles(x[run], weight",
        "whole_tiles(x[: run.stop - run.start], weight", one_pass_by_winograd_is_the_ops_one_by_one,
        "the value"),
    Bug("zeros that complete the tiles stand in the rows of the gradient", "by_phase",
        "top * row + left * column, strides", "(top + below) * row + left * column, strides",
        one_pass_by_winograd_is_the_ops_one_by_one, "gradient of the kernel"),
    Bug("images that cut Winograd's tiles get no gradient", "winograd.correlate", "    out[...] = y\n",
        "    out[...] = 0\n", one_pass_by_winograd_is_the_ops_one_by_one, "gradient of the images"),
    Bug("a bias is added by the products and again", "Way.__call__",
        "return self.convolve(x, w, geometry, bias)\n    y, pullbacks = self.convolve(x, w, geometry)",
        "pass\n    y, pullbacks = self.convolve(x, w, geometry, bias)", one_pass_is_the_ops_one_by_one,
        "the value"),
    Bug("windows that overlap are pooled as if side by side", "MaxPool2d.has_tiles",
        "stride in (None, kernel) and ", "", only_windows_side_by_side_are_one_pass, "other layers"),
    Bug("a band is written over the first one", "kernel_rows.correlate", "total = y[place].reshape(shape)",
        "total = y[:1, : shape[0]].reshape(shape)", convolutions_of_bands_are_the_direct_one, "kernel_rows"),
    Bug("the ReLU behind batch-norm lets every gradient through", "batch_norm.write_gradient",
        "e = zero if relu and ys[j] <= 0 else gs[j]", "e = gs[j]", a_relu_goes_with_batch_norm,
        "gradient of x"),
    Bug("batch-norm holds its value, too", "batch_norm", "after_relu, fixed = y if relu else None,",
        "after_relu, fixed = y,", a_normalisation_holds_one_array, "the tape holds"),
    Bug("any batch-norm computes the ReLU behind it", "BatchNorm.in_one_pass",
        "alone = self.unchanged_type() is BatchNorm and", "alone =", another_batch_norm_has_no_relu,
        "ops, one by one"),
    Bug("corners are aligned as if each were a pixel", "interpolate", "Fraction(n - 1, max(m - 1, 1))",
        "Fraction(n, m)", interpolation_is_its_definition, "Mismatched elements"),
    Bug("a blend's gradient goes to the first pixel", "resampled", "to_x_too(g * share)", "to_x(g * share)",
        interpolation_by_loops_is_the_readable_one, "gradient 0"),
    Bug("loops give a blend's gradient to the first pixel", "write_gradient_of_blends", "wide[t, c] += w",
        "wide[s, c] += w", interpolation_is_its_definition, DIFFERENCE, thorough=True),
    Bug("loops blend with the share of the other pixel", "write_blends", "v * tall[s, c] + w * tall[t, c]",
        "w * tall[s, c] + v * tall[t, c]", interpolation_is_its_definition, "Mismatched elements"),
    Bug("a row's gradients begin with those of the row before", "write_gradient_of_blends",
        "            of_wide[:] = 0\n", "", interpolation_is_its_definition, DIFFERENCE, thorough=True),
    Bug("pixels have their centres at whole numbers", "Axis.places", "(2 * i + 1) * over - under, 0)",
        "2 * i * over, 0)", interpolation_is_its_definition, "Mismatched elements"),
    Bug("the last pixel is blended with the one before the first", "Axis.places",
        'first if self.mode != "bilinear" else xp.minimum(first + (rest > 0), self.n - 1)',
        'first if self.mode != "bilinear" else (first + (rest > 0)) % self.n',
        interpolation_is_its_definition, "Mismatched elements"),
    Bug("a share of 0 is multiplied by an infinite pixel", "Axis.places", "first + (rest > 0)", "first + 1",
        interpolation_is_its_definition, "the value"),
    Bug("a pixel by itself is infinity times 0", "Axis.places", "rest / under, 0.5)", "rest / under, 0)",
        interpolation_is_its_definition, "the same size"),
    Bug("a factor has all digits of its float", "inverse", ".limit_denominator(10**6)", "",
        interpolation_is_its_definition, "Mismatched elements|out of bounds"),
    Bug("each row is a copy of the first one", "write_copies", "y[n, i - 1].reshape(-1)",
        "y[n, 0].reshape(-1)", interpolation_is_its_definition, "Mismatched elements"),
    Bug("a pixel gets the gradients of the copies before its own", "interpolate.copies", 'side="right"',
        'side="left"', interpolation_is_its_definition, DIFFERENCE),
    Bug("a mean of groups is one of all channels", "by_pixels", "n_pixels * channels // groups)",
        "n_pixels * channels)", normalisations_by_loops_are_the_readable_ones, "the value"),
    Bug("a group's mean is taken for a constant", "group_norm.write_gradient", "of_gradient / count * s\n",
        "0\n", samples_are_normalized, DIFFERENCE, thorough=True),
    Bug("each channel of a group has its own mean", "group_norm.write_normalized",
        "mean[n, j] = total / count", "mean[n, j] = sums[j] / pixels", samples_are_normalized,
        "Mismatched elements", thorough=True),
    Bug("the last chain of pixels is left out of a mean", "group_norm.write_normalized",
        "                for j in range(len(part)):\n                    chains[j] += part[j]\n            "
        "for j in range(width):\n                sums[j], chains[j] = sums[j] + chains[j], 0",
        "                for j in range(len(part)):\n                    chains[j] += part[j]\n            "
        "for j in range(width):\n                sums[j], chains[j] = sums[j], 0",
        normalisations_by_loops_are_the_readable_ones, "the value", thorough=True),
    Bug("a sample's sums begin with those of the one before", "group_norm.write_gradient",
        "sums[j], products[j], m[j] = 0, 0, mean[n, j % channels]", "m[j] = mean[n, j % channels]",
        normalisations_by_loops_are_the_readable_ones, "gradient", thorough=True),
    Bug("loops take each row's mean for the first one's", "layer_norm.write_gradient",
        "m, s, total, along = mean[i], scale[i]", "m, s, total, along = mean[0], scale[i]",
        normalisations_by_loops_are_the_readable_ones, "gradient"),
    Bug("the readable layer norm takes its mean for a constant", "standardized",
        "        if centred:\n            g -= mean(g)\n", "", normalisations_by_loops_are_the_readable_ones,
        "gradient"),
    Bug("the readable batch norm takes its mean for a constant", "batch_norm.gradient",
        "return d * factor - (x - mean) * slope - shift", "return d * factor - (x - mean) * slope",
        normalisations_by_loops_are_the_readable_ones, "gradient"),
    Bug("the root mean square is taken for a constant", "standardized",
        "        g -= normal * mean(g * normal)\n", "", samples_are_normalized, DIFFERENCE),
    Bug("a border takes the gradient of a window of minus infinities", "write_gradient_of_maxima",
        "least += not inside", "least = len(taps)", windows_of_minus_infinities_have_a_gradient, "for",
        thorough=True),
    Bug("a mean of float16 is added up in float16", "avg_pool2d", "@half_in_single\ndef avg", "def avg",
        means_of_half_precision_add_in_single, "in half precision"),
    Bug("a border takes it, on a slide", "max_of_windows", " & is_pixel", "",
        windows_of_minus_infinities_have_a_gradient, "for"),
]  # fmt: skip
