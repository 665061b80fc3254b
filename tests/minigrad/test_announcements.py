"""Laws of minigrad/tape.py: on_grad tells of each reached leaf once, when its gradient is
final and its own.
"""

import numpy as np
from hypothesis import given

from minigrad import Parameter, Tape, Tensor
from minigrad.testing import DEVICE, on_device
from tests.minigrad import tape_laws


@given(tape_laws.programs())
def test_leaves_are_announced_once_when_final_and_last_used_first(program):
    tape_laws.leaves_are_announced_when_final(Tape, program)


@given(tape_laws.programs())
def test_what_is_written_into_one_gradient_reaches_no_other(program):
    tape_laws.gradients_are_private(Tape, program)


def test_two_biases_added_to_one_value_do_not_share_their_gradient():
    x, b1, b2 = (Parameter(on_device(np.ones((2, 3)))) for _ in range(3))
    with Tape() as tape:
        loss = (x + b1 + b2).sum()
    tape.backward(loss, on_grad=lambda leaf: leaf.grad.__imul__(10))  # pyright: ignore
    for leaf in (x, b1, b2):
        assert leaf.grad is not None
        assert (leaf.grad == 10).all()


def test_a_leaf_that_the_loss_does_not_reach_is_not_announced():
    used, unused, order = Parameter(on_device([1.0])), Parameter(on_device([1.0])), []
    with Tape() as tape:
        loss = (used * 2.0).sum()
        _ = unused * used
    tape.backward(loss, on_grad=order.append)
    assert [x is used for x in order] == [True]
    assert unused.grad is None


def test_a_loss_in_the_middle_of_the_tape_leaves_later_entries_alone():
    w = Parameter(on_device([2.0]))
    with Tape() as tape:
        loss = (w * w).sum()
        _ = (loss * 100.0 * w).sum()
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.tolist() == [4.0]


def test_input_leaves_are_announced_too():
    x, order = Tensor(on_device([1.0]), requires_grad=True), []
    with Tape() as tape:
        loss = (x * 3.0).sum()
    loss.backward(on_grad=order.append)
    assert order[0] is x
    assert len(tape.entries) == 0


def test_at_the_announcement_the_gradient_of_earlier_tapes_is_already_added():
    w, grads = Parameter(on_device([1.0])), []
    for _ in range(2):
        with Tape() as tape:
            loss = (w * 3.0).sum()
        tape.backward(loss, on_grad=lambda leaf: grads.append(leaf.grad.tolist()))  # pyright: ignore
    assert grads == [[3.0], [6.0]]


def test_gradients_are_plain_arrays_in_c_order():
    w, x = Parameter(on_device(np.ones((3, 2)))), on_device(np.ones((4, 2)))
    with Tape() as tape:
        loss = (x @ w.T).sum() + w.transpose()[0, 0]
    tape.backward(loss)
    assert w.grad is not None
    assert w.grad.flags.c_contiguous
    assert DEVICE == "cupy" or w.grad.flags.writeable  # all arrays of CuPy are
