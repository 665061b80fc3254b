"""Laws of backends/data_parallel/zero/sharded.py and gathered_weights.py: the law refuses every seeded
bug, though with each of them accuracy rises.
"""

import pytest

from backends.comm.mailboxes import Deadlock
from backends.data_parallel.zero.gathered_weights import GatheredWeights
from backends.data_parallel.zero.sharded import Sharded
from tests.backends.data_parallel.zero.sharded_laws import law
from tests.nets import Alternating


class StaleGradient(Sharded):
    """Updates what this step did not reach with the gradient of the one before."""

    def finish(self, model, loss):
        before = getattr(self, "before", [None] * len(self.names))
        self.before = [p.grad if p.grad is not None else g for p, g in zip(self.names, before, strict=True)]
        for p, g in zip(self.names, self.before, strict=True):
            p.grad = g
        return super().finish(model, loss)


class TooEarly(Sharded):
    """Reduces a unit when its first gradient is final."""

    def on_grad(self, parameter):
        unit = self.flat_of.get(parameter)
        if unit in self.waiting:
            unit.missing = {parameter}
            super().on_grad(parameter)


class OnlyForward(GatheredWeights):
    def unshard(self, flats, *, in_step=None):
        if in_step is not None:
            return super().unshard(flats, in_step=in_step)
        for flat in flats:  # on the way back
            flat.ref_count += 1
        return None


class NotGatheredAgain(Sharded):
    """Goes back through weights that were given away."""

    def __init__(self, comm, **settings):
        super().__init__(comm, **settings)
        self.weights = OnlyForward()


class NotWrittenBack(Sharded):
    """The optimizer updates a copy of the part."""

    def place(self, model):
        model = super().place(model)
        for unit in self.flats:
            parts = unit.parts
            unit.parts = lambda numbers, parts=parts: (p._replace(w=p.w.copy()) for p in parts(numbers))
        return model


class OldOnRankOne(Sharded):
    """One rank keeps the weights it had: invisible to a test that looks at rank 0."""

    def update(self, model, optimizer):
        before = [unit.unsharded.copy() for unit in self.flats]
        super().update(model, optimizer)
        for unit, whole in zip(self.flats, before, strict=True):
            if self.rank == 1:
                own = unit.shard.copy()
                unit.unsharded[...] = whole
                unit.shard[...] = own


class LocalNorms(Sharded):
    """Each rank clips by the norm of its own part."""

    def update(self, model, optimizer):
        step = optimizer.step
        optimizer.step = lambda parts=None, total=None: step(parts)  # pyright: ignore
        super().update(model, optimizer)
        optimizer.step = step


class PrefetchedOld(Sharded):
    """Uses weights that were fetched before the update."""

    def update(self, model, optimizer):
        for unit in self.flats:
            unit.start_all_gather()
        super().update(model, optimizer)


BUGS = [
    (StaleGradient, {"stage": 1, "build": Alternating, "bucket_bytes": 1, "sizes": [4, 4]}),
    (TooEarly, {"stage": 2}),
    (TooEarly, {"stage": 3}),
    (NotGatheredAgain, {"stage": 3}),
    (NotWrittenBack, {"stage": 1}),
    (NotWrittenBack, {"stage": 3}),
    (OldOnRankOne, {"stage": 2}),
    (LocalNorms, {"stage": 2, "optimizer": "clipped"}),
    (PrefetchedOld, {"stage": 2}),
    (PrefetchedOld, {"stage": 3}),
]


@pytest.mark.parametrize(("bug", "settings"), BUGS, ids=lambda b: getattr(b, "__name__", None))
def test_the_law_catches(bug, settings):
    ranks, settings = 3, {"sizes": [7, 5], **settings}
    law(Sharded, ranks, **settings)
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(bug, ranks, **settings)


class MissingAllGather(Sharded):
    def update(self, model, optimizer):
        if self.rank == 1:
            self.flats = []
        super().update(model, optimizer)


def test_a_missing_all_gather_is_a_deadlock():
    with pytest.raises(Deadlock, match="rank 0 waits to receive"):
        law(MissingAllGather, 3, [7, 5], stage=1)
