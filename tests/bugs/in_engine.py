"""Bugs of ops, tape, recomputation, optimizers; their oracles: differences, dual numbers, recurrences."""

import os
from functools import partial
from itertools import combinations
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np

from minigrad import (
    Parameter,
    Tape,
    Tensor,
    device,
    exact_convolutions,
    loops,
    nn,
    op,
    ops,
    optim,
    recomputed,
    sums,
    testing,
)
from minigrad.lr_schedules import SCHEDULES, warm_up
from minigrad.nn import init
from minigrad.ops import selection
from minigrad.ops.fast.elementwise import LINE
from tests.bugs.bug import Bug
from tests.minigrad import gpu_laws, recompute_laws, tape_laws
from tests.minigrad.loop_laws import end_with_their_module
from tests.minigrad.lr_schedule_laws import (
    is_the_schedule_of_transformers,
    stays_at_its_end,
    warms_up_gradually,
)
from tests.minigrad.ops import extremes, op_laws
from tests.minigrad.ops.fast import fast_form_laws
from tests.minigrad.ops.fast.fast_form_laws import (
    an_unknown_setting_is_refused_by_the_ops_name,
    has_the_same_bits_before_numba_is_imported,
    in_both_forms,
)
from tests.minigrad.optim_laws import (
    adam,
    adamw,
    follows_recurrence,
    has_the_bits_of_update,
    is_sgd_at_any_rates,
    lars_follows_the_paper,
)

# Laws


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 2, shape)


def loops_have_the_bits_of_updates() -> None:
    for make in (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.03),
        lambda p: optim.Adam(p, 0.01, weight_decay=0.03),
        lambda p: optim.AdamW(p, np.float64(0.01), weight_decay=0.03),
    ):
        for order in (testing.c_order, testing.fortran_order):
            has_the_bits_of_update(make, (30, 40), np.float32, order)


def a_gradient_is_the_difference() -> None:
    x = drawn(4, 3)
    for f in (ops.tanh, ops.softmax, lambda x: ops.divide(2.0, x)):
        testing.gradient_matches_difference(f, x)
    for index in (np.array([0, 0, 1]), (np.array([0, 0, 1]), np.array([2, 2, 0]))):
        testing.gradient_matches_difference(partial(ops.getitem, index=index), x)
    testing.gradient_matches_difference(ops.cross_entropy, x, np.array([0, 1, 2, 0]))
    testing.gradient_matches_difference(ops.batch_norm, x, drawn(3), drawn(3))


def gradients_of_windows_are_the_differences() -> None:
    image, kernel = drawn(2, 2, 5, 4), drawn(3, 2, 3, 3)
    for algorithm in ("direct", "im2col", "kernel_rows"):
        testing.gradient_matches_difference(
            lambda x, w, a=algorithm: ops.conv2d(x, w, padding=1, algorithm=a), image, kernel
        )
        y, expected = (ops.conv2d(image, kernel, padding=1, algorithm=a).data for a in (algorithm, "direct"))
        assert np.allclose(y, expected, rtol=1e-12), f"{algorithm} is not the direct convolution"
    testing.gradient_matches_difference(lambda x: ops.avg_pool2d(x, kernel=3, stride=1), image)
    testing.gradient_matches_difference(lambda x: ops.max_pool2d(x, kernel=3, stride=1), image)


def exact_convolutions_round_like_sums() -> None:
    x, w = (np.random.default_rng(0).normal(size=s).astype("f") for s in ((2, 32, 12, 12), (32, 32, 3, 3)))
    ops.conv2d(x, w, padding=1)  # what is taken here does not count inside
    with exact_convolutions():
        y = ops.conv2d(x, w, padding=1).data
    by_sums = ops.conv2d(x.astype("d"), w.astype("d"), padding=1, algorithm="direct").data
    error = abs(y - by_sums).max() / abs(by_sums).max()
    assert error < 2e-6, f"the error, {error:.1e} of the largest element, is not that of plain sums"


def unknown_settings_are_refused_by_the_ops_name() -> None:
    for name in ("attention", "cumprod", "self_attention"):
        an_unknown_setting_is_refused_by_the_ops_name(getattr(ops, name), name)


def bits_are_the_same_before_numba_is_imported() -> None:
    for kind in (np.float32, np.float64):
        x, w, bias = (drawn(*shape).astype(kind) for shape in ((67, 5), (7, 5), (7,)))
        has_the_same_bits_before_numba_is_imported(partial(ops.linear, activation="relu"), x, w, bias)


def large_logits_swallow_no_loss() -> None:
    x = (np.array([[0.5, 0.25, 0.0]]) + 1e5).astype(np.float32)
    in_both_forms(extremes.cross_entropy_survives_offsets, ops.cross_entropy, x, np.array([1]))
    in_both_forms(extremes.softmax_survives_offsets, ops.softmax, ops.log_softmax, x, 1)


def no_probability_is_above_1() -> None:
    x = np.array([[0.4296875, -30, -40]], np.float32)
    in_both_forms(extremes.softmax_survives_offsets, ops.softmax, ops.log_softmax, x, 1)


def infinite_logits_are_summed() -> None:
    for row in ([-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 0.5]):
        extremes.logsumexp_knows_infinities(ops.logsumexp, np.array(row))


def the_tail_of_the_sigmoid_is_there() -> None:
    x = np.array([-19.0, -3.0, 0.0, 40.0], np.float32)
    in_both_forms(extremes.sigmoid_keeps_its_tail, ops.sigmoid, x)


def nan_passes_and_nothing_else_does() -> None:
    nan = np.nan
    x, g = np.array([[nan, -1.0, 0.0, 2.0]]), np.array([[1.0, np.inf, nan, 3.0]])
    extremes.follows(ops.relu, [extremes.relu_slope], g, x)
    extremes.choice_shields(ops.where, np.array([[2, 0, 0, 3]]), x, x, g)
    images = np.array([[nan, 1.0, nan, 1.0], [nan, 2.0, 3.0, 3.0]]).reshape(1, 1, 2, 4)
    extremes.pooling_takes_one(ops.max_pool2d, images, np.ones((1, 1, 1, 2)), 2, 2)


def a_relu_of_bits_has_its_gradient() -> None:
    x = np.tile(np.array([-0.0, 0.0, np.nan, -1.0, 2.0]), LINE // 4)
    fast_form_laws.is_relu(selection.positive_part, selection.where_positive, x, np.ones_like(x))


def an_exponent_has_pytorchs_gradient() -> None:
    extremes.power_has_pytorchs_gradients(ops.power, np.array([0.0, 0, -2, 3]), np.array([-1.0, 2, 2, 2]))


def a_mean_far_away_leaves_the_variance() -> None:
    x = (1e6 + np.random.default_rng(0).normal(size=(180, 2))).astype(np.float32)
    extremes.variance_survives_offsets(ops.var, x, 0)


def sums_are_of_short_chains() -> None:
    x = np.full((40000, 1), 0.1, np.float32)
    fast_form_laws.adds_in_short_chains(sums.column_sums, 0, np.repeat(x, 3, axis=1))
    fast_form_laws.adds_in_short_chains(sums.column_sums, 0, np.repeat(x[:1001], 3, axis=1))


def softmax_is_exact_on_any_level() -> None:
    for x in (-100 + drawn(2, 3), 120 + drawn(2, 3), -90 * drawn(2, 9)):
        in_both_forms(fast_form_laws.is_the_softmax, ops.softmax, x.astype(np.float32))


def rows_have_the_gradients_of_their_readable_forms() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 3, 70))
    for f in (ops.softmax, ops.log_softmax):
        fast_form_laws.loops_are_the_readable_form(f, g, x)


def loops_take_arrays_of_one_type() -> None:
    x = drawn(3)
    assert not loops.available() or loops.can_take(x, x), "arrays of one type are refused"
    others = (x.astype(np.float32), x.astype(">f8"), [1.0], None)
    assert not any(loops.can_take(x, other) for other in others), "arrays of several types are taken"
    assert not loops.can_take(x.astype(">f8")) and not loops.can_take(x[:0]), (
        "an array that no loop takes is taken"
    )


def machine_code_ends_with_its_module() -> None:
    end_with_their_module(loops.compiled)


def a_full_disk_stops_no_loop() -> None:
    def full(*_: np.ndarray) -> None:
        raise OSError(28, "No space left on device")

    x, y = drawn(3), np.empty(3)
    with patch.object(loops, "machine_code", side_effect=[full, squares]):
        loops.compiled(squares)(x, y)
    assert np.array_equal(y, x * x), "other numbers"


def squares(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = x[i] * x[i]


def elements_have_the_values_of_their_readable_forms() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 3, 70))
    x[0, :4] = np.nan, np.inf, 0, -0.0
    for f in (ops.abs, ops.leaky_relu, partial(ops.leaky_relu, slope=-2.0)):
        fast_form_laws.loops_are_the_readable_form(f, g, x, roundings=0)
    fast_form_laws.loops_are_the_readable_form(ops.sigmoid, g, x, roundings=8)


def weights_are_one_stream() -> None:
    with patch.object(init, "BLOCK", 4):
        fast_form_laws.is_one_stream(init.sample, (3, 3), np.float32)


def a_mean_far_away_leaves_the_deviations() -> None:
    rng = np.random.default_rng(0)
    x, g, (w, b) = 1e3 + rng.normal(size=(60, 4)), rng.normal(size=(60, 4)), rng.normal(size=(2, 4))
    extremes.normalisation_survives_offsets(ops.batch_norm, x, w, b, g, axis=0)


def a_transposed_copy_is_whole() -> None:
    x = drawn(3, 141)
    with patch.object(device, "TRANSPOSED", 1), patch.object(np, "empty", np.zeros):
        assert np.array_equal(device.in_c_order(np.asfortranarray(x), x.dtype), x), "elements differ"


def pullbacks_keep_their_contract() -> None:
    op_laws.pullbacks_keep_the_contract(ops.batch_norm, drawn(4, 3), drawn(3), drawn(3))
    group_norm = partial(ops.group_norm, groups=2)
    op_laws.pullbacks_keep_the_contract(group_norm, drawn(2, 4, 3), drawn(4), drawn(4))


def programs() -> list[tape_laws.Program]:
    """Values and leaves used several times, views of one array, repeated shapes, a sum of two leaves."""
    a, b, c = np.array([1.0, 2.0, 3.0]), np.array([[2.0], [1.0]]), np.array(2.0)
    return [
        tape_laws.Program([a, b, c], [(2, 0, 1), (0, 3, 3), (2, 4, 2), (0, 5, 3), (1, 6, 0)]),
        tape_laws.Program([a, a], [(0, 0, 1), (0, 2, 0), (3, 3, 2), (3, 4, 1), (2, 5, 4)]),
        tape_laws.Program([a, a + 1, c], [(0, 0, 1), (2, 3, 2)]),
    ]


def gradients_are_those_of_dual_numbers() -> None:
    for program in programs():
        tape_laws.backward_agrees_with_forward(Tape, program)


def a_leaf_is_announced_once_when_final() -> None:
    for program in programs():
        tape_laws.leaves_are_announced_when_final(Tape, program)


def gradients_belong_to_one_leaf() -> None:
    for program in programs():
        tape_laws.gradients_are_private(Tape, program)


def views_of_gradients_are_copied() -> None:
    x, y, z = (Tensor(drawn(6), requires_grad=True) for _ in range(3))
    with Tape() as tape:
        value = x.reshape(2, 3) + y.reshape(2, 3) + (z * 2.0).reshape(2, 3)
    tape.backward(value, drawn(2, 3))
    grads = [leaf.grad for leaf in (x, y, z) if leaf.grad is not None]
    assert len(grads) == 3
    assert not any(np.shares_memory(a, b) for a, b in combinations(grads, 2)), "a leaf shares its gradient"


def backward_releases_what_was_held() -> None:
    tape_laws.arrays_are_released_as_the_walk_passes(Tape)


def gradients_of_two_backwards_add_up() -> None:
    layer, x = nn.Linear(3, 2, rng=np.random.default_rng(0), dtype=np.float64), drawn(4, 3)

    def gradient(*parts: np.ndarray) -> np.ndarray:
        layer.weight.grad = None
        for part in parts:
            with Tape() as tape:
                loss = layer(part).sum()
            tape.backward(loss)
        assert layer.weight.grad is not None
        return layer.weight.grad

    np.testing.assert_allclose(gradient(x[:2], x[2:]), gradient(x), rtol=1e-12)


def recomputation_changes_nothing() -> None:
    kinds = ["linear", "dropout", "noise", "norm", "tied", "squared", "nested", "tied"]
    case = {"kinds": kinds, "segments": 3, "seed": 0, "micros": 2, "weights_later": False, "lent": False}
    for order, step in (("each in turn", None), ("last in, first out", None), ("last in, first out", 3)):
        recompute_laws.changes_nothing(recomputed, case | {"order": order, "step": step, "leaf": True})


def one_segment_is_held_at_a_time() -> None:
    recompute_laws.one_segment_is_held_at_a_time(recomputed, 4, 2)


def adam_follows_its_recurrence() -> None:
    settings = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.2}
    rng = np.random.default_rng(0)
    for make, recurrence in ((optim.Adam, adam), (optim.AdamW, adamw)):
        follows_recurrence(
            lambda parameters, make=make: make(parameters, **settings),
            lambda w, gs, recurrence=recurrence: recurrence(w, gs, **settings),
            rng.normal(size=3),
            list(rng.normal(size=(4, 3))),
        )


def momentum_survives_another_rate() -> None:
    is_sgd_at_any_rates(optim.HeavyBall, rates=[1.0, 0.5, 0.1, 0.2], momentum=0.9)


def lars_is_the_papers() -> None:
    lars_follows_the_paper(optim.LARS)


def clipping_scales_to_the_joint_norm() -> None:
    parameters = [nn.Linear(3, 2, rng=np.random.default_rng(i), dtype=np.float64).weight for i in range(2)]
    gradients = [np.ones((2, 3)) for _ in parameters]
    for parameter, g in zip(parameters, gradients, strict=True):
        parameter.grad = g
    optim.SGD(parameters, 0.1).clipped(0.5).step()
    np.testing.assert_allclose(gradients, 0.5 / 12**0.5, rtol=1e-12)


def a_warm_up_rises_evenly_to_its_schedule() -> None:
    warms_up_gradually(warm_up)


def modules_are_found_in_containers() -> None:
    layers = [nn.Linear(2, 2, rng=np.random.default_rng(i), bias=False) for i in range(4)]
    model = nn.Module()
    vars(model).update(a=[layers[0], (layers[1],)], b={"c": [layers[2]], 3: layers[3]})
    names = ["a.0.weight", "a.1.0.weight", "b.c.0.weight", "b.3.weight"]
    parameters = model.named_parameters()
    assert [*parameters.keys()] == names, f"found {', '.join(parameters.keys())}"
    assert all(parameters[name] is layer.weight for name, layer in zip(names, layers, strict=True))


def a_state_is_loaded_whole_or_not_at_all() -> None:
    model = nn.Linear(3, 2, rng=np.random.default_rng(0))
    before = model.state_dict()
    for spoiled in ({"bias": ["a", "b"]}, {"bias": np.full(2, 1e300)}, {"bias": np.zeros(3)}):
        state = {name: value + 1 for name, value in before.items()} | spoiled
        try:
            model.load_state_dict(state)
        except ValueError:
            pass
        else:
            raise AssertionError(f"the state {spoiled} was loaded")
        after = model.state_dict()
        assert all((after[name] == before[name]).all() for name in before), "the state is half loaded"


def schedules_of_transformers_are_theirs() -> None:
    is_the_schedule_of_transformers(warm_up, SCHEDULES["cosine"])


def schedules_stay_at_their_end() -> None:
    for make in SCHEDULES.values():
        stays_at_its_end(make, 0.5, 10, 12)


def a_changed_array_is_noticed() -> None:
    with patch.dict(os.environ, MINIGRAD_CHECK="arrays"):
        for k in range(2):
            leaves = [Tensor(drawn(3), requires_grad=True) for _ in range(2)]
            with Tape() as tape:
                loss = (leaves[0] * leaves[1]).sum()
            leaves[k].data[1] += 1
            try:
                tape.backward(loss)
            except RuntimeError as error:
                assert "that multiply needs" in str(error), f"another op is named: {error}"
            else:
                raise AssertionError("an array that changed since forward was not noticed")


def a_parameter_given_twice_moves_once() -> None:
    w = Parameter(np.zeros(2))
    w.grad = np.ones(2)
    optim.SGD([w, w], 0.5).step()
    assert w.data.tolist() == [-0.5, -0.5], f"moved by {w.data.tolist()}, a step is -0.5"


def optimizers_refuse_to_train_nothing() -> None:
    try:
        optim.SGD([], 0.1)
    except ValueError:
        return
    raise AssertionError("an optimizer of no parameters was made")


def a_gpu_without_a_compiler_is_no_gpu() -> None:
    for cupy in (SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True)), ImportError("two of it")):
        gpu_laws.a_problem_is_explained(device, cupy, "cannot (run|be imported)")


def another_shape_is_no_gradient() -> None:
    for d, shape in (
        (np.ones((3, 2)), (2, 3)),
        (np.ones((3, 3)), (3,)),
        (np.ones(1), (3,)),
        (np.ones(4), (3,)),
    ):

        def cube(x, *, d=d):
            return x**3, (lambda g: d,)

        w = Parameter(np.ones(shape))
        with Tape() as tape:
            y = op(cube)(w)
        try:
            tape.backward(y, 1.0)
        except ValueError as error:
            assert "cube" in str(error), f"the op is not named: {error}"
        else:
            raise AssertionError(f"{d.shape} was taken for a gradient of {shape}")


def an_op_returns_its_pullbacks() -> None:
    for result in (lambda x: x, lambda x: (x, lambda g: g), lambda x: (x, (x,)), lambda x: (x, ())):

        def cube(x, *, result: Any = result) -> Any:
            return result(x)

        try:
            op(cube)(np.ones((2, 2)))
        except TypeError as error:
            assert "cube returned" in str(error), f"the op is not named: {error}"
        else:
            raise AssertionError("an op without pullbacks was called")


def a_spy_is_called() -> None:
    for layers in ([nn.Conv2d(1, 2, 3, rng=0), nn.MaxPool2d(2), nn.ReLU()], [nn.BatchNorm(1), nn.ReLU()]):
        model, x = nn.Sequential(*layers), np.ones((64, 1, 10, 10), np.float32)
        for layer in layers:
            right = type(layer).forward
            for place, value in ((layer, partial(right, layer)), (type(layer), right)):
                spy = Mock(side_effect=value)
                with patch.object(place, "forward", spy if place is layer else lambda *xs, spy=spy: spy(*xs)):
                    model(x)
                assert spy.called, f"the forward of {place!r} was passed over"


# Bugs

DIFFERENCE = "the central difference"

BUGS = [
    Bug("a GPU is there where no kernel runs", "cuda_problem", "float(cupy.ones(1).sum())", "pass",
        a_gpu_without_a_compiler_is_no_gpu, "the problem is None"),
    Bug("a broken CuPy is called a missing one", "cuda_problem", "    except ModuleNotFoundError as error:",
        "    except ImportError as error:\n        error.name = 'cupy'", a_gpu_without_a_compiler_is_no_gpu,
        "not installed"),
    Bug("no checksums are taken in forward", "CheckedEntries.append",
        "self.checksums.append([(array, checksum(array)) for array in retained_arrays(pullbacks)])",
        "self.checksums.append([])", a_changed_array_is_noticed, "was not noticed"),
    Bug("biases have a rate by their norm", "LARS.rates", "p.ndim > 1", "p.ndim >= 0", lars_is_the_papers,
        "rtol"),
    Bug("the cosine rises again", "cosine", "min(max(t, from_step), steps)",
        "max(t, from_step)", schedules_stay_at_their_end, "schedule"),
    Bug("the cosine falls during the warm-up", "cosine", "(min(max(t, from_step), steps) - from_step)",
        "min(t, steps)", schedules_of_transformers_are_theirs, "lr \\* t / n"),
    Bug("the cosine falls below its least rate", "cosine", "min_lr + 0.5 * (lr - min_lr)", "0.5 * lr",
        schedules_of_transformers_are_theirs, "assert"),
    Bug("a parameter given twice moves twice", "unique_parameters",
        "list({id(p): p for p in parameters}.values())", "list(parameters)",
        a_parameter_given_twice_moves_once, "moved by"),
    Bug("an optimizer takes no parameters", "Optimizer.__init__",
        "if not self.parameters and not isinstance(parameters, ParametersElsewhere)", "if False",
        optimizers_refuse_to_train_nothing, "was made"),
    Bug("layers in a tuple are not found", "module.contents", "isinstance(value, (list, tuple, dict))",
        "isinstance(value, (list, dict))", modules_are_found_in_containers, "found a.0.weight, b.c.0"),
    Bug("a state is written while it is looked at", "Module.load_state_dict",
        "    values = {name: array_like(name, state[name], array) for name, array in arrays.items()}\n",
        "    values = state\n", a_state_is_loaded_whole_or_not_at_all, "the state .* loaded"),
    Bug("a value that a state's dtype cannot hold becomes infinite", "array_like",
        'np.errstate(over="raise")', 'np.errstate(over="ignore")', a_state_is_loaded_whole_or_not_at_all,
        "was loaded"),
    Bug("the square in tanh's slope is forgotten", "elementwise.tanh", "g * (1 - y * y)", "g * (1 - y)",
        a_gradient_is_the_difference, DIFFERENCE),
    Bug("the wrong sign under a fraction", "divide", "lambda g: -g * (x / y / y)",
        "lambda g: g * (x / y / y)", a_gradient_is_the_difference, DIFFERENCE),
    Bug("softmax without what the others take away", "write_softmax_gradient", "(g[i, j] - mean) * y[i, j]",
        "g[i, j] * y[i, j]", a_gradient_is_the_difference, DIFFERENCE, thorough=True),
    Bug("softmax without what the others take away, on a slide", "softmax.softmax",
        "(g - (g * y).sum(axis=axes, keepdims=True)) * y", "g * y",
        rows_have_the_gradients_of_their_readable_forms, "gradient 0"),
    Bug("log-softmax has the slopes of softmax", "write_log_softmax_gradient",
        "d[i, j] = g[i, j] - factor * exp(y[i, j])", "d[i, j] = (g[i, j] - factor) * exp(y[i, j])",
        rows_have_the_gradients_of_their_readable_forms, "gradient 0", thorough=True),
    Bug("a logarithm's slope is not that of its row", "log_softmax",
        "exp(y) * g.sum(axis=axes, keepdims=True)", "exp(y) * g",
        rows_have_the_gradients_of_their_readable_forms, "gradient 0"),
    Bug("a large logit swallows the loss", "cross_entropy_from_the_softmax", "log_total - shifted[own]",
        "log_total + x.max(axis=1) - x[own]", large_logits_swallow_no_loss, "cross_entropy: .* for"),
    Bug("a large logit stays in its logarithm", "write_softmax", "y[i, j] = x[i, j] - shift",
        "y[i, j] = x[i, j]", large_logits_swallow_no_loss, "log_softmax: .* for",
        thorough=True),
    Bug("a large logit stays in its logarithm, on a slide", "log_probabilities",
        "array_module(x), x - largest(x, axes)", "array_module(x), x + 0", large_logits_swallow_no_loss,
        "cross_entropy: .* for"),
    Bug("a logit is compared with a rounded logarithm", "write_softmax", "y[i, j] = x[i, j] - shift",
        "y[i, j] = x[i, j]", no_probability_is_above_1, "probability above 1"),
    Bug("infinity is taken from infinity", "logsumexp", "xp.where(xp.isfinite(shift), shift, 0)", "shift",
        infinite_logits_are_summed, "AssertionError"),
    Bug("a half swallows the sigmoid's tail", "elementwise.logistic",
        "1 / (1 + array_module(x).exp(-floating(x)))", "0.5 * array_module(x).tanh(0.5 * x) + 0.5",
        the_tail_of_the_sigmoid_is_there, "sigmoid: .* for"),
    Bug("the sigmoid is 1 less what is left", "write_logistic", "y[i] = one / (one + exp(-x[i]))",
        "y[i] = one - one / (one + exp(x[i]))", the_tail_of_the_sigmoid_is_there, "sigmoid: .* for"),
    Bug("a leaky ReLU with a slope below 0 is read from its value", "leaky_relu_by_loops",
        "y if slope >= 0 else x  #", "y  #", elements_have_the_values_of_their_readable_forms, "gradient 0"),
    Bug("a leaky ReLU has a slope above 0 only", "write_leaky_gradient",
        "d[i] = g[i] if x[i] > 0 else g[i] * slope", "d[i] = g[i] if x[i] > 0 else 0",
        elements_have_the_values_of_their_readable_forms, "gradient 0"),
    Bug("|x| rises at 0", "write_absolute_gradient", "-g[i] if x[i] < zero else g[i] * zero",
        "-g[i] if x[i] < zero else g[i]", elements_have_the_values_of_their_readable_forms, "gradient 0"),
    Bug("NaN ends at a ReLU", "where_positive_without_a_mask", "np.sign(y.view(bits), out=d.view(bits))",
        "np.greater(y, 0, out=d.view(bits), casting='unsafe')", nan_passes_and_nothing_else_does,
        "gradient 0 is"),
    Bug("-0 is positive", "positive_part_by_lines", "zeros[: x.size - whole]", "-zeros[: x.size - whole]",
        a_relu_of_bits_has_its_gradient, "-0 for"),
    Bug("what is not taken is multiplied by 0", "elementwise.where", "lambda g: masked(g, condition)",
        "lambda g: g * condition", nan_passes_and_nothing_else_does, "x gets"),
    Bug("a condition is a factor", "elementwise.where", "    condition = xp.asarray(condition, dtype=bool)\n",
        "", nan_passes_and_nothing_else_does, "x gets|TypeError"),
    Bug("NaN equals no element of its window", "write_maxima", "| (value != value)", "",
        nan_passes_and_nothing_else_does, "AssertionError", thorough=True),
    Bug("the exponent of a negative number has no slope", "power", "(x == 0) & (y >= 0)", "x <= 0",
        an_exponent_has_pytorchs_gradient, "the gradient of the exponent"),
    Bug("deviations from a rounded mean", "variance",
        "    centred -= average(centred, axes).reshape(reduced)", "    pass",
        a_mean_far_away_leaves_the_variance, "var: .* for"),
    Bug("a row taken twice gets one gradient", "add_rows", "sums[rows[i]] += numbers[i]",
        "sums[rows[i]] = numbers[i]", a_gradient_is_the_difference, DIFFERENCE),
    Bug("the label's share is not a mean", "cross_entropy_from_the_softmax",
        "share = times(factors, scale(g))", "share = times(factors, g)", a_gradient_is_the_difference,
        DIFFERENCE),
    Bug("an op is called as its faster form", "faster.form_of", "isinstance(anything, FunctionType)", "False",
        unknown_settings_are_refused_by_the_ops_name, "attention says: attention_in_tiles"),
    Bug("a layer is computed by loops where Numba is there", "activated_in_place",
        "y.size >= LOOPS_FROM[activation]", "loops.are_imported()",
        bits_are_the_same_before_numba_is_imported, "other bits"),
    Bug("batch-norm's mean is taken for a constant", "batch_norm", "factor * total / max(n, 1)", "0 * total",
        a_gradient_is_the_difference, DIFFERENCE),
    Bug("a variance is a difference of squares", "write_moments", "squares[c] = sums[c]",
        "squares[c] = np.square(x[:, c]).sum() - n * mean[c] ** 2", a_mean_far_away_leaves_the_deviations,
        "the value: "),
    Bug("rows below 0 are shifted by their smallest", "write_softmax", "b if b >= 0 else b ^ positive", "b",
        softmax_is_exact_on_any_level, " for "),
    Bug("the last probability is not counted", "write_softmax",
        "for j in range(columns):\n            total += e[j]",
        "for j in range(columns - 1):\n            total += e[j]", softmax_is_exact_on_any_level, " for "),
    Bug("rows are shifted by nothing, on a slide", "softmax.softmax", "exp(x - largest(x, axes))",
        "exp(x + 0)", softmax_is_exact_on_any_level, "nan|inf| for "),
    Bug("the last block of weights is drawn to its full size", "init.sample",
        "block[:] = draw(block.size)",
        "block[:] = draw(BLOCK)[: block.size]", weights_are_one_stream, "next number"),
    Bug("loops take arrays of two types", "loops.can_take", "and a.dtype == dtype", "",
        loops_take_arrays_of_one_type, "of several types"),
    Bug("loops take numbers with their bytes swapped", "loops.can_take", "dtype.isnative and ", "",
        loops_take_arrays_of_one_type, "no loop takes"),
    Bug("loops fail where their code cannot be stored", "loops.compiled", "except Exception:  # it could",
        "except KeyError:  # it could", a_full_disk_stops_no_loop, "No space left"),
    Bug("Numba refers to all of a module", "machine_code",
        'for name in ("__name__", *code.co_names) if name in every', "for name in every",
        machine_code_ends_with_its_module, "outlives its module"),
    Bug("a sum is one chain", "CHAIN", "CHAIN = 32 ", "CHAIN = 1 << 20 ", sums_are_of_short_chains,
        "off by .* eps"),
    Bug("rows beyond whole chains are left out", "column_sums",
        "total + ones(rest, x.dtype).dot(x[n - rest :]) if rest else total", "total",
        sums_are_of_short_chains, "off by .* eps"),
    Bug("sums of chains make a chain of any length", "column_sums", "if together <= CHAIN else",
        "if True else", sums_are_of_short_chains, "off by .* eps"),
    Bug("the last columns of a transposed copy come from the first", "in_c_order",
        "range(0, x.shape[-1], size)", "range(0, x.shape[-1] - 15, size)", a_transposed_copy_is_whole,
        "differ"),
    Bug("overlapping windows overwrite one another", "conv.direct", "d[pixels] += g[..., filters]",
        "d[pixels] = g[..., filters]", gradients_of_windows_are_the_differences, DIFFERENCE),
    Bug("rows of windows that overlap overwrite one another", "write_gradient_of_means",
        "line[e] += of_wide[e]", "line[e] = of_wide[e]", gradients_of_windows_are_the_differences,
        DIFFERENCE, thorough=True),
    Bug("a maximum of two windows gets one gradient", "write_gradient_of_maxima", "least else least]] += g",
        "least else least]] = g", gradients_of_windows_are_the_differences, DIFFERENCE, thorough=True),
    Bug("Winograd's algorithm is exact enough", "fastest", "and not exact.get()", "",
        exact_convolutions_round_like_sums, "not that of plain sums"),
    Bug("the algorithm is that of the first convolution of these shapes", "fastest",
        "return fastest_of_shapes(x.shape, w.shape, geometry, on_gpu(x), may_round)",
        "return vars(fastest).setdefault(\n        str((x.shape, w.shape, geometry)),\n        "
        "fastest_of_shapes(x.shape, w.shape, geometry, on_gpu(x), may_round),\n    )",
        exact_convolutions_round_like_sums, "not that of plain sums"),
    Bug("a padding for two rows is too narrow", "in_bands", "max(width + pw, kw)", "max(width, kw)",
        gradients_of_windows_are_the_differences, DIFFERENCE),
    Bug("a row of the kernel overwrites another one's products", "kernel_rows.correlate",
        "total[outputs] += out", "total[outputs] = out", gradients_of_windows_are_the_differences,
        DIFFERENCE),
    Bug("an average's gradient is not divided", "write_gradient_of_means", "1 / (rows[i, 2] * columns[j, 2])",
        "1", gradients_of_windows_are_the_differences, DIFFERENCE, thorough=True),
    Bug("shared work is kept for another gradient", "once", "if not last or last[0] is not g:",
        "if not last:", pullbacks_keep_their_contract, "depends on the calls before it"),
    Bug("a pullback gives away what it holds", "batch_norm", "sums(g)[1].copy()", "sums(g)[1]",
        pullbacks_keep_their_contract, "gives away what it holds"),
    Bug("a value's second use replaces the first", "tape.Tape.backward",
        "grads[index] = sum_in_order(before, d)", "grads[index] = d", gradients_are_those_of_dual_numbers,
        "dual numbers give"),
    Bug("a sum is written into what others hold", "tape.Tape.backward", "elif index in borrowed:",
        "elif False:", gradients_are_those_of_dual_numbers, "dual numbers give|read-only"),
    Bug("each use of a leaf is a leaf", "Tape.index_of", "index = self.leaves.get(id(x))", "index = None",
        a_leaf_is_announced_once_when_final, "announced"),
    Bug("a leaf is announced before its gradient is there", "tape.Tape.backward",
        "            if on_grad is not None:\n                on_grad(entry)\n            continue\n",
        "            continue\n        if on_grad and isinstance(entries[entry[0][0]], TensorBase):\n"
        "            on_grad(entries[entry[0][0]])\n", a_leaf_is_announced_once_when_final, "announced"),
    Bug("two leaves get one array", "tape.Tape.backward",
        "entry.accumulate_grad(g, private=len(entries) not in borrowed)", "entry.accumulate_grad(g)",
        gradients_belong_to_one_leaf, "shares its gradient with another"),
    Bug("a view of a gradient is given away", "tape.is_whole", "and d.base is not base_of(g)", "",
        views_of_gradients_are_copied, "shares its gradient"),
    Bug("a spent tape keeps its entries", "tape.Tape.backward",
        "entries, self.entries, self.leaves = self.entries, _Spent(self.outline()), {}",
        "entries, self.leaves = list(self.entries), {}", backward_releases_what_was_held, r"\[4, 4"),
    Bug("the second backward replaces the first", "TensorBase.accumulate_grad", "self.grad += g",
        "self.grad = g", gradients_of_two_backwards_add_up, "Mismatched elements"),
    Bug("Adam's mean is not corrected", "Adam.coefficients", "rate / (1 - b1**t)", "rate",
        adam_follows_its_recurrence, "by the book"),
    Bug("AdamW's decay goes through the moments", "AdamW.decoupled", "decoupled = True", "decoupled = False",
        adam_follows_its_recurrence, "by the book"),
    Bug("a new rate does not reach the velocity", "HeavyBall.coefficients", 'self.lr / state["lr"]', "1.0",
        momentum_survives_another_rate, "Mismatched elements"),
    Bug("LARS takes the gradient's norm for the weight's", "LARS.rates", "w, g = np.sqrt", "g, w = np.sqrt",
        lars_is_the_papers, "Mismatched elements"),
    Bug("each parameter is clipped by itself", "Optimizer.clip", "norm = float(np.sqrt(squares[:, 1].sum()))",
        "norm = float(np.sqrt(squares[:, 1].max()))", clipping_scales_to_the_joint_norm,
        "Mismatched elements"),
    Bug("a second run draws other numbers", "Replay.__enter__", "copied, states, own)",
        "copied, before[1], own)", recomputation_changes_nothing, "AssertionError: (x|state|gradient) "),
    Bug("running statistics move twice", "Replay.__enter__", "self.set_state, *before)",
        "self.set_state, copied, *before[1:])", recomputation_changes_nothing, "AssertionError: (x|state) "),
    Bug("a recomputed gradient counts twice", "Segment.record", "[(index, y.shape, lambda g: g)])",
        "[(index, y.shape, lambda g: g)] * 2)", recomputation_changes_nothing, "AssertionError: (x|state) "),
    Bug("all layers are one segment", "Recomputed.forward", "in pairwise(self.bounds):\n        segment",
        "in [self.bounds[:: len(self.bounds) - 1]]:\n        segment", one_segment_is_held_at_a_time,
        "held after forward"),
    Bug("a warm-up begins one step late", "lr_schedules.warm_up", "start + rise * t / steps if t < steps",
        "start + rise * (t - 1) / steps if t < steps", a_warm_up_rises_evenly_to_its_schedule,
        r"assert schedule\(t\)"),
    Bug("any gradient of as many elements is reshaped", "input_gradient",
        "if not is_broadcast(d.shape, shape, g.shape):",
        "if d.size != math.prod(shape) and not is_broadcast(d.shape, shape, g.shape):",
        another_shape_is_no_gradient, "was taken"),
    Bug("a gradient may have axes that no array has", "is_broadcast",
        "0 <= more <= max(len(value) - len(shape), 0)", "0 <= more", another_shape_is_no_gradient,
        "was taken"),
    Bug("what an op returns is not looked at", "lift", "check_result(function, result, arrays)", "pass",
        an_op_returns_its_pullbacks, "was called|not iterable|unpack"),
    Bug("a forward on a layer is passed over", "Module.unchanged_type",
        "written and not self.has_own_forward()", "written", a_spy_is_called, "passed over"),
    Bug("a forward on a class is passed over", "Module.unchanged_type",
        "kind.written == (kind.forward, kind.__call__)", "True", a_spy_is_called,
        "the forward of <class .* was passed over"),
    Bug("a rate of NumPy makes float64 of a step", "Optimizer.updates", "float(rates[n])", "rates[n]",
        loops_have_the_bits_of_updates, "off by"),
    Bug("a loop rounds a product and a sum once", "machine_code", "False if exactly else", "",
        loops_have_the_bits_of_updates, "is off by"),
    Bug("a loop of Nesterov takes the gradient alone", "write_sgd", "d + momentum * v[i] if nesterov",
        "d if nesterov", loops_have_the_bits_of_updates, "is off by"),
    Bug("a loop of Adam shrinks weights, too", "optim_loops.adam",
        "shrink if decay and optimizer.decoupled else 1.0", "shrink", loops_have_the_bits_of_updates,
        "is off by"),
    Bug("a loop of AdamW adds the decay to the gradient", "optim_loops.adam",
        "0.0 if optimizer.decoupled else decay", "decay", loops_have_the_bits_of_updates, "is off by"),
    Bug("a loop writes into a copy", "optim_loops.can_take",
        " and all([a.flags.c_contiguous for a in arrays])", "", loops_have_the_bits_of_updates, "is off by"),
]  # fmt: skip
