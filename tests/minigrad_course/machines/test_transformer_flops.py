"""Laws of lessons/minigrad_course/machines/transformer_flops.py: operations of drawn transformers."""

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.minigrad_course.machines import transformer_flops_laws as laws

SIZES = {
    "layers": st.integers(1, 3),
    "heads": st.integers(1, 4),
    "rows": st.integers(1, 5),
    "symbols": st.integers(2, 30),
    "length": st.integers(1, 20),
}


@given(**SIZES)
def test_a_forward(**sizes):
    laws.a_forward_is_that_of_the_planner(**sizes)


@settings(max_examples=settings().max_examples // 2)
@given(**SIZES)
def test_products(**sizes):
    laws.products_are_those_of_the_weights(**sizes)


large = st.integers(1, 20_000)


@given(layers=st.integers(1, 128), width=large, rows=large, symbols=large, length=large)
def test_a_step(layers, width, rows, symbols, length):
    laws.a_step_is_that_of_the_paper(layers, width, rows, symbols, length)


@given(flops=large, ranks=large, peak=large)
def test_a_utilization(flops, ranks, peak):
    laws.a_machine_at_its_peak_is_used_whole(flops, ranks, peak)
