"""Laws of minigrad/nn/experts.py, minigrad/routing.py, minigrad/tokens.py, minigrad/nn/transformer_block.py:
a mixture of experts is its loops, alone and in a transformer, and says what it does not take.
"""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch
from minigrad.forward_pass import ForwardPass
from minigrad.generate import generate
from minigrad.models import transformer
from minigrad.recompute import recomputed
from minigrad.routing import route
from minigrad.testing import DEVICE, on_device
from minigrad.tokens import Tokens
from minigrad.work import Work, forward_backward_pass
from tests.minigrad.nn.experts_laws import Mixture, is_loops, one_expert_is_dense, penalty_of


@st.composite
def mixtures(draw, least_rows=0):
    experts = draw(st.integers(1, 5))
    return Mixture(
        rows=draw(st.integers(least_rows, 3)),
        length=draw(st.integers(0, 7)),
        experts=experts,
        choices=draw(st.integers(1, min(experts, 3))),
        capacity=draw(st.sampled_from([0, 0.25, 0.5, 1, 1.25, 10])),
        width=draw(st.integers(1, 3)),
        ties=draw(st.booleans()),
        padding=draw(st.integers(0, 4)),
        seed=draw(st.integers(0, 99)),
    )


@given(mixtures(), st.booleans())
def test_a_mixture_is_three_loops(mixture, again):
    is_loops(mixture, again=again)


EDGES = {
    "no place": Mixture(capacity=0.0),
    "one place": Mixture(capacity=0.2),
    "all tokens to one expert": Mixture(choices=1, ties=True, width=1, length=7),
    "more experts than tokens": Mixture(experts=5, length=2),
    "one expert": Mixture(experts=1, choices=1),
    "one row": Mixture(rows=1, choices=1),
    "a row of padding": Mixture(padding=9),
    "no row": Mixture(rows=0),
    "no column": Mixture(length=0),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_mixture_is_three_loops_at_the_edges(name):
    is_loops(EDGES[name])


def test_some_draws_drop_tokens_and_some_do_not():
    dropped = [is_loops(Mixture(capacity=f, length=7, choices=1, seed=1)) for f in (0.25, 1, 10)]
    assert dropped[0] > dropped[1] > dropped[2] == 0


@given(mixtures())
def test_one_expert_is_the_dense_layer(mixture):
    one_expert_is_dense(mixture)


@pytest.mark.parametrize("n_experts", [1, 2, 4])
def test_the_penalty_is_least_at_balance_and_most_where_one_expert_has_all(n_experts):
    layer = nn.Experts(n_experts, n_experts, penalty=0.01, rng=0, dtype=np.float64)
    layer.to(device=DEVICE)
    even = np.tile(np.eye(n_experts), (3, 2, 1))  # each expert is the first choice of two tokens of a row
    layer.gate.data[...] = on_device(np.eye(n_experts) * 3)
    assert penalty_of(layer, even) == pytest.approx(0.01, rel=1e-14)
    layer.gate.data[...] = on_device(np.eye(n_experts)[:, :1] * 1e3)
    assert penalty_of(layer, np.ones((2, 5, n_experts))) == pytest.approx(0.01 * n_experts, rel=1e-14)


def test_outside_of_a_pass_and_without_a_weight_there_is_no_penalty():
    mixture = Mixture()
    x = Tensor(on_device(mixture.x()), requires_grad=True)
    for forward_pass in (None, ForwardPass(0, range(2))):
        layer = mixture.layer()
        layer.penalty = 0.0 if forward_pass else 1e9
        with Tape() as tape:
            if forward_pass is None:
                y = layer(x)
            else:
                with forward_pass:
                    y = layer(x)
                assert forward_pass.penalties == []
        tape.backward(y, on_device(np.ones(y.shape)))
        assert layer.gate.grad is not None and abs(layer.gate.grad).max() < 1e3


def test_uniform_gates_drop_what_binomial_numbers_say():
    """The share of S = 64 tokens that find no place at E = 8 experts of C places each."""
    length, n_experts, rows = 64, 8, 4_000
    gates = np.random.default_rng(0).uniform(size=(rows, length, n_experts))
    for capacity, percent in ((1.0, 13.0), (1.25, 4.5), (1.5, 1.2), (2.0, 0.03)):
        places = math.ceil(capacity * length / n_experts)
        chances = [
            math.comb(length, n) * (n_experts - 1) ** (length - n) / n_experts**length
            for n in range(length + 1)
        ]
        surplus = [max(n - places, 0) for n in range(length + 1)]
        mean = sum(s * p for s, p in zip(surplus, chances, strict=True))
        square = sum(s * s * p for s, p in zip(surplus, chances, strict=True))
        expected = n_experts / length * mean
        sigma = n_experts / length * math.sqrt((square - mean**2) / (rows * n_experts))
        share = route(gates, choices=1, capacity=capacity).dropped / (rows * length)
        assert abs(share - expected) < 3 * sigma
        assert abs(100 * expected - percent) < (0.06 if percent > 1 else 0.006)


def test_first_choices_come_before_second_ones_and_lower_experts_first():
    gates = np.array([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]])
    routes = route(gates, choices=2, capacity=0.5)  # one place at each expert
    assert routes.experts.tolist() == [[[0, 1], [0, 1], [1, 0]]]
    assert routes.slots.tolist() == [0, 4] and routes.counts.tolist() == [1, 1, 0]
    assert routes.tokens.tolist() == [0, 2] and (routes.choices, routes.dropped) == (6, 4)
    assert routes.shares.tolist() == [[2 / 3, 1 / 3, 0]]


def test_the_number_of_places_is_that_of_the_decimal_fractions():
    for capacity, length, places in ((1.1, 20, 11), (0.3, 20, 3), (1.25, 4, 3), (0.0, 20, 0)):
        routes = route(np.ones((1, length, 2)), choices=1, capacity=capacity)  # all would go to the first
        assert routes.counts.tolist() == [places, 0]
    assert route(np.ones((1, 10, 3)), choices=3, capacity=0.1).counts.tolist() == [1, 1, 1]  # 0.1 * 3 > 0.3


class OnThisRank(Tokens):
    """Some of the columns; the choices at the others are known in advance."""

    columns: Any
    experts: Any

    def __init__(self, columns, experts, document=None):
        super().__init__(document=document)
        vars(self).update(columns=columns, experts=experts)

    def all_gather(self, x):
        np.testing.assert_array_equal(x, self.local_part(self.experts))
        return self.experts

    def local_part(self, x):
        return x[:, self.columns]


@given(mixtures(), st.integers(1, 3), st.integers(0, 99))
def test_columns_of_rows_are_routed_as_whole_rows(mixture, ranks, seed):
    layer, x, tokens = mixture.layer(), mixture.x(), mixture.tokens()
    with ForwardPass(0, range(mixture.rows), tokens=tokens) as forward_pass:
        whole = layer(on_device(x)).numpy()
        gates = layer.gates(Tensor(on_device(x))).data
    experts = route(gates, choices=mixture.choices, capacity=mixture.capacity).experts
    penalty = 0.0
    rank_of = np.random.default_rng(seed).integers(0, ranks, mixture.length)
    for rank in range(ranks):
        columns = np.flatnonzero(rank_of == rank)
        here = OnThisRank(columns, experts, tokens.document)
        with ForwardPass(0, range(mixture.rows), tokens=here) as part:
            y = layer(on_device(x[:, columns])).numpy()
        np.testing.assert_allclose(y, whole[:, columns], rtol=1e-13, atol=1e-13)
        penalty += part.penalty()
    assert penalty == pytest.approx(forward_pass.penalty(), rel=1e-13, abs=1e-15)


def small(seed=0, **mixture):
    settings = {"symbols": 7, "length": 6, "width": 4, "heads": 2, "blocks": 2, "experts": 3, **mixture}
    model: Any = transformer(np.random.default_rng(seed), **settings)
    return model.to(dtype=np.float64, device=DEVICE)


def batch_of(rows):
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 7, (rows, 6)), rng.integers(-1, 7, (rows, 6))
    return Batch(on_device(x), on_device(y))


LOSS = nn.CrossEntropyLoss(ignore_index=-1, class_axis=-1)


def test_a_transformer_trains_its_experts_and_a_second_run_counts_nothing_twice():
    runs = []
    for again in (False, True):
        model = small(choices=2, capacity=0.5)
        loss = forward_backward_pass(
            Work(recomputed(model, 2) if again else model, batch_of(3), LOSS, 0.5, step=0)
        )
        counts = [(b.feed_forward.routed, b.feed_forward.dropped) for b in model.layers[1:3]]
        runs.append([loss, counts, *(p.grad for p in model.parameters())])
    assert runs[0][:2] == runs[1][:2] and runs[0][1][0][0] == 3 * 6 * 2 and runs[0][1][0][1] > 0
    for first, second in zip(runs[0][2:], runs[1][2:], strict=True):
        np.testing.assert_array_equal(on_host(first), on_host(second))
    model = small(choices=2, capacity=0.5, penalty=0.0)
    without = forward_backward_pass(Work(model, batch_of(3), LOSS, 0.5, step=0))
    assert 0.5 * 2 * 0.01 * 0.9 < runs[0][0] - without < 0.5 * 2 * 0.03


def on_host(gradient):
    return Tensor(gradient).numpy()


def test_a_transformer_with_experts_is_used_as_any_other():
    model = small().eval()
    symbols = generate(model, np.array([1, 2]), 4, length=6, rng=np.random.default_rng(0))
    assert len(list(symbols)) == 4
    names = [name for name in model.state_dict() if "feed_forward" in name and name.startswith("1.")]
    assert [name.rpartition(".")[2] for name in names] == ["gate", "weight1", "bias1", "weight2", "bias2"]
    assert "Experts(4, 3, hidden=16, choices=1, capacity=1.25, penalty=0.01)" in repr(model)


def test_a_block_takes_any_module_of_tokens_as_its_feed_forward():
    empty = nn.Sequential()
    assert nn.TransformerBlock(4, 2, feed_forward=empty, rng=0).feed_forward is empty


def test_a_penalty_in_sixteen_bits_is_that_of_thirty_two():
    x = np.random.default_rng(0).normal(size=(32, 256, 4)).astype(np.float32)
    penalties = []
    for dtype in ("float32", "float16"):
        model = nn.Experts(4, 8, rng=0).to(dtype=dtype)
        with ForwardPass(0, range(len(x))) as forward_pass:
            model(x.astype(dtype))
        penalties.append(forward_pass.penalty())
    assert abs(penalties[1] / penalties[0] - 1) < 1e-3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nn.Experts(4, 2, capacity="1", rng=0), "capacity is a number of at least 0, got 1"),  # pyright: ignore
        (lambda: nn.Experts(4, 4, choices=5, rng=0), "at most the 4 experts that there are, not 5"),
        (lambda: nn.Experts(4, 0, rng=0), "experts must be an integer of at least 1, got 0"),
        (lambda: nn.Experts(4, 2, choices=0, rng=0), "choices must be an integer of at least 1, got 0"),
        (lambda: nn.Experts(4, 2, capacity=-0.5, rng=0), "capacity is a number of at least 0, got -0.5"),
        (lambda: nn.Experts(4, 2, penalty=math.nan, rng=0), "penalty is a number of at least 0, got nan"),
        (lambda: nn.Experts(4, 2, rng=0)(np.ones((3, 4))), r"tokens \(B, S, width\), got \(3, 4\)"),
        (lambda: ops.grouped_linear(*grouped(), counts=[1, 1]), "2 groups of 2 rows; sort the rows"),
        (lambda: ops.segment_sum(np.ones((3, 2)), np.zeros(2, int), count=2), r"for each row, got \(2,\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def grouped():
    return np.ones((3, 4)), np.ones((2, 5, 4)), np.ones((2, 5))
