"""Laws of backends/checkpoint/checkpoints.py: checkpoints survive a loss of power at every moment."""

import pytest

from tests.backends.checkpoint import power_laws as laws
from tests.backends.lanes import thorough


@pytest.mark.parametrize(
    "law",
    [
        thorough(laws.a_power_loss_leaves_whole_generations),
        laws.a_power_loss_on_ranks_leaves_whole_generations,
        thorough(laws.a_power_loss_after_a_kill_leaves_whole_generations),
        laws.a_kill_within_a_write_leaves_whole_generations,
        thorough(laws.two_runs_in_one_folder_leave_whole_generations),
        laws.what_another_run_took_is_not_committed,
        laws.no_rank_reads_half_of_a_description,
        laws.a_disk_syncs_what_it_wrote,
        laws.only_a_file_system_that_syncs_no_folder_is_excused,
        laws.a_write_that_fails_says_why_and_leaves_nothing,
        laws.a_generation_that_cannot_be_removed_is_no_failed_write,
        laws.no_error_of_the_writer_is_lost,
        laws.a_folder_that_is_not_writable_is_refused,
    ],
    ids=lambda law: law.__name__,  # the marked ones run in the quick lane before the hunt of their bugs
)
def test_that(law):
    law()
