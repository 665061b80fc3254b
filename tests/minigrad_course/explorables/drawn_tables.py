"""Timetables drawn at random, right and wrong, and what backends/pipeline says of each, as JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from backends.pipeline import SCHEDULES, Costs, Schedule, check_timetable, simulate
from backends.pipeline.schedule_file import ROUTES, word_of
from backends.pipeline.timetable import Backward, Forward, Instruction, Place, Timetable, Weight

Orders = list[list[Instruction]]


def cases(number: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [case(draw) for _ in range(number)]


def case(draw: random.Random) -> dict[str, Any]:
    """A timetable, its costs, the bound of its memory, and Python's verdict."""
    table, route = drawn_table(draw)
    stages = range(table.stages)
    times = {way: [draw.randint(0, 12) / 4 for _ in stages] for way in ("forward", "backward", "weight")}
    costs = Costs(**times, message=draw.choice([0, 0, 0.25, 1, 3]))
    bound = draw.choice([None, None, None, *range(1, 9)])
    return {
        "name": table.schedule.name,
        "ranks": table.ranks,
        "micros": table.micros,
        "chunks": table.chunks,
        **({"routes": table.routes} if route is None else {"route": route}),
        "instructions": [[word_of(i) for i in mine] for mine in table.instructions],
        "costs": {**times, "message": costs.message},
        "bound": bound,
        "verdict": verdict(table, costs, bound),
    }


def verdict(table: Timetable, costs: Costs, bound: int | None) -> dict[str, Any]:
    """The validator's sentence; of a timetable that is right, the simulation."""
    try:
        check_timetable(table, bound)
    except ValueError as error:
        return {"error": str(error)}
    done = simulate(table, costs)
    ranks = range(table.ranks)
    return {
        "makespan": done.makespan,
        "bubble": done.bubble,
        "idle": [done.idle(rank) for rank in ranks],
        "peak": [done.in_flight(rank, until_weight=True) for rank in ranks],
        "events": [[rank, word_of(i), start, stop] for rank, i, start, stop in done.events],
    }


def drawn_table(draw: random.Random) -> tuple[Timetable, str | None]:
    """One of our schedules, or a random order; half of them changed in one to three places.

    With the name of its route, None for other routes.
    """
    ranks, micros, chunks = draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 3)
    if draw.random() < 0.5:
        schedule = draw.choice(list(SCHEDULES.values()))
        try:
            table = schedule.of(ranks, micros, chunks if schedule.name == "interleaved" else None)
        except ValueError:  # not defined for these numbers
            return drawn_table(draw)
        routes, orders = table.routes, [list(mine) for mine in table.instructions]
        chunks = table.chunks
        route = next(name for name, route in ROUTES.items() if route is schedule.route)
    else:
        route = draw.choice(list(ROUTES))
        chunks = chunks if route == "around" else 2
        routes = tuple(tuple(ROUTES[route](micro, ranks, micros, chunks)) for micro in range(micros))
        orders = random_orders(draw, routes, ranks)
    if draw.random() < 0.5:
        for _ in range(draw.randint(1, 3)):
            change(draw, orders, micros, chunks)
    if draw.random() < 0.05:
        route, routes = None, changed_routes(draw, routes)
    schedule = Schedule(lambda *_: iter(()), "drawn")
    return Timetable(schedule, ranks, micros, chunks, tuple(map(tuple, orders)), routes), route


def random_orders(draw: random.Random, routes: tuple[tuple[Place, ...], ...], ranks: int) -> Orders:
    """What is ready is done in a random order; some weights' gradients are apart, some of these joined."""
    orders: Orders = [[] for _ in range(ranks)]
    chains = [list(chain(micro, route, draw.random() < 0.4)) for micro, route in enumerate(routes)]
    while any(chains):
        rank, i = draw.choice([one for one in chains if one]).pop(0)
        last = orders[rank][-1] if orders[rank] else None
        if isinstance(i, Weight) and isinstance(last, Weight) and last.chunk == i.chunk:
            orders[rank][-1] = Weight(last.micros + i.micros, i.chunk)
        else:
            orders[rank].append(i)
    return orders


def chain(micro: int, route: tuple[Place, ...], split: bool) -> Iterator[tuple[int, Instruction]]:
    yield from ((rank, Forward(micro, chunk)) for rank, chunk in route)
    yield from ((rank, Backward(micro, chunk)) for rank, chunk in reversed(route))
    yield from ((rank, Weight((micro,), chunk)) for rank, chunk in reversed(route) if split)


def change(draw: random.Random, orders: Orders, micros: int, chunks: int) -> None:
    """Remove, repeat, move or replace an instruction."""
    mine = draw.choice(orders)
    if not mine:
        return
    at, how = draw.randrange(len(mine)), draw.randrange(5)
    if how == 0:
        del mine[at]
    elif how == 1:
        mine.insert(draw.randint(0, len(mine)), mine[at])
    elif how == 2:
        mine.insert(draw.randint(0, len(mine)), mine.pop(at))
    elif how == 3:
        draw.choice(orders).append(mine.pop(at))
    else:
        micro, chunk = draw.randint(0, micros), draw.randint(0, chunks if draw.random() < 0.3 else chunks - 1)
        some = tuple(draw.randint(0, micros - 1) for _ in range(draw.randint(0, 3)))
        mine[at] = draw.choice([Forward(micro, chunk), Backward(micro, chunk), Weight(some, chunk)])


def changed_routes(
    draw: random.Random, routes: tuple[tuple[Place, ...], ...]
) -> tuple[tuple[Place, ...], ...]:
    """The routes with a place left out, or another one in its stead."""
    changed = [list(route) for route in routes]
    route = draw.choice(changed)
    at = draw.randrange(len(route))
    route[at : at + 1] = draw.choice([[], [(draw.randint(0, 5), draw.randint(0, 2))]])
    return tuple(map(tuple, changed))
