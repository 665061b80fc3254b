"""Mistakes that students make: each replaces a piece of answers.py, and loses these tasks, no other."""

from minigrad_course.grading.own_assignment import Mistake

MISTAKES = (
    Mistake("works in its input", "return x - x.mean()", "x -= x.mean()\n    return x", ("center",)),
    Mistake("divides by the wrong number", "total / comm.size", "total / 2", ("mean_over_ranks",)),
    Mistake(
        "forgets the last rank",
        "for source in range(1, comm.size)",
        "for source in range(1, 2)",
        ("mean_over_ranks",),
    ),
    Mistake("sends the sum", "comm.send(mean, rank)", "comm.send(total, rank)", ("mean_over_ranks",)),
)
