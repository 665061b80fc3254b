"""Laws of lessons/minigrad_course/crashes/recorded_disk.py and lessons/minigrad_course/storm/host_disk.py:
one state that a loss of power leaves is one of all that it may leave.
"""

from random import Random

from minigrad_course.storm.host_disk import power_loss

from tests.backends.checkpoint.power_laws import training


def test_a_drawn_loss_of_power_is_one_that_may_be():
    program = training(1, 1).disk
    for length in range(3, len(program.operations), 4):
        disk = program.killed(length)
        possible = [state.files() for state in disk.power_losses()]
        drawn = [power_loss(disk, Random(seed)).files() for seed in range(20)]
        for files in drawn:
            assert files in possible or len(possible) >= 512, f"after operation {length}"
        assert len(possible) == 1 or any(files != drawn[0] for files in drawn)
