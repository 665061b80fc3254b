"""Laws of minigrad/tape.py and tensor_base.py: gradients of programs, seeds, accumulation, nesting."""

import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, Tensor, no_grad, ops
from minigrad.tape import once_for_all
from minigrad.testing import on_device
from tests.minigrad import tape_laws


@given(tape_laws.programs())
def test_backward_agrees_with_forward_differentiation(program):
    tape_laws.backward_agrees_with_forward(Tape, program)


@given(tape_laws.programs())
def test_backward_agrees_with_the_readable_walk(program):
    tape_laws.the_readable_walk_agrees(Tape, program)


def test_a_value_used_twice_gets_both_gradients():
    x = Tensor(on_device([1.0, 2.0]), requires_grad=True)
    with Tape() as tape:
        y = x * x
        loss = (y + y * x).sum()
    tape.backward(loss)
    assert x.grad is not None
    assert x.grad.tolist() == [2 + 3, 4 + 12]


def test_a_tied_parameter_gets_the_sum_over_its_uses():
    w = Parameter(on_device(np.eye(2)))
    x = on_device([[1.0, 2.0]])
    with Tape() as tape:
        loss = ops.linear(ops.linear(x, w), w).sum()
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [[1 + 1, 2 + 2], [1 + 1, 2 + 2]]


def test_gradients_add_up_over_two_tapes():
    w = Parameter(on_device([3.0]))
    for x in (2.0, 5.0):
        with Tape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [7.0]


def test_a_seed_is_one_for_a_scalar_a_number_for_a_weight_and_an_array_for_any_shape():
    def gradient(reduce, seed):
        w = Parameter(on_device([1.0, 2.0, 3.0]))
        with Tape() as tape:
            y = w * w
            loss = y.sum() if reduce else y
        tape.backward(loss, seed)
        assert w.grad is not None
        return w.grad.tolist()

    assert gradient(True, None) == [2, 4, 6]
    assert gradient(True, 0.5) == [1, 2, 3]
    assert gradient(True, on_device(0.5)) == [1, 2, 3]
    assert gradient(False, 2.0) == [4, 8, 12]
    assert gradient(False, on_device([1.0, 0.0, -1.0])) == [2, 0, -6]


def test_a_seed_is_left_as_it_was():
    seed = on_device([1.0, 2.0])
    w = Parameter(on_device([1.0, 1.0]))
    with Tape() as tape:
        y = w + w
    tape.backward(y, seed, on_grad=lambda p: p.grad.fill(7))  # pyright: ignore
    assert seed.tolist() == [1.0, 2.0]


def test_a_loss_of_one_element_needs_no_seed_whatever_its_shape():
    w = Parameter(on_device([[3.0]]))
    with Tape() as tape:
        loss = w * w
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [[6.0]]


def test_without_a_tape_nothing_is_recorded():
    w = Parameter(on_device([1.0]))
    y = w * 2.0
    assert y.tape is None
    assert not y.requires_grad


def test_inside_no_grad_nothing_is_recorded():
    tape_laws.nothing_is_recorded(no_grad)


def test_constants_leave_no_entry():
    with Tape() as tape:
        y = Tensor(on_device([1.0])) * 2.0 + on_device([1.0])
    assert y.tape is None
    assert tape.entries == []


def test_the_inner_tape_records_and_the_outer_one_goes_on_after_it():
    w = Parameter(on_device([2.0]))
    with Tape() as outer:
        a = w * 3.0
        with Tape() as inner:
            b = (w * 5.0).sum()
        inner.backward(b)
        assert w.grad is not None
        assert w.grad.tolist() == [5.0]
        c = (a * Tensor(b.data)).sum()
    outer.backward(c)
    assert w.grad.tolist() == [5.0 + 3.0 * 10.0]


def test_a_tape_may_be_opened_again_before_it_is_spent():
    w, tape = Parameter(on_device([2.0])), Tape()
    with tape:
        y = w * w
    with tape:
        loss = (y * w).sum()
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [12.0]


def test_a_detached_tensor_is_a_constant():
    w = Parameter(on_device([2.0]))
    with Tape() as tape:
        loss = (w * (w * w).detach()).sum()
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [4.0]


def test_a_frozen_parameter_gets_no_gradient_and_no_entry():
    w, b = Parameter(on_device([2.0])), Parameter(on_device([1.0]))
    b.requires_grad = False
    with Tape() as tape:
        loss = (w * 2.0 + b).sum()
    assert not any(entry is b for entry in tape.entries)
    loss.backward()
    assert b.grad is None
    assert w.grad is not None
    assert w.grad.tolist() == [2.0]


@pytest.mark.parametrize("n", [100_000])
def test_a_long_chain_needs_no_recursion(n):
    w = Parameter(on_device([1.0]))
    with Tape() as tape:
        y = w
        for _ in range(n):
            y = y + 1.0
    tape.backward(y)
    assert w.grad is not None
    assert w.grad.tolist() == [1.0]
    del y, tape


def test_results_for_several_pullbacks_are_given_away():
    tape_laws.gives_results_away(once_for_all)
