"""The examples in docstrings give what stands below them."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for package in ("minigrad", "backends") for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert attempted and not failed


def test_every_order_of_a_schedule_draws_its_timetable():
    modules = [
        importlib.import_module(f"backends.pipeline.{name}")
        for name in ("unidirectional", "bidirectional", "zero_bubble")
    ]
    drawn = {
        name
        for module in modules
        for name, value in vars(module).items()
        if "text_of_plan(" in (getattr(value, "__doc__", None) or "")
    }
    assert drawn == {
        *(
            "naive",
            "gpipe",
            "one_f_one_b",
            "interleaved",
            "chimera",
            "dualpipe",
            "zb_h1",
            "zb_h2",
            "zb_batched",
        )
    }
