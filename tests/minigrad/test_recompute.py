"""Laws of minigrad/recompute.py: running a segment again changes what a tape holds, and no
bit of what comes out.
"""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigrad import Tape, Tensor, nn, ops, recomputed, testing
from minigrad.device import to_host
from minigrad.recompute import RecomputedModule, Replay, Segment
from minigrad.testing import on_device
from tests.minigrad.recompute_laws import (
    COLUMNS,
    KINDS,
    ROWS,
    WIDTH,
    Replaced,
    a_leaf_that_was_passed_is_entered_anew,
    build,
    cases,
    changes_nothing,
    deep,
    no_bit_of_a_convolutional_network_changes,
    one_segment_is_held_at_a_time,
)

on_host = pytest.mark.skipif(testing.DEVICE != "numpy", reason="tracemalloc sees the host's memory only")


@settings(max_examples=60)
@given(case=cases())
def test_no_bit_changes(case):
    changes_nothing(recomputed, case)


@given(seed=st.integers(0, 9), segments=st.integers(1, 9))
def test_no_bit_of_a_convolutional_network_changes(seed, segments):
    no_bit_of_a_convolutional_network_changes(recomputed, seed, segments)


@pytest.mark.parametrize(("pairs", "segments"), [(1, 1), (16, 1), (16, 4), (16, 16), (12, 3)])
def test_one_segment_is_held_at_a_time(pairs, segments):
    one_segment_is_held_at_a_time(recomputed, pairs, segments)


def test_a_leaf_that_was_passed_is_entered_anew():
    a_leaf_that_was_passed_is_entered_anew(recomputed)


@pytest.mark.parametrize("constants", [(), (1,), (0, 1, 2)])
def test_a_module_of_several_inputs_keeps_these_alone(constants):
    """Bit by bit what the module gives, and where no input needs a gradient nothing is held."""

    class Core(nn.Module):
        def forward(self, q, k, v):
            return ops.attention(q, k, v, causal=True)

    rng = np.random.default_rng(0)
    arrays, g = [on_device(rng.normal(size=(2, 5, 3, 4))) for _ in range(3)], rng.normal(size=(2, 5, 3, 4))

    def gradients(core):
        leaves = [Tensor(x, requires_grad=i not in constants) for i, x in enumerate(arrays)]
        with Tape() as tape:
            y = core(*(leaf * 2.0 for leaf in leaves))
        nbytes = tape.nbytes
        if len(constants) < 3:
            tape.backward(y, on_device(g))
        return nbytes, [to_host(y.data)] + [None if x.grad is None else to_host(x.grad) for x in leaves]

    core = Core()
    (most, whole), (least, again) = gradients(core), gradients(RecomputedModule(core))
    for one, two in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert least == (0 if len(constants) == 3 else 3 * arrays[0].nbytes) and (most > least or not least)
    assert RecomputedModule(nn.Linear(2, 3, rng=0)).named_parameters().keys() == {"weight", "bias"}


def test_the_input_counts_unless_it_is_a_leaf():
    x = on_device(np.ones((ROWS, COLUMNS)))
    for leaf in (False, True):
        with Tape() as tape:
            recomputed(deep(4), 4)(Tensor(x, requires_grad=leaf))
        assert tape.nbytes == (4 - leaf) * x.nbytes


@on_host
def test_the_peak_is_that_of_the_formula():
    def peak(model):
        tracemalloc.start()
        x = np.ones((ROWS, COLUMNS))
        with Tape() as tape:
            loss = model(x).sum()
        tape.backward(loss)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result / x.nbytes

    plain, weights = deep(16), 16 * (COLUMNS + 1) / ROWS
    peak(plain)
    # Beside what tapes hold there are the weights' gradients, and the few arrays that one op works with.
    assert 17 < peak(deep(16)) < 17 + weights + 4
    assert 8 < peak(recomputed(deep(16), 4)) < 8 + weights + 4
    assert peak(recomputed(deep(16))) < peak(recomputed(deep(16), 1))


def test_by_default_there_are_about_root_n_segments_that_differ_by_one_layer_at_most():
    for n in range(1, 40):
        bounds = recomputed(nn.Sequential(*(nn.Tanh() for _ in range(n)))).bounds
        lengths = {b - a for a, b in zip(bounds, bounds[1:], strict=False)}
        assert (bounds[0], bounds[-1]) == (0, n) and max(lengths) - min(lengths) <= 1
        assert abs(len(bounds) - 1 - n**0.5) <= 0.5


def test_names_layers_and_parameters_are_the_models():
    model, _ = build(KINDS, 0)
    again = recomputed(model, 3)
    assert again.named_parameters() == model.named_parameters()
    assert list(again.state_dict()) == list(model.state_dict())
    assert again[2] is model[2] and len(again) == len(model)
    assert recomputed(again, 2).bounds == (0, 5, 11)


def test_what_is_outside_the_bounds_is_recorded():
    with Tape() as tape:
        recomputed(deep(4), (2, 4, 6))(on_device(np.ones((ROWS, COLUMNS))))
    assert sum(isinstance(entry, Segment) for entry in tape.entries) == 2
    assert tape.nbytes == 5 * ROWS * COLUMNS * 8  # x, the two segments' inputs, the last input and output


def test_a_model_without_gradients_leaves_no_entry():
    model = deep(2)
    for p in model.parameters():
        p.requires_grad = False
    with Tape() as tape:
        y = recomputed(model)(on_device(np.ones((1, COLUMNS))))
    assert not tape.entries and not y.requires_grad


def test_an_error_names_the_layer():
    with pytest.raises(ValueError, match=r"layer 2, in Linear\(50, 50\): linear takes x"), Tape():
        model = deep(2)
        recomputed(nn.Sequential(nn.Tanh(), nn.Tanh(), model[0]), 2)(np.ones((2, 7)))


class OwnForward(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    ("model", "segments", "message"),
    [
        (nn.Tanh(), None, "of a Sequential, not of a model with a forward of its own, Tanh"),
        (OwnForward(nn.Tanh()), 1, "not of a model with a forward of its own, OwnForward"),
        (nn.Sequential(nn.Tanh(), nn.Tanh()), 3, "a model of 2 layers has 1 to 2 segments, not 3"),
        (nn.Sequential(nn.Tanh()), 0, "a model of 1 layers has 1 to 1 segments, not 0"),
        (nn.Sequential(nn.Tanh()), (0,), r"2 or more numbers that rise within 0 to 1, got \(0,\)"),
        (nn.Sequential(nn.Tanh()), (0, 2), "rise within 0 to 1"),
        (nn.Sequential(nn.Tanh()), (0, 0, 1), "rise within 0 to 1"),
    ],
)
def test_segments_that_do_not_fit_are_refused(model, segments, message):
    with pytest.raises(ValueError, match=message):
        recomputed(model, segments)


# Replay, by itself


def test_a_replay_runs_again_what_ran_whatever_ran_in_between():
    model, rng = build(["linear", "dropout", "replaced", "norm", "nested"], 3)
    xs = [on_device(np.random.default_rng(i).normal(size=(3, WIDTH)).astype(np.float32)) for i in range(3)]
    replays, ys = [], []
    for x in xs:
        replays.append(Replay(model))
        with Tape():
            ys.append(model(x).data)
    state, drawn = model.state_dict(), rng.bit_generator.state
    for i in (1, 0, 1, 2):
        with replays[i], Tape():
            np.testing.assert_array_equal(to_host(model(xs[i]).data), to_host(ys[i]))
        assert rng.bit_generator.state == drawn
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(array, state[name], name)


def test_modules_that_share_a_state_array_share_it_in_a_replay_and_have_it_back():
    first, second = Replaced(), Replaced()
    second.running = first.running
    shared, replay = first.running, Replay(first, second)
    with pytest.raises(ZeroDivisionError), replay:
        assert first.running is second.running is not shared
        first.running += 1
        raise ZeroDivisionError
    assert first.running is second.running is shared and not shared.any()
