"""``prove --locate`` names the operations of seeded bugs: see ``python -m tests.bugs.located``."""

import pytest

from tests.bugs.located import main


@pytest.mark.thorough
def test_bugs_are_located():
    """Bugs in forward, in backward, in weights' gradients and in reductions."""
    names = ["filters send back", "channels get a bias", "other ranks' classes", "of that row", "replicas"]
    assert main(names) == 0
