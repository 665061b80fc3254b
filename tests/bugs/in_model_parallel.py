"""Bugs of split models: neurons, channels, images in space, classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.spatial.receptive_field import Window
from minigrad import nn, ops
from minigrad.data import Batch
from tests.backends import several_inputs_laws
from tests.backends.model_parallel.layers.class_parallel_laws import agrees
from tests.backends.model_parallel.spatial import spatial_laws
from tests.bugs.bug import Bug

# Laws


def layers_of_several_inputs_are_split() -> None:
    several_inputs_laws.trains("model")


def weights_are_gathered_for_layers_of_several_inputs() -> None:
    several_inputs_laws.trains("zero 3")


def a_layer_gets_all_inputs() -> None:
    several_inputs_laws.a_layer_gets_all_inputs()


def activations_stay_split_through_the_identity() -> None:
    several_inputs_laws.activations_stay_split_through_the_identity()


def trains(build: Callable[..., nn.Module], image: tuple[int, ...], plan: dict[str, str], ranks=3) -> None:
    """Numbers of neurons and channels that the ranks do not divide."""
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, *image)), rng.integers(0, 3, n)) for n in (5, 4)]

    def work(comm):
        strategy = lambda c: ModelParallel(c, plan)  # noqa: E731
        trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, bound=1e-11)

    run_ranks(ranks, work)


def linear(_: Any = None) -> nn.Module:
    rng = np.random.default_rng(0)
    layers: list[nn.Module] = [nn.Linear(5, 7, rng=rng), nn.Dropout(0.3, rng=np.random.default_rng(1))]
    return nn.Sequential(*layers, nn.Linear(7, 6, rng=rng), nn.Tanh(), nn.Linear(6, 3, rng=rng))


def columns_and_rows_train_like_serial() -> None:
    trains(linear, (5,), {"0": "column", "2": "row", "4": "column"})
    trains(linear, (5,), {"2": "gathered"})


def sequences(_: Any = None) -> nn.Module:
    rng = np.random.default_rng(0)
    layers: list[nn.Module] = [nn.Linear(5, 4, rng=rng), nn.Tanh(), nn.Linear(4, 3, rng=rng)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, 3, rng=rng))


def layers_of_sequences_train_like_serial() -> None:
    trains(sequences, (2, 5), {"0": "column", "2": "row"})
    trains(sequences, (2, 5), {"2": "gathered"})


def convolutional(_: Any = None) -> nn.Module:
    rng = np.random.default_rng(0)
    layers: list[nn.Module] = [nn.Conv2d(2, 4, 3, padding=1, rng=rng), nn.Tanh()]
    layers += [nn.Conv2d(4, 5, 3, padding=1, rng=rng), nn.BatchNorm(5), nn.ReLU()]
    layers += [nn.Conv2d(5, 2, 3, rng=rng), nn.Flatten(), nn.Linear(16, 3, rng=rng)]
    return nn.Sequential(*layers)


def filters_and_channels_train_like_serial() -> None:
    plan = {"0": "gathered-filters", "2": "filters", "5": "channels", "7": "row"}
    trains(convolutional, (2, 6, 4), plan)
    trains(convolutional, (2, 6, 4), {"2": "filters"})


def windowed() -> nn.Sequential:
    """Windows of all kinds, padded, of stride 1 and 2, in groups."""
    rng = np.random.default_rng(0)
    net = nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, rng=rng),
        nn.Conv2d(2, 2, 5, padding=1, groups=2, rng=rng),
        nn.AvgPool2d(3, stride=1, padding=1),
        nn.Conv2d(2, 3, 3, stride=2, padding=1, rng=rng),
        nn.MaxPool2d(3, stride=1, padding=1),
    )
    net.to(dtype=np.float64)
    return net


def tiles_pass_like_the_image() -> None:
    net = windowed()
    for kind, ranks in (("rows", 3), ("tiles 2x2", 4)):
        spatial_laws.passes((net, (2, 12, 11)), spatial_laws.all_by(kind, net), ranks)


def tiles_train_like_serial() -> None:
    for kind, ranks in (("rows", 3), ("tiles 2x2", 4)):
        spatial_laws.trains(spatial_laws.lenet(), (kind, ranks), [3])


def tiles_send_halos_and_nothing_else() -> None:
    spatial_laws.sends_halos_and_weights(Window(3, 1, 1), (2, 2), 1)


def tiles_refuse_windows_that_they_would_get_wrong() -> None:
    for layer in (
        nn.Conv2d(2, 2, 2, padding="same", rng=np.random.default_rng(0)),
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
    ):
        try:
            trains(lambda _, layer=layer: alone(layer), (2, 5, 5), {"0": "rows"}, ranks=2)
        except ValueError as error:
            assert "leave it out of the plan" in str(error), str(error)
        else:
            raise AssertionError(f"{layer!r} was split")


def alone(layer: nn.Module) -> nn.Module:
    """The layer in front of what makes three classes."""
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(layer, pool, nn.Flatten(), nn.Linear(2, 3, rng=np.random.default_rng(1)))


def a_loss_over_classes_is_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    logits, labels = 3 * rng.normal(size=(7, 8)), rng.integers(0, 8, 7)
    for bounds in ((0, 3, 4, 8), (0, 0, 8), (0, 5, 8)):
        agrees(logits, labels, bounds)


# Bugs

SERIAL, PASSES = "of its scale on rank", "differs from serial"

BUGS = [
    Bug("a layer that is left whole gets no keywords", "Replicated.forward",
        "self.layer(*inputs, **keywords)", "self.layer(*inputs)", layers_of_several_inputs_are_split, SERIAL),
    Bug("a layer whose weights are gathered gets no keywords", "GatherOnUse.call_unsharded",
        "layer(*inputs, **settings)", "layer(*inputs)", weights_are_gathered_for_layers_of_several_inputs,
        SERIAL),
    Bug("a layer gets no keywords", "Module.__call__", "self.forward(*inputs, **keywords)",
        "self.forward(*inputs)", a_layer_gets_all_inputs, "Mismatched"),
    Bug("a layer gets one input", "Module.__call__", "self.forward(*inputs, **keywords)",
        "self.forward(inputs[0], **keywords)", a_layer_gets_all_inputs, "missing"),
    Bug("the identity gathers", "pass_through.ELEMENTWISE", "nn.Tanh, nn.Identity", "nn.Tanh",
        activations_stay_split_through_the_identity, "gathers"),
    Bug("a bias is added on every rank of a row split", "reduce_then_add_bias",
        "total = differentiable.fan_in(y, comm=comm)\n    return total if bias is None else total + bias",
        "return differentiable.fan_in(y if bias is None else y + bias, comm=comm)",
        columns_and_rows_train_like_serial, SERIAL),
    Bug("partial results are not added up", "reduce_then_add_bias",
        "total = differentiable.fan_in(y, comm=comm)", "total = y", columns_and_rows_train_like_serial,
        SERIAL),
    Bug("partial results get their gradients summed", "reduce_then_add_bias",
        "total = differentiable.fan_in(y, comm=comm)", "total = differentiable.all_reduce(y, comm=comm)",
        columns_and_rows_train_like_serial, SERIAL),
    Bug("the features of sequences are taken for their second axis", "ColumnLinear.sharded_forward",
        "self.own_parameters), (self.shard,))", "self.own_parameters), (self.shard.on_axis(1),))",
        layers_of_sequences_train_like_serial, "takes 4 channels or features"),
    Bug("gathered outputs are joined along the second axis", "GatheredLinear.sharded_forward",
        "axis=y.ndim - 1", "axis=1", layers_of_sequences_train_like_serial, "linear takes|differs by"),
    Bug("what columns send back is not added up", "ColumnLinear.sharded_forward",
        "x = whole_for_columns(a, self.shard.comm)", "x = a.gather().local",
        columns_and_rows_train_like_serial, SERIAL),
    Bug("each rank drops the first neurons' mask", "ShardedMask.keep", "shard.local_part(keep)",
        "keep[:, : shard.local_size]", columns_and_rows_train_like_serial, SERIAL),
    Bug("what filters send back is not added up", "FilterConv2d.sharded_forward",
        "x = in_channels_last(differentiable.fan_out, a.gather().local, comm=self.shard.comm)",
        "x = a.gather().local", filters_and_channels_train_like_serial, SERIAL),
    Bug("channels get a bias from every rank", "ChannelConv2d.sharded_forward",
        "y = ops.conv2d(a.redistribute(self.shard).local, self.weight, **self.settings)\n    return "
        "ShardedTensor(in_channels_last(reduce_then_add_bias, y, comm=self.shard.comm, bias=self.bias))",
        "y = ops.conv2d(a.redistribute(self.shard).local, *self.own_parameters, **self.settings)\n    "
        "return ShardedTensor(in_channels_last(reduce_then_add_bias, y, comm=self.shard.comm, bias=None))",
        filters_and_channels_train_like_serial, SERIAL),
    Bug("the halo is off by one", "Window.receptive_field", "low = min(max(start, 0), n)",
        "start, stop = start + (first > 0), stop + (first > 0)\n    low = min(max(start, 0), n)",
        tiles_pass_like_the_image, PASSES),
    Bug("the halo's gradient is not sent home", "make_backward",
        "d[index_along(axis, route.sends[source])] += rows", "pass", tiles_pass_like_the_image, PASSES),
    Bug("the halo's gradient replaces the owner's", "make_backward",
        "d[index_along(axis, route.sends[source])] += rows",
        "d[index_along(axis, route.sends[source])] = rows", tiles_pass_like_the_image, PASSES),
    Bug("a kernel is not turned round on the way back", "with_fetched_gradients", "[..., ::-1, ::-1]", "",
        tiles_pass_like_the_image, PASSES),
    Bug("zeros stand around the image for a maximum", "SpatialMaxPool2d.border", "border = -math.inf",
        "border = 0.0", tiles_pass_like_the_image, PASSES),
    Bug("the border is put on twice", "Windowed.sharded_forward", "(0, 0) if shards else geometry.padding",
        "geometry.padding", tiles_pass_like_the_image, f"{PASSES}|for an input of shape"),
    Bug("the image gets its gradient twice", "SpatialConv2d.sharded_forward",
        "ShardedTensor(a.local.detach(), a.shards)", "a", tiles_pass_like_the_image, PASSES),
    Bug("weights' gradients are those of one tile", "Windowed.__init__",
        "self.partial = dict.fromkeys(self.own_parameters, tiling.comm)", "pass", tiles_train_like_serial,
        SERIAL),
    Bug("batch-norm by each tile's mean and variance", "SpatialBatchNorm.__init__",
        "partial(allgather, tiling.comm)", "lambda x: [x]", tiles_train_like_serial, SERIAL),
    Bug("a border travels with the columns", "receptive_field_of", "if not last:",
        "if width.update({shard.axis: (0, 0)}):", tiles_send_halos_and_nothing_else, "messages, 8"),
    Bug("tiles forget the border of same", "Tiling.receptive_field", "if any(geometry.extra):", "if False:",
        tiles_refuse_windows_that_they_would_get_wrong, "AssertionError|shape|leave"),
    Bug("tiles count padding that does not count", "SpatialAvgPool2d.checked",
        'if any(geometry.padding) and not self.settings["count_include_pad"]:', "if False:",
        tiles_refuse_windows_that_they_would_get_wrong, "differs by|was split"),
    Bug("each rank has a largest logit of its own", "sharded_cross_entropy",
        "    largest = allreduce(comm, largest, xp.maximum)\n", "", a_loss_over_classes_is_the_dense_one,
        "assert (result|actual) == "),
    Bug("labels are counted from the first class", "sharded_cross_entropy",
        "place = (mine, labels[mine] - shard.local_slice.start)", "place = (mine, labels[mine] % shape[1])",
        a_loss_over_classes_is_the_dense_one, "rank [0-2]"),
    Bug("the sum of exponentials is this rank's", "sharded_cross_entropy",
        "total = allreduce(comm, p.sum(axis=1))", "total = p.sum(axis=1)",
        a_loss_over_classes_is_the_dense_one, "AssertionError"),
]  # fmt: skip
