"""Laws of backends/checkpoint/checkpoints.py: checkpoints whose bytes changed are skipped,
with a reason in words.
"""

import pytest

from tests.backends.checkpoint import corruption_laws as laws
from tests.backends.lanes import thorough


@pytest.mark.parametrize(
    "law",
    [
        thorough(laws.every_flipped_bit_is_seen),
        laws.every_other_length_is_seen,
        laws.files_that_are_missing_or_swapped_are_seen,
        laws.ranks_take_the_same_generation,
        laws.a_damaged_generation_is_no_reason_to_remove_another,
        laws.a_renamed_generation_keeps_its_place,
        laws.other_names_are_no_generations,
        laws.files_outside_the_folder_are_not_read,
        laws.a_manifest_of_another_shape_is_damaged,
        laws.a_forged_manifest_is_damaged_or_whole,
        laws.a_forged_file_of_arrays_is_damaged_or_whole,
    ],
    ids=lambda law: law.__name__,  # the marked ones run in the quick lane before the hunt of their bugs
)
def test_that(law):
    law()
