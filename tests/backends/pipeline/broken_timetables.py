"""Timetables in which something is wrong, and the law that the validator names it."""

import re
from dataclasses import replace

import pytest

from backends.pipeline import validator
from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.timetable import Backward, Forward, Weight


def edited(name, ranks, micros, rank, edit, **settings):
    """A good timetable, of which ``edit`` spoils the list of one rank's instructions."""
    table = SCHEDULES[name].of(ranks, micros, **settings)
    mine = list(table.instructions[rank])
    edit(mine)
    return replace(
        table, instructions=(*table.instructions[:rank], tuple(mine), *table.instructions[rank + 1 :])
    )


def without(instruction):
    return lambda mine: mine.remove(instruction)


def instead(old, new):
    return lambda mine: mine.__setitem__(mine.index(old), new)


def swapped(a, b):
    def swap(mine):
        i, j = mine.index(a), mine.index(b)
        mine[i], mine[j] = mine[j], mine[i]

    return swap


def rerouted(micro, route):
    table = SCHEDULES["gpipe"].of(3, 2)
    return replace(table, routes=(*table.routes[:micro], tuple(route), *table.routes[micro + 1 :]))


def forward_when_back(rank, ranks, micros, chunks):
    """Rank 0 takes micro-batch 0 back before 1 goes forward, rank 1 only once 1 has come."""
    if rank == 0:
        yield from (Forward(0), Backward(0), Forward(1), Backward(1))
    else:
        yield from (Forward(0), Forward(1), Backward(0), Backward(1))


F, B, W = Forward, Backward, Weight
PAIRS = {"name": "1f1b-pairs", "ranks": 2, "micros": 4, "rank": 1}  # F0 B0 F1 B1 W01 F2 B2 F3 B3 W23
TWO = {"name": "interleaved", "ranks": 2, "micros": 2}
BROKEN = {
    "a backward is missing": (
        lambda: edited("gpipe", 3, 3, 1, without(B(2))),
        "rank 1: Backward(micro=2, chunk=0) is missing; micro-batch 2 finds stage 1 there",
    ),
    "forward and backward are missing": (
        lambda: edited("gpipe", 3, 3, 2, lambda mine: (mine.remove(F(1)), mine.remove(B(1)))),
        "rank 2: Forward(micro=1, chunk=0) is missing; micro-batch 1 finds stage 2 there",
    ),
    "a forward is missing": (
        lambda: edited("gpipe", 3, 3, 2, without(F(1))),
        "rank 2: Backward(micro=1, chunk=0) is there without Forward(micro=1, chunk=0); take it forward",
    ),
    "a forward twice": (
        lambda: edited("1f1b", 3, 3, 0, lambda mine: mine.insert(2, F(1))),
        "rank 0: Forward(micro=1, chunk=0) a second time; each is done once",
    ),
    "a backward twice": (
        lambda: edited("1f1b", 3, 3, 0, lambda mine: mine.append(B(2))),
        "rank 0: Backward(micro=2, chunk=0) a second time; each is done once",
    ),
    "back before forward": (
        lambda: edited("1f1b", 3, 4, 1, swapped(F(2), B(2))),
        "rank 1: Backward(micro=2, chunk=0) comes before Forward(micro=2, chunk=0); take it forward first",
    ),
    "a backward on the wrong rank": (
        lambda: edited("chimera", 2, 2, 0, instead(B(0), B(0, 1))),
        "rank 0: Backward(micro=0, chunk=1) is not on the route of micro-batch 0, which goes to "
        "rank 0 chunk 0, rank 1 chunk 0",
    ),
    "each of two ranks waits for the other": (
        lambda: Schedule(forward_when_back).of(2, 2),
        "never ends: rank 0 waits to do Backward(micro=0, chunk=0), which needs backward of micro-batch 0 "
        "in stage 1; rank 1 waits to do Forward(micro=1, chunk=0), which needs forward of micro-batch 1",
    ),
    "a micro-batch takes its chunks in the wrong order": (
        lambda: edited(**TWO, rank=1, edit=swapped(F(0, 0), F(0, 1))),
        "rank 1 waits to do Forward(micro=0, chunk=1), which needs forward of micro-batch 0 in stage 2",
    ),
    "more in flight than promised": (
        lambda: edited("1f1b", 3, 4, 2, swapped(B(0), F(1))),
        "rank 2: Forward(micro=1, chunk=0) makes 2 micro-batches in flight; the schedule's "
        "most_in_flight is 1: finish one first",
    ),
    "weights too late for what is promised": (
        lambda: edited(**PAIRS, edit=swapped(W((0, 1)), F(2))),
        "rank 1: Forward(micro=2, chunk=0) makes 3 micro-batches in flight",
    ),
    "weights before the way back": (
        lambda: edited(**PAIRS, edit=swapped(W((0, 1)), B(1))),
        "rank 1: Weight(micros=(0, 1), chunk=0) comes before Backward(micro=1, chunk=0); take it back first",
    ),
    "weights without the way back": (
        lambda: edited(**PAIRS, edit=without(B(1))),
        "rank 1: Weight(micros=(0, 1), chunk=0) is there without Backward(micro=1, chunk=0)",
    ),
    "weights twice": (
        lambda: edited(**PAIRS, edit=instead(W((2, 3)), W((1, 2, 3)))),
        "rank 1: Weight(micros=(1, 2, 3), chunk=0) does Weight(micros=(1,), chunk=0) a second time",
    ),
    "a micro-batch twice in one product": (
        lambda: edited(**PAIRS, edit=instead(W((2, 3)), W((2, 3, 2)))),
        "rank 1: Weight(micros=(2, 3, 2), chunk=0) does Weight(micros=(2,), chunk=0) a second time",
    ),
    "weights of an unknown micro-batch": (
        lambda: edited(**PAIRS, edit=instead(W((2, 3)), W((2, 3, 4)))),
        "rank 1: Weight(micros=(2, 3, 4), chunk=0) is for micro-batch 4; there are 0 to 3",
    ),
    "weights of no micro-batch": (
        lambda: edited(**PAIRS, edit=lambda mine: mine.append(W(()))),
        "rank 1: Weight(micros=(), chunk=0) is for no micro-batches",
    ),
    "weights of a number": (
        lambda: edited(**PAIRS, edit=lambda mine: mine.append(W(3))),  # pyright: ignore
        "rank 1: Weight(micros=3, chunk=0) needs a tuple of micro-batches, such as Weight((0,))",
    ),
    "an unknown micro-batch": (
        lambda: edited("gpipe", 2, 2, 0, lambda mine: mine.insert(0, F(-1))),
        "rank 0: Forward(micro=-1, chunk=0) is for micro-batch -1; there are 0 to 1",
    ),
    "a chunk that does not exist": (
        lambda: edited(**TWO, rank=0, edit=instead(B(1, 1), B(1, 2))),
        "rank 0: Backward(micro=1, chunk=2) is for chunk 2; there are 0 to 1",
    ),
    "what is no instruction": (
        lambda: edited("gpipe", 2, 2, 1, instead(F(0), ("forward", 0))),
        "rank 1: ('forward', 0) is no instruction",
    ),
    "a rank without instructions": (
        lambda: edited("gpipe", 3, 2, 1, lambda mine: mine.clear()),
        "rank 1: Forward(micro=0, chunk=0) is missing",
    ),
    "a route that leaves out a stage": (
        lambda: rerouted(1, [(0, 0), (2, 0)]),
        "the route of micro-batch 1 has 2 stages, that of micro-batch 0 has 3; each needs all parts",
    ),
    "a route that goes to another rank for a stage": (
        lambda: rerouted(1, [(1, 0), (0, 0), (2, 0)]),
        "rank 1, chunk 0 is stage 1 for micro-batch 0 and stage 0 for micro-batch 1; it holds one part",
    ),
    "a route that goes to a rank twice": (
        lambda: rerouted(0, [(0, 0), (1, 0), (0, 0)]),
        "rank 0, chunk 0 is stage 0 for micro-batch 0 and stage 2 for micro-batch 0",
    ),
    "a route to a rank that does not exist": (
        lambda: rerouted(1, [(0, 0), (1, 0), (3, 0)]),
        "the route of micro-batch 1 goes to rank 3, chunk 0 for stage 2; there are ranks 0 to 2 and",
    ),
    "a chunk without a stage": (
        lambda: replace(SCHEDULES["gpipe"].of(2, 2), chunks=2),
        "no route goes to rank 0, chunk 1; it would hold no layers",
    ),
}


def names_what_is_wrong(bug, module=validator):
    """The law: a broken timetable is refused by the rank and the instruction that are wrong."""
    table, message = BROKEN[bug]
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        module.check_timetable(table())
    assert str(error.value).startswith(f"schedule {table().schedule.name} of {table().ranks} ranks")
