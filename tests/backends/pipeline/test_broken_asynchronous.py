"""Laws of backends/pipeline/asynchronous.py and weight_stash.py: the comparison with the serial loop finds
each thing that is wrong in a pipeline without a flush.
"""

from functools import partial

import numpy as np
import pytest

from backends.pipeline.asynchronous import AsynchronousEngine, AsynchronousPipeline
from tests.backends.pipeline.stale_training import law
from tests.bugs.mutant import mutant


def broken(file, *change):
    """The pipeline, with one line of ``file`` wrong."""
    if file == "asynchronous":
        return mutant("backends.pipeline.asynchronous", change).AsynchronousPipeline
    return pipeline_of(WeightStash=mutant("backends.pipeline.weight_stash", change).WeightStash)


def pipeline_of(**names):
    """The pipeline with others' classes in the places of its own."""
    module = mutant("backends.pipeline.asynchronous")
    vars(module).update(names)
    return module.AsynchronousPipeline


class OneBuffer(AsynchronousEngine):
    """Receives into memory to which the tapes of other micro-batches refer."""

    memory = None

    def post(self, batch):
        receive = super().post(batch)

        def into_memory():
            x = receive()
            self.memory = np.empty((9, *x.shape[1:])) if self.memory is None else self.memory
            self.memory[: len(x)] = x
            return self.memory[: len(x)]

        return into_memory


class UpdatesDuringWarmUp(AsynchronousPipeline):
    def update(self, model, optimizer):
        if self.ready is None:
            for parameter in model.parameters():
                parameter.grad = np.zeros_like(parameter.data)
            optimizer.step(total=partial(self.state.total_squares, model, optimizer))
        super().update(model, optimizer)


ASIDE = "        behind = self.rank if self.rule.vertical else 0\n"
BUGS = {
    "the stash is not copied": ("stashing", broken("weight_stash", "array.copy() for", "array for")),
    "2bw is not copied": ("2bw", broken("weight_stash", "array.copy() for", "array for")),
    "a version too old": ("stashing", broken("asynchronous", ASIDE, "        behind = 1\n")),
    "a vertical version too old": (
        "vertical",
        broken("asynchronous", "behind = self.rank if", "behind = self.rank + 1 if"),
    ),
    "a vertical version too new": (
        "vertical",
        broken("asynchronous", "behind = self.rank if", "behind = max(self.rank - 1, 0) if"),
    ),
    "back with the newest weights": (
        "stashing",
        broken(
            "weight_stash",
            "self.swapped_in(self.in_flight.popleft())",
            "self.in_flight.popleft() and self.swapped_in(self.newest)",
        ),
    ),
    "the old weights stay": ("vertical", broken("weight_stash", "self.point_at(self.newest.arrays)", "pass")),
    "updates during the warm-up": ("stashing", UpdatesDuringWarmUp),
    "the last stage of 2bw does not wait": (
        "2bw",
        broken(
            "asynchronous",
            "self.late if self.rule.same_step",
            "self.late if self.rule.same_step and self.behind",
        ),
    ),
    "a flush after every batch": (
        "stashing",
        broken("asynchronous", "engine.step - self.delay)", "engine.step)"),
    ),
    "batches' gradients mixed": (
        "2bw",
        broken(
            "asynchronous", "point_gradients_at(self.stash.parameters, self.gradients.get(batch))", "pass"
        ),
    ),
    "one receive buffer": ("stashing", pipeline_of(AsynchronousEngine=OneBuffer)),
    "what is in flight is lost": (
        "stashing",
        broken("asynchronous", "for batch in range(max(steps - self.delay, 0), steps):", "for batch in ():"),
    ),
    "uneven micro-batches count the same": (
        "2bw",
        broken(
            "asynchronous",
            "list(work.split(self.micro_batches).values())",
            "[part._replace(loss_weight=work.loss_weight / self.micro_batches)"
            " for part in work.split(self.micro_batches).values()]",
        ),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_law_catches(name):
    versions, bug = BUGS[name]
    how = {"optimizer": "adam", "sizes": (5, 4, 4, 5, 4, 4, 3)}
    law(versions, **how)
    with pytest.raises(AssertionError, match="on rank . of 3"):
        law(versions, strategy=bug, **how)
