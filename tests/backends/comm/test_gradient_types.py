"""Laws of backends/comm/gradient_types.py and typed_tape.py: each rule is what its op does, and every way to
put sums into a block of two layers is refused exactly where its gradients are not those of one machine.
"""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import differentiable, run_ranks
from backends.comm.gradient_types import FAN_OUT, PARTIAL, RULES, SPLIT
from backends.comm.typed_tape import GradientTypeError, TypedTape
from minigrad import Parameter, Tape, Tensor, ops
from tests.backends.comm.gradient_type_laws import (
    BLOCKS,
    OPS,
    block_is_refused_exactly_where_it_is_wrong,
    rule_holds,
)


@pytest.mark.parametrize("name", OPS)
@given(ranks=st.integers(2, 5), seed=st.integers(0, 2**16))
def test_a_rule_is_what_its_op_does(name, ranks, seed):
    rule_holds(name, RULES[name], ranks, seed)


def test_all_differentiable_collectives_have_a_rule():
    lifted = [name for name, f in vars(differentiable).items() if "comm" in parameters_of(f)]
    assert {*lifted} - {"even"} <= {*RULES}


def parameters_of(f):
    return inspect.signature(f).parameters if inspect.isfunction(f) else ()


def test_a_block_is_refused_exactly_where_it_is_wrong():
    right = [block for block in BLOCKS if not block_is_refused_exactly_where_it_is_wrong(block, ranks=2)]
    assert len(right) == 4  # with a bias after the sum or none, with a residual of x or none


@given(block=st.sampled_from(BLOCKS), ranks=st.integers(2, 5))
def test_any_number_of_ranks_refuses_alike(block, ranks):
    block_is_refused_exactly_where_it_is_wrong(block, ranks)


def typed(work, kind=None, ranks=2):
    """What ``work`` of a tensor of this type, and of a communicator, raises or returns on rank 0."""

    def on_rank(comm):
        x = Parameter(np.ones((2, 4)))
        with TypedTape({} if kind is None else {x: {comm: kind}}, {"1.weight": x}) as tape:
            return [*tape.types_of(work(x, comm)).values()]

    return run_ranks(ranks, on_rank)[0]


@pytest.mark.parametrize(
    ("work", "kind", "says"),
    [
        (
            lambda x, comm: differentiable.fan_in(x, comm=comm),
            None,
            "fan_in in layer 1: 1.weight is replicated with a replicated gradient over 2 ranks, and must be "
            "partial with a replicated gradient; a sum over ranks before is one too many: leave it out",
        ),
        (
            lambda x, comm: differentiable.fan_out(x, comm=comm),
            FAN_OUT,
            "fan_out in layer 1: 1.weight is replicated with a partial gradient over 2 ranks, and must be "
            "replicated with a replicated gradient; a sum over ranks before is one too many: leave it out",
        ),
        (
            lambda x, comm: differentiable.fan_out(x, comm=comm),
            PARTIAL,
            "fan_out in layer 1: 1.weight is partial with a replicated gradient over 2 ranks, and must be "
            "replicated with a replicated gradient; put fan_in before",
        ),
        (
            lambda x, comm: x + 1.0,
            PARTIAL,
            "add in layer 1: a constant is added to a term of a sum on each of 2 ranks, so it counts 2 "
            "times; add it after fan_in",
        ),
        (
            lambda x, comm: ops.relu(2 * x),
            PARTIAL,
            "relu in layer 1: each of 2 ranks has one term of a sum, and relu is not linear; put fan_in "
            "before",
        ),
    ],
)
def test_an_error_names_the_layer_and_the_way_out(work, kind, says):
    with pytest.raises(GradientTypeError) as refused:
        typed(work, kind)
    assert str(refused.value) == says


def test_axes_of_ranks_are_apart():
    """A sum over the ranks of a row leaves the type over the ranks of a column."""

    def work(comm):
        row, column = comm.split(comm.rank // 2, comm.rank), comm.split(comm.rank % 2, comm.rank)
        x = Tensor(np.ones((2, 4)), requires_grad=True)
        with TypedTape({x: {row: PARTIAL, column: SPLIT}}) as tape:
            y = differentiable.fan_in(x, comm=row)
            z = differentiable.all_gather(ops.tanh(y), comm=column)
        return tape.types_of(y) == {column: SPLIT} and tape.types_of(z) == {column: FAN_OUT}

    assert all(run_ranks(4, work))


def test_ops_keep_types():
    assert typed(lambda x, comm: ops.tanh(x)) == []
    assert typed(lambda x, comm: ops.tanh(x), SPLIT) == [SPLIT]
    assert typed(lambda x, comm: ops.sum(2.0 * x) + ops.sum(x), PARTIAL) == [PARTIAL]
    assert typed(lambda x, comm: x + differentiable.all_gather(x, comm=comm)[:2], SPLIT) == [SPLIT]


def test_what_needs_no_gradient_has_no_type():
    def work(x, comm):
        return differentiable.fan_in(Tensor(np.ones(3)), comm=comm)

    assert typed(work) == []


def test_another_tape_types_nothing():
    def work(comm):
        x = Tensor(np.ones(3), requires_grad=True)
        with Tape() as tape:
            loss = ops.sum(differentiable.fan_in(differentiable.fan_in(x, comm=comm), comm=comm))
        tape.backward(loss)

    run_ranks(2, work)
