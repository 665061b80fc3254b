"""Laws of backends/cli/proof.py and verdict.py: the verdict's line says what the numbers say, and rows
that fail are marked.
"""

from io import StringIO
from types import ModuleType
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from backends.cli import verdict as own_module
from tests.bugs.mutant import mutant

CONFIG = dict(net="lenet", batch=13, strategy="replicated", pipe=1, data=2, sequence=1, model=1) | {
    "dtype": "float64"
}
BOUND = 1e-12
ERRORS = st.sampled_from([0.0, 1e-15, 2e-13, BOUND, 3e-12, 1e-1, float("inf")])


@st.composite
def verdicts(draw):
    """Verdicts with the shape of ``Proof.run``'s."""
    errors = draw(st.lists(ERRORS, min_size=2, max_size=5))
    ranks = draw(st.lists(st.integers(0, 7), min_size=len(errors), max_size=len(errors)))
    names = [*(f"{n}.weight" for n in range(len(errors) - 1)), "loss"]
    *rows, loss = (
        dict(name=name, shape=(3,), max_abs_error=error, max_rel_error=error, worst_rank=rank)
        for name, error, rank in zip(names, errors, ranks, strict=True)
    )
    config = {**CONFIG, "transport": "threads"}
    passed = max(errors) <= BOUND
    return dict(config=config, bound=BOUND, passed=passed, parameters=rows, loss=loss)


def says_what_the_numbers_say(module: ModuleType, verdict: dict) -> None:
    rows = [*verdict["parameters"], verdict["loss"]]
    errors = [row["max_rel_error"] for row in rows]
    text = module.conclusion(verdict)
    if verdict["passed"]:
        assert text.plain.startswith("PROVED: ") and str(text.style) == "bold green"
        assert ("bit for bit" in text.plain) == (not any(errors))
        assert not any(errors) or f" {max(errors):.1e} (allowed 1e-12" in text.plain
    else:
        assert text.plain.startswith("NOT EQUAL: ") and str(text.style) == "bold red"
        worst = rows[errors.index(max(errors))]
        assert f"{worst['name']} on rank {worst['worst_rank']} " in text.plain
        assert f" {max(errors):.1e} (allowed 1e-12" in text.plain
    shown = StringIO()
    table = module.report(verdict)
    Console(file=shown, width=120).print(table)
    printed = [line for line in shown.getvalue().splitlines() if line.startswith("│")]
    for row, line, style in zip(rows, printed, table.rows, strict=True):
        fails = row["max_rel_error"] > BOUND
        assert (f"{row['name']} x " in line) == fails and (style.style == "red") == fails


@given(verdict=verdicts())
def test_the_verdict_says_what_the_numbers_say(verdict):
    says_what_the_numbers_say(own_module, verdict)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('return [*verdict["parameters"], verdict["loss"]]', 'return verdict["parameters"]'),
        ('p["max_rel_error"] > verdict["bound"]', 'p["max_rel_error"] >= verdict["bound"]'),
        ('style="red" if fails else None', "style=None"),
        ("x\" if fails else p['name']".replace("'", '"'), 'x" if not fails else p["name"]'),
    ],
)
def test_a_verdict_that_lies_is_seen(old, new):
    is_seen(mutant("backends.cli.verdict", (old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("worst = max(self", "worst = min(self"),
        ("if all(difference.absolute", "if any(difference.absolute"),
        ("if not self.proved:", "if self.proved:"),
    ],
)
def test_a_conclusion_that_lies_is_seen(old, new):
    with patch.object(own_module, "Differences", mutant("backends.laws", (old, new)).Differences):
        is_seen(own_module)


def is_seen(broken: ModuleType) -> None:
    @settings(max_examples=100, phases=[Phase.generate], report_multiple_bugs=False)
    @given(verdict=verdicts())
    def law(verdict):
        says_what_the_numbers_say(broken, verdict)

    with pytest.raises((AssertionError, ValueError)):
        law()
