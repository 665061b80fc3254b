"""What the report on published figures calls an order, and that it refuses every wrong one."""

import importlib
import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

FOLDER = Path(__file__).parents[1] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(FOLDER))
    orders, figures, published, training = (
        importlib.import_module(name)
        for name in ("published_orders", "published_figures", "published", "published_training")
    )
Order, Row, FIGURES = orders.Order, orders.Row, figures.FIGURES

LOSSES = st.floats(1e-6, 1e6)
FACTORS = st.sampled_from([0.1, 0.5, 1.0, 1.2, 1.5])


# One order


def compares_with_a_clear_gap(judge, a, b, factor):
    """Assert that ``judge(order, means)`` is a < factor b, and refuses every mean that was lost."""
    order = Order("a", "b", factor)
    assert judge(order, {"a": a, "b": b}) == (a / b < factor)
    assert not judge(order, {"a": factor * b, "b": b})
    assert judge(order, {"a": a, "b": math.inf})
    assert not judge(order, {"a": math.inf, "b": b}) and not judge(order, {"a": math.inf, "b": math.inf})


@given(LOSSES, LOSSES, FACTORS)
def test_an_order_holds_below_its_factor_alone(a, b, factor):
    if not math.isclose(a, factor * b):  # a quotient is rounded once, a product once elsewhere
        compares_with_a_clear_gap(Order.holds, a, b, factor)


BROKEN = {
    "no factor": lambda order, means: (
        means["a"] < means["b"] < math.inf or means["b"] == math.inf > means["a"]
    ),
    "equal is enough": lambda order, means: means["a"] <= order.factor * means["b"] and means["a"] < math.inf,
    "lost runs pass": lambda order, means: (
        not means["a"] >= order.factor * means["b"] or means["a"] == math.inf
    ),
    "other way round": lambda order, means: order.factor * means["b"] < means["a"],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_order_is_caught(name):
    with pytest.raises(AssertionError):
        for a, b, factor in ((1.0, 1.5, 0.5), (1.0, 3.0, 0.5), (2.0, 1.0, 1.0)):
            compares_with_a_clear_gap(BROKEN[name], a, b, factor)


@pytest.mark.parametrize("means", [{"a": 1.0}, {"a": 1.0, "b": math.nan}, {"a": -0.1, "b": 1.0}])
def test_a_missing_row_and_what_is_no_loss_are_refused(means):
    with pytest.raises(ValueError, match="no row is called 'b'; measured were a|give a number from 0 to inf"):
        Order("a", "b").holds(means)


@given(st.lists(LOSSES, min_size=1, max_size=5), st.integers(0, 4))
def test_a_seed_that_diverged_is_not_left_out_of_the_mean(losses, at):
    assert Row(losses, []).mean == pytest.approx(math.fsum(losses) / len(losses))
    losses[at % len(losses)] = math.inf
    assert Row(losses, []).mean == math.inf


def test_a_chain_orders_neighbours():
    assert orders.chain("a", "b", "c") == (Order("a", "b"), Order("b", "c"))
    assert str(Order("a", "b")) == "a < b" and str(Order("a", "b", 0.5)) == "a < 0.5 x b"


# The figures


def simulated(figure):
    """The mean of every row in a separate simulation; where it has no such row, one that fits."""
    known = {name: line.simulated for name, line in figure.lines.items()}
    exact = {"f, error feedback": (0.0,), "f, no feedback": (1.0,), "DGC, warm-up of an epoch": (0.001,)}
    known |= {name: exact[name] for name, values in known.items() if not values}
    return {name: sum(values) / len(values) for name, values in known.items()}


ALL = [(name, order) for name, figure in FIGURES.items() for order in figure.orders]


@pytest.mark.parametrize(("name", "order"), ALL, ids=lambda x: str(x))
def test_the_simulation_meets_an_order_and_a_wrong_one_is_refused(name, order):
    means = simulated(FIGURES[name])
    assert order.holds(means)
    assert not order.holds(means | {order.better: 2 * order.factor * means[order.worse]})
    if order.factor <= 1:
        assert not order.holds(means | {order.better: means[order.worse], order.worse: means[order.better]})


@pytest.mark.parametrize("name", FIGURES)
def test_every_row_is_in_an_order(name):
    named = {row for order in FIGURES[name].orders for row in (order.better, order.worse)}
    assert named == set(FIGURES[name].lines)


# The report


def shown(figure, means, width=110):
    """What is printed where the rows have these means, and how many orders do not hold."""
    console = Console(width=width, record=True, file=io.StringIO())
    measured = {figure.lines[name].train: Row([mean] * 3, [0.9] * 3) for name, mean in means.items()}
    failed = published.show(console, figure, measured)
    return console.export_text(), failed


@pytest.mark.parametrize("name", FIGURES)
def test_the_report_says_which_order_does_not_hold(name):
    figure = FIGURES[name]
    means = simulated(figure)
    text, failed = shown(figure, means)
    assert failed == 0 and "does not hold" not in text
    assert all(row in text for row in figure.lines) and max(map(len, text.splitlines())) <= 110
    for order in figure.orders:
        text, failed = shown(figure, means | {order.better: math.inf})
        assert failed >= 1 and f"{order}: does not hold" in text


def test_an_unknown_figure_is_refused_with_the_choices():
    assert published.chosen("dgc, qsgd") == ["dgc", "qsgd"]
    for given_ in ("dgc,other", "", ","):
        with pytest.raises(published.typer.BadParameter, match="choose some of dgc,staleness,sign"):
            published.chosen(given_)


@pytest.mark.parametrize("means", [[0.1, 0.2], [0.2, 0.1]])
def test_the_exit_status_says_whether_all_hold(means, monkeypatch):
    """With a figure of two rows that train nothing."""
    lines = {name: figures.Line(train) for name, train in zip("ab", (object(), object()), strict=True)}
    figure = figures.Figure("t", "c", lines, (Order("a", "b"),))

    def trained(pool, lines, seeds, measured):
        measured.update({line.train: Row([mean], [1.0]) for line, mean in zip(lines, means, strict=True)})
        return 1.0

    monkeypatch.setitem(FIGURES, "none", figure)
    monkeypatch.setattr(published, "train_missing", trained)
    if means[0] < means[1]:
        published.main("none", 1, 1)
    else:
        with pytest.raises(published.typer.Exit) as caught:
            published.main("none", 1, 1)
        assert caught.value.exit_code == 1


# What is cheap to train


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sign_alone_stays_on_its_line_and_feedback_leaves_it(seed):
    """Without feedback x1 + x2 cannot change, so f cannot fall below slope |x1 + x2|."""
    floor = 0.5 * np.random.default_rng(seed).uniform(1, 2, (1, 2)).sum()
    alone, _ = training.two_numbers(seed, feedback=False, steps=400)
    helped, _ = training.two_numbers(seed, feedback=True, steps=400)
    assert floor <= alone + 1e-9 and alone < floor + 0.05
    assert helped < 0.1 * floor


def test_gradients_of_served_training_have_the_age_that_was_asked_for():
    """``stale`` itself refuses any other; an age of 2 must not train as one of 0."""
    fresh, old = (training.stale(0, lr=0.2, staleness=tau, epochs=1, size=200)[0] for tau in (0, 2))
    assert fresh < old < 2.3
