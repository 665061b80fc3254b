"""Bugs of float16 and bfloat16; their oracles: the op in float32, exact sums, integers and fractions."""

from functools import partial

import numpy as np

from backends.sequence_parallel.ring import ring_attention
from backends.sequence_parallel.token_order import columns_of
from minigrad import bfloat16 as bfloat16_module
from minigrad import half, nn, ops, product
from minigrad.recompute import recomputed
from minigrad.sums import axis_sums
from minigrad.testing import on_device
from tests.backends.sequence_parallel import ring_laws
from tests.bugs.bug import Bug
from tests.minigrad import bfloat16_laws
from tests.minigrad.ops import half_laws, op_laws

# Laws


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def dropout(x):
    return ops.dropout(x, p=0.3, rng=np.random.default_rng(0))


def ops_are_those_of_singles_rounded_once() -> None:
    x, images = drawn(5, 6), drawn(2, 3, 6, 6)
    for f, inputs in (
        (ops.gelu, [x]),
        (ops.power, [abs(x), drawn(1, 6)]),
        (partial(ops.cumsum, axis=1), [x]),
        (partial(ops.layer_norm, eps=1e-3), [x, drawn(6), drawn(6)]),
        (ops.attention, [drawn(2, 3, 2, 4)] * 3),
        (ops.conv2d, [images, drawn(4, 3, 3, 3), drawn(4)]),
        (partial(ops.max_pool2d, kernel=3, stride=1), [images]),
        (ops.linear, [x, drawn(3, 6)]),  # on a GPU cuBLAS rounds before a bias is added
        (dropout, [x]),
    ):
        half_laws.is_the_rounded_op(f, *map(on_device, inputs))


def small_numbers_are_rounded_as_by_numpy() -> None:
    half_laws.rounds_like_numpy(half.rounded, (np.arange(-900, 900) * 2.0**-26).astype(np.float32))


def losses_are_single() -> None:
    labels = np.arange(5)
    half_laws.is_the_rounded_op(
        lambda x: ops.cross_entropy(x, labels), on_device(drawn(5, 6)), value=np.float32
    )
    half_laws.is_the_rounded_op(ops.mse, on_device(drawn(5)), on_device(drawn(5)), value=np.float32)


def a_scaled_loss_overflows_in_silence() -> None:
    half_laws.overflows_in_silence(ops.mse)


def gradients_come_from_the_rounded_value() -> None:
    half_laws.goes_back_from_the_value(ops.tanh, lambda y, g: g * (1 - y * y), on_device(drawn(40, 9)))


def sums_are_rounded_once() -> None:
    half_laws.sums_are_rounded_once(axis_sums, 70_000, 0)


def rows_that_are_looked_up_often_are_summed_in_single() -> None:
    places = np.zeros(3_000, int)
    half_laws.is_the_rounded_op(lambda w: ops.embedding(w, places), on_device(drawn(2, 3)))


def a_long_row_and_its_bias_are_rounded_once() -> None:
    half_laws.a_long_row_and_its_bias_are_rounded_once(ops.linear)


def products_are_written_where_they_shall_be() -> None:
    half_laws.multiplies_in_single(product.product, (3, 4, 5), 0)


def steps_of_running_statistics_count() -> None:
    half_laws.small_steps_of_running_statistics_count(nn.BatchNorm(2, momentum=2.0**-13))


def steps_of_statistics_that_were_made_in_half_count() -> None:
    layer = nn.BatchNorm(2, momentum=2.0**-13, dtype=np.float16)
    assert layer.running_mean.dtype == np.float32, f"the mean is {layer.running_mean.dtype}"


def other_ranks_are_asked_once_each_way() -> None:
    half_laws.asks_once_each_way(ops.batch_norm)


def samples_are_rounded_to_the_weights() -> None:
    weight, bias = (a.astype(np.float16) for a in (drawn(4, 3, 3, 3), drawn(4)))
    op_laws.has_the_dtype_of_a_layer(ops.conv2d, np.dtype(np.float16), drawn(2, 3, 6, 6), weight, bias)


def rings_send_sixteen_bits() -> None:
    ring_laws.attends_over_ranks_in_halves(ring_attention, columns_of(7, 3, "zigzag"), ring_laws.Rows(3, 7))


def numbers_go_to_the_nearest_bfloat16() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 5_000, np.uint32)
    ties = (bits & 0xFFFF0000) | np.uint32(0x8000)
    special = np.array([0x7F800001, 0xFF800001, 0x7F800000, 0x7F7FFFFF, 0x7FFFFFFF, 1], np.uint32)
    for patterns in (bits, ties, special):
        bfloat16_laws.rounds_like_integers(bfloat16_module.rounded, patterns)


def ops_round_to_bfloat16() -> None:
    bfloat16_laws.is_rounded_to_bfloat16(ops.multiply, on_device(drawn(4, 3)), on_device(drawn(1, 3)))
    bfloat16_laws.is_rounded_to_bfloat16(ops.gelu, on_device(drawn(4, 3)))


def squares(y):
    return ops.mse(y, on_device(np.ones(y.shape, np.float32)))


def a_net_of_segments_trains_in_bfloat16() -> None:
    rng = np.random.default_rng(0)
    layers = [
        nn.Linear(6, 5, rng=rng),
        nn.Tanh(),
        nn.Linear(5, 5, rng=rng),
        nn.Tanh(),
        nn.Linear(5, 3, rng=rng),
    ]
    model, x = recomputed(nn.Sequential(*layers), 2), drawn(7, 6).astype(np.float32)
    bfloat16_laws.trains_in_bfloat16(model, squares, on_device(x))


def weights_become_bfloat16() -> None:
    layer = nn.Linear(3, 4, rng=0)
    layer.to(dtype="bfloat16")
    bfloat16_laws.all_are_bfloat16(layer.weight.data)


def layers_choose_alike() -> None:
    for precision in ("float16", "bfloat16"):
        half_laws.layers_choose_alike_in_a_row(precision)


# Bugs

BUGS = [
    Bug("a tape holds the arrays that were widened", "run_in_single",
        "if any(is_floating(a) for a in retained_arrays(list(pullbacks))):", "if False:",
        ops_are_those_of_singles_rounded_once, "holds float32"),
    Bug("float16 is cut off, not rounded", "half.rounded", "return x.astype(dtype)",
        "return (np.asarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(dtype)",
        ops_are_those_of_singles_rounded_once, "is not"),
    Bug("a loss that is scaled too much warns", "half.rounded", 'over="ignore", ', "",
        a_scaled_loss_overflows_in_silence, "overflow"),
    Bug("small numbers lose their sign", "subnormal_steps",
        "np.copysign(x + THREE_QUARTERS - THREE_QUARTERS, x)", "x + THREE_QUARTERS - THREE_QUARTERS",
        small_numbers_are_rounded_as_by_numpy, "becomes"),
    Bug("a loss has 16 bits", "loss_in_single", "rounds=False", "rounds=True", losses_are_single,
        "result 0 is float16"),
    Bug("a loss of no axes has 16 bits", "as_0d_array", "max(dtype.itemsize, 4)", "dtype.itemsize",
        losses_are_single, "result 0 is float16"),
    Bug("a gradient has 32 bits", "pullback_of",
        "rounded(undo_broadcast(cast(Pullback, pullbacks[i])(single), shape), dtype)",
        "undo_broadcast(cast(Pullback, pullbacks[i])(single), shape)", ops_are_those_of_singles_rounded_once,
        "pulled back is float32"),
    Bug("a gradient is rounded before it is summed", "pullback_of",
        "undo_broadcast(cast(Pullback, pullbacks[i])(single), shape)",
        "cast(Pullback, pullbacks[i])(single)", ops_are_those_of_singles_rounded_once, "result 2"),
    Bug("a gradient from the value is computed in 16 bits", "half_by_value",
        "to_x(in_single(y), in_single(g), **settings)", "to_x(y, g, **settings)",
        gradients_come_from_the_rounded_value, "the gradient is"),
    Bug("an op goes back from its input", "half_by_value",
        "(lambda g: rounded(to_x(in_single(y), in_single(g), **settings), y.dtype),)",
        "(lambda g: rounded(to_x(compute(in_single(x))[0], in_single(g), **settings), y.dtype),)",
        gradients_come_from_the_rounded_value, "the gradient is|holds more"),
    Bug("sums of 16 bits are added up in 16 bits", "axis_sums",
        "axis_sums(x.astype(np.float32), axes).astype(np.float16)",
        "np.add.reduce(x, axis=axes, dtype=np.float16)", sums_are_rounded_once, "is the sum"),
    Bug("rows are added up in 16 bits", "sum_by_row", "if is_half(g):", "if False:",
        rows_that_are_looked_up_often_are_summed_in_single, "result 1"),
    Bug("a product is rounded before the bias is added", "linear_of_halves",
        "rounded(y if bias is None else y + bias, x.dtype)",
        "(rounded(y, x.dtype) if bias is None else rounded(y, x.dtype) + bias)",
        a_long_row_and_its_bias_are_rounded_once, "is not 512"),
    Bug("a product of 16 bits is not written", "product.product", "out[...] = y", "pass",
        products_are_written_where_they_shall_be, ""),
    Bug("the scale of dropout is rounded", "dropout.dropout",
        "rounded(in_single(a) * mask * scale, mask.dtype)", "a * (mask * mask.dtype.type(scale))",
        ops_are_those_of_singles_rounded_once, "is not"),
    Bug("running statistics have 16 bits", "module.converted",
        "dtype if is_parameter else np.result_type(dtype, np.float32)", "dtype",
        steps_of_running_statistics_count, "the mean is|the variance is"),
    Bug("running statistics are made with 16 bits", "BatchNorm.__init__", "np.result_type(dtype, np.float32)",
        "dtype", steps_of_statistics_that_were_made_in_half_count, "the mean is float16"),
    Bug("a second run asks other ranks again", "Recorded.replay",
        "for result in results:", "for result in []:", other_ranks_are_asked_once_each_way,
        "forward and backward"),
    Bug("samples of 64 bits widen a layer of 16", "layer_in_single",
        "x if is_half(x) else floating(x, *others[:1])", "x", samples_are_rounded_to_the_weights, "float"),
    Bug("gradients of keys and values are sent with 32 bits", "Ring.pass_on",
        "start_send(self.in_dtype(x), ", "start_send(x, ", rings_send_sixteen_bits, "bytes are sent"),
    Bug("bfloat16 is cut off, not rounded", "bfloat16.rounded", "bits + (np.uint32(0x7FFF) + last)", "bits",
        numbers_go_to_the_nearest_bfloat16, "of \\["),
    Bug("a tie goes away from 0", "bfloat16.rounded", "np.uint32(0x7FFF) + last", "np.uint32(0x8000)",
        numbers_go_to_the_nearest_bfloat16, "of \\["),
    Bug("NaN becomes infinite", "bfloat16.rounded", "xp.where(single == single, nearest, quiet)", "nearest",
        numbers_go_to_the_nearest_bfloat16, "NaN does not stay NaN"),
    Bug("a gradient is not rounded to bfloat16", "rounded_pullback",
        "rounded(input_gradient(pullback(g), g, shape, pullback))",
        "input_gradient(pullback(g), g, shape, pullback)", ops_round_to_bfloat16, "is not"),
    Bug("ops of two inputs do not round to bfloat16", "lift_two", "OPEN.count and in_bfloat16.get()", "False",
        ops_round_to_bfloat16, "is not"),
    Bug("segments that run again do not round to bfloat16", "Replay.__enter__", "bfloat16(self.in_bfloat16)",
        "bfloat16(False)", a_net_of_segments_trains_in_bfloat16, "is not rounded"),
    Bug("weights are not rounded to bfloat16", "module.converted",
        "rounded(array.astype(np.float32)) if is_parameter", "array.astype(np.float32) if is_parameter",
        weights_become_bfloat16, "is not rounded"),
    Bug("layers in one pass pool numbers of float32", "fast.conv_pool.is_large",
        "enough and weight.dtype == np.float32 and not in_bfloat16.get()", "enough",
        layers_choose_alike, "what they choose"),
]  # fmt: skip
