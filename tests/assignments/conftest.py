"""Of the mistakes that cost their tasks the quick lane grades every second one, and the thorough lane all."""

from itertools import groupby

import pytest

MISTAKES = "test_a_mistake_costs_"


@pytest.hookimpl(tryfirst=True)  # before the lane is chosen
def pytest_collection_modifyitems(items):
    mistakes = [item for item in items if item.name.startswith(MISTAKES)]
    for _, of_one_assignment in groupby(mistakes, key=lambda item: item.path):
        for item in list(of_one_assignment)[1::2]:
            item.add_marker(pytest.mark.thorough)
