"""Each law of tapes turns red on a tape with the bug it is there for."""

import pytest
from hypothesis import Phase, given, settings

from minigrad import Tape
from tests.bugs.mutant import mutant
from tests.minigrad import tape_laws as laws

BUGS = {
    "the second use of a value replaces the first": (
        laws.backward_agrees_with_forward,
        ("grads[index] = sum_in_order(before, d)", "grads[index] = d"),
    ),
    "a sum into an array of one's own is dropped": (
        laws.backward_agrees_with_forward,
        ("                    before += d\n", ""),
    ),
    "a sum is written into an array that others hold": (
        laws.backward_agrees_with_forward,
        ("elif index in borrowed:", "elif False:"),
    ),
    "broadcasting is undone over leading axes only": (
        laws.backward_agrees_with_forward,
        ("d = axis_sums(g, (*range(leading), *repeated))", "return axis_sums(g, tuple(range(leading)))"),
    ),
    "the seed is forgotten": (
        laws.backward_agrees_with_forward,
        ("1.0 if seed is None else seed", "2.0"),
    ),
    "every contribution is announced": (
        laws.leaves_are_announced_when_final,
        ("                before = grads[index]\n",
         "                before = grads[index]\n"
         "                if on_grad and isinstance(entries[index], TensorBase):\n"
         "                    on_grad(entries[index])\n"),
    ),
    "a leaf is announced before it has its gradient": (
        laws.leaves_are_announced_when_final,
        ("                entry.accumulate_grad(g, private=len(entries) not in borrowed)\n"
         "                if on_grad is not None:\n"
         "                    on_grad(entry)\n",
         "                if on_grad is not None:\n"
         "                    on_grad(entry)\n"
         "                entry.accumulate_grad(g, private=len(entries) not in borrowed)\n"),
    ),
    "leaves that are not reached are announced": (
        laws.leaves_are_announced_when_final,
        ("            if g is None:\n",
         "            if g is None:\n"
         "                if on_grad and isinstance(entry, TensorBase):\n"
         "                    on_grad(entry)\n"),
    ),
    "each use of a leaf is a leaf": (
        laws.leaves_are_announced_when_final,
        ("index = self.leaves.get(id(x))", "index = None"),
    ),
    "nobody is told": (
        laws.leaves_are_announced_when_final,
        ("                    on_grad(entry)\n", "                    pass\n"),
    ),
    "two leaves get one array": (
        laws.gradients_are_private,
        ("entry.accumulate_grad(g, private=len(entries) not in borrowed)", "entry.accumulate_grad(g)"),
    ),
    "only g itself counts as borrowed, not a view of it": (
        laws.gradients_are_private,
        ("if d is g or d.base is not None and not is_whole(d, g):\n                        borrowed",
         "if d is g:\n                        borrowed"),
    ),
    "weights are not put off": (
        laws.weights_later_changes_nothing,
        ("                if later is not None:", "                if False:"),
    ),
    "inputs are put off too": (
        laws.weights_later_changes_nothing,
        ("isinstance(used, TensorBase) and used.is_parameter", "isinstance(used, TensorBase)"),
    ),
    "only the last use of a weight is put off": (
        laws.weights_later_changes_nothing,
        ("later.append(WeightGradient(used, shape, pullback, g))",
         "later[:] = [WeightGradient(used, shape, pullback, g)]"),
    ),
}  # fmt: skip

FIXED = {
    "the walk keeps what it passed": (
        laws.arrays_are_released_as_the_walk_passes,
        ("entries, self.entries, self.leaves = self.entries, _Spent(self.outline()), {}",
         "self.kept = list(self.entries); "
         "entries, self.entries, self.leaves = self.entries, _Spent(self.outline()), {}"),
        ('"_tokens")', '"_tokens", "kept")'),
    ),
    "a spent tape keeps its entries": (
        laws.arrays_are_released_as_the_walk_passes,
        ("entries, self.entries, self.leaves = self.entries, _Spent(self.outline()), {}",
         "entries, self.leaves = list(self.entries), {}"),
    ),
    "leaves count": (laws.nbytes_is_what_is_held, ("if key not in own)", ")")),
    "views count, not bases": (
        laws.nbytes_is_what_is_held,
        ("bases = {id(b): b for b in map(base_of, retained_arrays(pullbacks))}",
         "bases = {id(b): b for b in retained_arrays(pullbacks)}"),
    ),
    "what is held by several counts several times": (
        laws.nbytes_is_what_is_held,
        ("bases = {id(b): b for b in map(base_of, retained_arrays(pullbacks))}",
         "bases = {i: base_of(b) for i, b in enumerate(a for p in pullbacks for a in retained_arrays(p))}"),
    ),
    "callable objects are overlooked": (
        laws.nbytes_is_what_is_held,
        ("for _, _, p in entry]", 'for _, _, p in entry if hasattr(p, "__closure__")]'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_law_over_programs_catches_the_tape_where(bug):
    law, *changes = BUGS[bug]
    broken = mutant("minigrad.tape", *changes).Tape

    @settings(max_examples=200, phases=[Phase.generate], database=None)
    @given(laws.programs())
    def check(program):
        law(broken, program)

    # Where NumPy made a view read-only it refuses the bug's write itself, with a ValueError.
    with pytest.raises((AssertionError, ValueError)):
        check()


@pytest.mark.parametrize("bug", FIXED)
def test_a_law_of_memory_catches_the_tape_where(bug):
    law, *changes = FIXED[bug]
    law(mutant("minigrad.tape").Tape)
    with pytest.raises(AssertionError):
        law(mutant("minigrad.tape", *changes).Tape)


def test_an_unchanged_copy_keeps_every_law():
    copy = mutant("minigrad.tape").Tape
    assert copy is not Tape

    @given(laws.programs())
    def check(program):
        for law in {law for law, *_ in BUGS.values()}:
            law(copy, program)

    check()
