"""The examples in docstrings give what stands below them, and what a user calls has one."""

import doctest
import importlib
from pathlib import Path, PurePosixPath

import pytest
from minigrad_course.site.public_names import public_names

from backends.pipeline.gantt import text_of_plan
from backends.pipeline.schedules import SCHEDULES

ROOT = Path(__file__).parents[1]
FILES = [path for package in ("minigrad", "backends") for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    failed, attempted = doctest.testmod(
        importlib.import_module(name),
        extraglobs={"text_of_plan": text_of_plan},  # which draws the pictures of schedules
        optionflags=doctest.ELLIPSIS,
    )
    assert attempted and not failed


def test_what_a_user_calls_has_an_example():
    """Each page on layers, ops, optimizers, data and training; and a strategy of each family."""
    pages = [path for path in public_names(ROOT) if path.parts[0] == "minigrad"]
    families = ("data_parallel/__init__", "model_parallel/model_parallel", "pipeline/pipeline")
    pages += [PurePosixPath(f"backends/{family}.py") for family in families]
    without = [str(path) for path in pages if ">>> " not in (ROOT / path).read_text(encoding="utf-8")]
    assert len(pages) > 30 and not without, f"no example in {', '.join(without)}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_order_of_a_schedule_draws_its_timetable(name):
    order = SCHEDULES[name].order
    name = getattr(order, "__name__", "")
    if name in vars(importlib.import_module(order.__module__)):  # not made by another function
        assert "text_of_plan(" in (order.__doc__ or ""), f"the docstring of {name} needs its picture"
