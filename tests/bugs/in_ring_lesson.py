"""Bugs of what teaches the ring: the counts of its page, the way back from a page, the assignments' order."""

from __future__ import annotations

import re

from minigrad_course.explorables import ring_table
from minigrad_course.grading.assignment import FOLDER, graded_folders
from minigrad_course.lesson.lessons import lessons
from minigrad_course.site.build import lessons_of, with_way_back

from tests.bugs.bug import Bug
from tests.minigrad_course.explorables import ring_laws

# Laws


def pairs_are_those_of_a_loop() -> None:
    for ranks in ring_table.RANKS:
        for order in ring_table.ORDERS:
            ring_laws.counts_pairs(ring_table.counted(ring_table.columns(order, ranks)), ranks)


def steps_end_with_the_slowest() -> None:
    of_orders = [ring_table.columns(order, 4) for order in ring_table.ORDERS]
    for columns in of_orders:
        ring_laws.lasts_as_long(ring_table.counted(columns), columns)
    columns = of_orders[-1]
    ragged = [columns[0][:0], columns[1][:5], columns[2]]
    ring_laws.lasts_as_long(ring_table.counted(ragged), ragged)


def orders_are_what_their_buttons_say() -> None:
    for ranks in ring_table.RANKS:
        for name, order in ring_table.ring_data()["orders"][ranks].items():
            ring_laws.keeps_its_order(name, [int(digit) for digit in order["owners"]])


def assignments_are_in_the_order_of_their_numbers() -> None:
    numbers = [int(folder.name.partition("_")[0][1:]) for folder in graded_folders(FOLDER)]
    assert numbers == list(range(1, len(numbers) + 1)), f"the assignments come in the order {numbers}"


def a_page_leads_back_to_its_lessons() -> None:
    url = "explorables/ring.html"
    known = [lesson for lesson in lessons() if lesson.number in lessons_of(url)]
    page = with_way_back("<main>\n<h1>Who waits?</h1>\n<h1>", url, known)
    link = r'<a href="../lessons/17_sequences/lesson.html#\d+-a-ring-of-keys">lesson 17: A ring of keys</a>'
    whole = rf'<main>\n<p class="quiet">Back to {link}</p>\n<h1>Who waits\?</h1>\n<h1>'
    assert re.fullmatch(whole, page), page


# Bugs

BUGS = [
    Bug("the page's ring turns the other way", "ring_table.lengths", "(rank - t) % p", "(rank + t) % p",
        steps_end_with_the_slowest, "on a clock"),
    Bug("the page sends keys behind the last step", "ring_table.lengths", "if t < p - 1 else [0.0]",
        "if t < p else [0.0]", steps_end_with_the_slowest, "on a clock"),
    Bug("all messages are as long as that of rank 0", "ring_table.lengths",
        "message * sizes[source] for source in sources", "message * sizes[0] for source in sources",
        steps_end_with_the_slowest, "on a clock"),
    Bug("tiles and messages follow each other", "ring_table.lengths",
        "steps.append(max(*tiles, *messages))", "steps.append(max(tiles) + max(messages))",
        steps_end_with_the_slowest, "on a clock"),
    Bug("a step ends with the first rank", "ring_table.lengths", "max(*tiles, *messages)",
        "max(tiles[0], *messages)", steps_end_with_the_slowest, "on a clock"),
    Bug("the page counts pairs without a mask", "ring_table.counted", "pairs_of(columns, True)",
        "pairs_of(columns, False)", pairs_are_those_of_a_loop, "by a loop"),
    Bug("pairs are by key and query", "ring_table.counted", '"pairs": pairs.tolist()',
        '"pairs": pairs.T.tolist()', pairs_are_those_of_a_loop, "by a loop"),
    Bug("striped order is plain order", "ring_table.columns", "np.arange(rank, TOKENS, ranks)",
        "np.arange(rank * TOKENS // ranks, (rank + 1) * TOKENS // ranks)", orders_are_what_their_buttons_say,
        "striped order of 2 ranks"),
    Bug("the page's zig-zag is plain order", "ring_table.ORDERS", '"zig-zag": "zigzag"',
        '"zig-zag": "contiguous"', orders_are_what_their_buttons_say, "zig-zag order of 2 ranks"),
    Bug("assignments are sorted as texts", "assignment.order_of", 'len(folder.name.partition("_")[0])', "0",
        assignments_are_in_the_order_of_their_numbers, r"\[1, 10, 2|\[10, 1"),
    Bug("a page's way back begins at the site's root", "build.with_way_back",
        "relative(target, url)", "target", a_page_leads_back_to_its_lessons, "Back to"),
    Bug("a page's way back ends at the top of the lesson", "build.with_way_back", 'f"#{anchor(part)}"', '""',
        a_page_leads_back_to_its_lessons, "Back to"),
]  # fmt: skip
