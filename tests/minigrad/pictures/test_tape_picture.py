"""Laws of minigrad/pictures/tape_picture.py: tapes that are drawn at random, long ones and odd ones, and
their text.
"""

import gc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Tape, Tensor, nn, op, ops, recomputed
from tests.minigrad.pictures import tape_picture_laws as laws
from tests.pictures import shown

CHOICES = st.lists(
    st.tuples(st.sampled_from([*laws.OPS]), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30
)


def picture(tape):
    return tape._repr_svg_()


@given(choices=CHOICES, leaves=st.integers(1, 4))
def test_a_tape_is_drawn_whole(choices, leaves):
    program = laws.Program(choices, leaves)
    laws.an_open_tape_is_drawn_whole(picture, program)
    laws.a_spent_tape_says_what_backward_left(picture, program)


def test_a_long_tape_stays_small():
    program = laws.Program([(("add", "multiply")[i % 2], i, i // 2) for i in range(999)], 1)
    laws.an_open_tape_is_drawn_whole(picture, program)
    assert len(picture(program.tape)) < 16_000
    laws.a_spent_tape_says_what_backward_left(picture, program)


def test_a_tape_has_a_text():
    program = laws.Program([("multiply", 0, 0), ("tanh", 1, 1)], 1)
    assert repr(program.tape) == "Tape(3 entries, 1 of them leaves)"
    program.tape.backward(program.loss, 1.0)
    assert repr(program.tape) == "Tape(3 entries, 1 of them leaves, released)"
    assert repr(Tape()) == "Tape(0 entries, 0 of them leaves)"
    assert shown(picture(Tape())).title == "A tape of 0 entries, 0 of them leaves; its ops keep nothing"


def test_segments_points_and_leaves_that_are_gone_are_drawn():
    rng = np.random.default_rng(0)
    model = recomputed(nn.Sequential(nn.Linear(3, 4, rng=rng), nn.Linear(4, 2, rng=rng)), 1)
    x = Tensor(np.ones((5, 3)), requires_grad=True)
    with Tape() as tape:
        tape.when_reached(lambda: None)
        loss = ops.sum(model(x))
    words = shown(picture(tape)).words()
    assert [words.count(name) for name in ("segment", "point", "sum", "tensor (5, 3)")] == [1, 1, 1, 1]
    tape.backward(loss)
    del x
    gc.collect()
    words = shown(picture(tape)).words()
    assert "a tensor that is gone" in words and words.count("released") == 3


@pytest.mark.parametrize("name", ["a < b & c", '"', "<title>"])
def test_an_op_of_any_name_is_drawn(name):
    def function(x):
        return x * 2, (lambda g: g * 2,)

    function.__name__ = name
    with Tape() as tape:
        op(function)(Tensor([1.0], requires_grad=True))
    assert name in shown(picture(tape)).words()
