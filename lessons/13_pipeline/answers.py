"""The answers to the questions on lesson 13, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import run_ranks
from backends.laws import bound_for, differences_from_serial
from backends.pipeline import SCHEDULES, Backward, Costs, Forward, Pipeline, Schedule, find_schedule, simulate
from backends.pipeline.unidirectional import in_turn
from minigrad import nn, ops
from minigrad.data import Batch

RANKS, MICROS = 4, 8


def step(schedule, chunks=1, message=0.0):
    """The simulated step, in which all layers of a rank take 1 s forward and 2 s back."""
    each = 1 / chunks
    return simulate(schedule.of(RANKS, MICROS, chunks), Costs(each, each, each, message))


def most_held(simulation):
    return [simulation.in_flight(rank) for rank in range(RANKS)]


def sooner_back(student):
    name = student.SCHEDULE
    before, after = step(SCHEDULES["gpipe"]), step(find_schedule(name))
    most = most_held(after)
    assert name == "1f1b", f"{name} takes {after.makespan:g} s, and its ranks hold {most}; take 1f1b"
    return (
        f"1f1b takes {after.makespan:g} s, gpipe {before.makespan:g} s: both fill and drain alike. By rank "
        f"1f1b holds {most} micro-batches, the ones between the rank and the end; gpipe {most_held(before)}"
    )


def slow_link(student):
    message = student.SECONDS_OF_A_MESSAGE
    kinds = {1: SCHEDULES["1f1b"], 2: SCHEDULES["interleaved"], 4: SCHEDULES["interleaved"]}
    seconds = {chunks: step(kind, chunks, message).makespan for chunks, kind in kinds.items()}
    shown = ", ".join(f"{chunks} of them {taken:g} s" for chunks, taken in seconds.items())
    assert message == 0.5, (
        f"a message takes {message:g} s, and by chunks a step takes: {shown}; let it take 0.5 s"
    )
    messages = [2 * (RANKS * chunks - 1) * MICROS for chunks in kinds]
    return (
        f"by chunks a planned step takes: {shown}. They need {messages} messages: with two chunks a rank has "
        "other work while messages are on their way, but a forward of one of four chunks takes only 0.25 s"
    )


def model(rng):
    return nn.Sequential(*(nn.Linear(3, 3, rng=rng) for _ in range(RANKS)))


def error(schedule):
    """The largest relative difference of training by ``schedule`` from the serial run."""
    rng = np.random.default_rng(1)
    batches = [Batch(rng.normal(size=(MICROS, 3)), rng.integers(0, 3, MICROS))]

    def work(comm):
        strategy = lambda c: Pipeline(c, schedule, micro_batches=MICROS)  # noqa: E731
        return differences_from_serial(strategy, comm, model, ops.cross_entropy, batches)

    return max(difference.relative for difference in run_ranks(RANKS, work)[0])


def one_less(student):
    def order(rank, ranks, micros, chunks):
        ahead = student.forwards_ahead(rank, ranks)
        return in_turn(map(Forward, range(micros)), map(Backward, range(micros)), ahead=ahead)

    ahead = [student.forwards_ahead(rank, RANKS) for rank in range(RANKS)]
    assert ahead == [2, 1, 0, 0], f"the ranks do {ahead} forwards ahead; let them do [2, 1, 0, 0]"
    schedule = Schedule(order)
    seconds, off = step(schedule).makespan, error(schedule)
    assert off <= bound_for(float), f"the gradients differ from the serial ones by {off:.0e}"
    each, before = (seconds - 12) / (MICROS - 1), step(SCHEDULES["1f1b"]).makespan
    return (
        f"a step takes {seconds:g} s instead of {before:g} s, with gradients that are serial to {off:.0e}: "
        "the last two ranks now wait for one another in every micro-batch, so after the first one, which "
        f"takes 12 s, each takes {each:g} s instead of 3 s"
    )


QUESTIONS = [
    Question("b", sooner_back, (('SCHEDULE = "gpipe"', 'SCHEDULE = "1f1b"'),)),
    Question("a", slow_link, (("SECONDS_OF_A_MESSAGE = 0\n", "SECONDS_OF_A_MESSAGE = 0.5\n"),)),
    Question("c", one_less, (("    return ranks - rank - 1\n", "    return max(0, ranks - rank - 2)\n"),)),
]
