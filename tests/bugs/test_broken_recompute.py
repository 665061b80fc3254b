"""Each law of recomputation turns red on a copy with the bug it is there for."""

import pytest
from hypothesis import Phase, given, settings

from minigrad import recomputed
from tests.bugs.mutant import mutant
from tests.minigrad.recompute_laws import (
    a_leaf_that_was_passed_is_entered_anew,
    cases,
    changes_nothing,
    no_bit_of_a_convolutional_network_changes,
    one_segment_is_held_at_a_time,
)

BUGS = {
    "masks are drawn anew": ("self.set_state(copied, states, own)", "self.set_state(copied, before[1], own)"),
    "the generator stays where the second run began": (
        "            rng.bit_generator.state = state\n",
        "            pass\n",
    ),
    "generators of modules inside are overlooked": (
        "in generators_of(module).values()",
        "in [rng for name, rng in generators_of(module).items() if name.startswith('model.')]",
    ),
    "statistics move twice": (
        "self.set_state(copied, states, own)",
        "self.set_state(before[0], states, own)",
    ),
    "statistics are those behind the first run": ("then.copy() for array, then", "array.copy() for array, _"),
    "the second run leaves its statistics": (
        "            setattr(owner, name, array)\n",
        "            pass\n",
    ),
    "a gradient counts twice": ("[(index, y.shape, lambda g: g)])", "[(index, y.shape, lambda g: g)] * 2)"),
    "a leaf is announced when its segment is done": (
        "for leaf in first.entries]",
        "for leaf in first.entries[:0]]",
    ),
    "the input's memory is used again": (
        "        y = Tensor(run(*(x.detach() for x in xs)))\n",
        "        y = Tensor(run(*(x.detach() for x in xs)))\n    xs[0].data.fill(0)\n",
    ),
    "the output is kept for the input": ("Segment(own, run,", "Segment([(own[0][0], y.data)], run,"),
    "the input's gradient is lost": (
        "if index is not None:\n                x.tape",
        "if False:\n                x.tape",
    ),
    "layers run in another order": (
        "x = self.forward_range(x, 0, self.bounds[0])",
        "self.layers = self.layers[::-1]\n        x = self.forward_range(x, 0, self.bounds[0])",
    ),
    "what is outside the bounds does not run": (
        "return self.forward_range(x, self.bounds[-1], len(self.layers))",
        "return x",
    ),
    "a segment of constants is left out": (
        "if any(i is not None for i in (*(i for i, _ in own), *indices))",
        "if any(i is not None for i, _ in own)",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_bits_catches_recomputation_where(bug):
    broken = mutant("minigrad.recompute", BUGS[bug]).recomputed

    @settings(max_examples=300, phases=[Phase.generate], database=None)
    @given(case=cases())
    def check(case):
        changes_nothing(broken, case)

    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError, AttributeError)):
        check()


@pytest.mark.parametrize(
    "change",
    [
        (
            "in pairwise(self.bounds):\n            segment",
            "in [self.bounds[:: len(self.bounds) - 1]]:\n            segment",
        ),
        ("if tape is None:\n            return super()", "if tape:\n            return super()"),
        ("x) for index, x in inputs]", "x) for i, x in inputs for index, x in ((i, x), (i, x.copy()))]"),
    ],
    ids=["all layers are one segment", "everything is recorded", "a copy is kept"],
)
def test_the_law_of_memory_catches(change):
    with pytest.raises(AssertionError):
        one_segment_is_held_at_a_time(mutant("minigrad.recompute", change).recomputed, 4, 2)


def test_the_law_of_leaves_catches_a_place_that_was_passed():
    with pytest.raises((AssertionError, IndexError)):
        a_leaf_that_was_passed_is_entered_anew(
            mutant("minigrad.recompute", (" if i < len(entries)", "")).recomputed
        )


def test_the_law_of_networks_catches_a_bound_within_one_pass():
    change = "sorted({model.end_of_pass(bound) for bound in bounds})", "bounds"
    with pytest.raises(AssertionError):
        no_bit_of_a_convolutional_network_changes(mutant("minigrad.recompute", change).recomputed, 0, 4)


def test_an_unchanged_copy_keeps_the_laws():
    copy = mutant("minigrad.recompute").recomputed
    assert copy is not recomputed
    one_segment_is_held_at_a_time(copy, 4, 2)
    a_leaf_that_was_passed_is_entered_anew(copy)

    @given(case=cases())
    def check(case):
        changes_nothing(copy, case)

    check()
