"""Bugs of checkpoints in memory; oracles: all subsets of lost ranks, a loss before each message, formulas."""

from tests.backends.checkpoint.memory_laws import (
    any_lost_ranks_of_four_come_back_or_are_named,
    bytes_are_those_of_the_formulas,
    losses_while_ranks_save_leave_whole_generations,
    lost_hosts_are_no_loss,
    refusals_come_before_a_message,
    steps_are_saved_again_with_the_same_pieces_only,
)
from tests.bugs.bug import Bug

MEMORY = "backends.checkpoint.memory_checkpoints"

BUGS = [
    Bug(
        "the partner is on the same host",
        "PartnerCopies.redundancy",
        "finish = comm.start_send(piece, (comm.rank + self.ranks_per_host) % comm.size)\n    copy = "
        "comm.recv((comm.rank - self.ranks_per_host) % comm.size)\n",
        "finish = comm.start_send(piece, (comm.rank + 1) % comm.size)\n    copy = comm.recv((comm.rank - "
        "1) % comm.size)\n",
        any_lost_ranks_of_four_come_back_or_are_named,
        "saved were .* restored",
    ),
    Bug(
        "a copy is taken for the piece of the next rank",
        "PartnerCopies.pieces",
        "owner = (saved.rank - self.ranks_per_host) % ranks",
        "owner = (saved.rank + self.ranks_per_host) % ranks",
        any_lost_ranks_of_four_come_back_or_are_named,
        "saved were .* restored",
    ),
    Bug(
        "two lost neighbors are given as if nothing were lost",
        "PartnerCopies.irrecoverable",
        "if rank not in left and partners[rank] not in left]",
        "if rank not in left and not left]",
        any_lost_ranks_of_four_come_back_or_are_named,
        "KeyError: 0",
    ),
    Bug(
        "two ranks of a group are lost, and parity gives a mix of both",
        "XorParity.irrecoverable",
        "for ranks in lost if len(ranks) > 1 for rank in ranks",
        "for ranks in lost if len(ranks) > 2 for rank in ranks",
        any_lost_ranks_of_four_come_back_or_are_named,
        "KeyError: 1",
    ),
    Bug(
        "the parity of a host that is left is not in the exclusive or",
        "XorParity.pieces",
        "        rows[host] = saved.redundancy\n",
        "",
        any_lost_ranks_of_four_come_back_or_are_named,
        "saved were .* restored",
    ),
    Bug(
        "a piece comes back with the zeros that filled it up",
        "piece_in",
        "    return parts[HEADER : HEADER + length]\n",
        "    return parts[HEADER:]\n",
        any_lost_ranks_of_four_come_back_or_are_named,
        "saved were .* restored",
    ),
    Bug(
        "parts are as long as the first rank's",
        "XorParity.redundancy",
        "longest = max(int(size) for size in allgather(group, np.array(piece.size)))",
        "longest = int(allgather(group, np.array(piece.size))[0])",
        any_lost_ranks_of_four_come_back_or_are_named,
        "broadcast|restored",
    ),
    Bug(
        "the older generation goes before the newer one is whole",
        "MemoryCheckpoints.save",
        "    saved = Saved(",
        "    self.generations = []\n    saved = Saved(",
        losses_while_ranks_save_leave_whole_generations,
        "the pieces of the ranks|no rank holds",
        thorough=True,
    ),
    Bug(
        "one generation is held, and ranks do not wait for one another",
        "MemoryCheckpoints.save",
        "    self.generations = [*self.generations[-1:], saved]\n    barrier(comm)",
        "    self.generations = [saved]\n    None",
        losses_while_ranks_save_leave_whole_generations,
        "the pieces of the ranks|no rank holds",
    ),
    Bug(
        "each rank restores the newest step that it holds",
        "MemoryCheckpoints.restore",
        "self.generations = [saved for saved in self.generations if saved[:2] == (step, ranks)]",
        "self.generations = self.generations[-1:]",
        losses_while_ranks_save_leave_whole_generations,
        "is a mix|different pieces",
    ),
    Bug(
        "only the newest step is looked at",
        "MemoryCheckpoints.restore",
        "        problem = f",
        "        break\n        problem = f",
        losses_while_ranks_save_leave_whole_generations,
        "no rank holds",
    ),
    Bug(
        "after a loss the ranks hold what they held before, and save to whom they saved",
        "MemoryCheckpoints.save",
        "step, comm.size, comm.rank, mine",
        "step, comm.size, self.generations[-1].rank if self.generations else comm.rank, mine",
        lost_hosts_are_no_loss,
        "host . is lost",
    ),
    Bug(
        "ranks that do not fill their hosts are accepted",
        "MemoryCheckpoints.save",
        "if comm.size % self.ranks_per_host or comm.size == self.ranks_per_host:",
        "if comm.size == self.ranks_per_host:",
        refusals_come_before_a_message,
        "they save",
    ),
    Bug(
        "a step is saved with two pieces of a rank",
        "MemoryCheckpoints.save",
        "and not np.array_equal(before.piece, mine):",
        "and False:",
        steps_are_saved_again_with_the_same_pieces_only,
        "is saved with two pieces",
    ),
    Bug(
        "each rank sends the whole piece to each other host",
        "XorParity.redundancy",
        "width = -(-(HEADER + longest) // (group.size - 1))",
        "width = HEADER + longest",
        bytes_are_those_of_the_formulas,
        "sent .* bytes, not",
    ),
]
