"""Bugs of random masks, and the laws that catch them."""

from tests.backends import mask_laws
from tests.bugs.bug import Bug

SERIAL = "of its scale on rank"

BUGS = [
    Bug("each rank counts its samples from 0", "Strategy.work", "mine = self.shard(batch)",
        "mine = self.shard(batch).whole()", mask_laws.replicas_drop_like_serial, SERIAL),
    Bug("each micro-batch counts its samples from 0", "Work.split", "batch = self.batch[share]",
        "batch = self.batch[share].whole()", mask_laws.micro_batches_drop_like_serial, SERIAL),
    Bug("a part of a batch forgets its places", "Batch.__getitem__", "self.y[rows], places, ",
        "self.y[rows], range(0), ", mask_laws.replicas_drop_like_serial, SERIAL),
    Bug("samples share the numbers of a block", "RandomMask.keep", "place * blocks", "place",
        mask_laws.replicas_drop_like_serial, SERIAL),
    Bug("a sample's numbers begin where those before end", "RandomMask.keep",
        "blocks = -(-size // (2 * WORDS))", "blocks = size // (2 * WORDS) + 1 + len(places)",
        mask_laws.replicas_drop_like_serial, SERIAL),
    Bug("steps of a training are not counted", "Strategy.step", "self.step_number += 1",
        "self.step_number = 1", mask_laws.steps_drop_other_elements, "steps with the same masks"),
    Bug("the step is no part of the mask", "RandomMask.keep", "origin, self.step, self.call]",
        "origin, 0, self.call]", mask_laws.steps_drop_other_elements, "steps with the same masks"),
    Bug("layers of one seed have one mask", "RandomMask.keep", "[self.seed, path_key(self.path)]",
        "[self.seed, 0]", mask_laws.layers_drop_other_elements, r"\d+ masks in \d+ calls"),
    Bug("a layer has one mask in a pass", "ForwardPass.mask", "self.calls[path] - 1", "0",
        mask_laws.layers_drop_other_elements, r"\d+ masks in \d+ calls"),
    Bug("a layer has one mask outside of steps", "Dropout.next_mask", "self.calls += 1", "self.calls = 1",
        mask_laws.layers_drop_other_elements, r"\d+ masks in \d+ calls"),
    Bug("layers are counted, not named by their positions", "Sequential.forward_range", "path.append(i)",
        "path.append(0)", mask_laws.stages_drop_like_serial, SERIAL),
    Bug("split layers do not note their positions", "ShardedSequential.through", "path.append(i)",
        "path.append(0)", mask_laws.neurons_drop_like_serial, SERIAL),
    Bug("a second run of a segment draws anew", "Replay.__enter__", "current_pass.set(again)",
        "current_pass.set(None)", mask_laws.recomputed_segments_drop_like_serial, SERIAL),
    Bug("a second run of a segment draws the next masks", "Replay.__init__",
        "None if current is None else current.copy()", "current",
        mask_laws.recomputed_segments_drop_like_serial, SERIAL),
    Bug("a second run of a stage draws anew", "Engine.backward", "with replay, Tape() as tape:",
        "with Tape() as tape:", mask_laws.stages_drop_like_serial, SERIAL),
    Bug("ranks round by the same numbers", "DrawingCompressor.generator", "np.array([seed, rank], np.uint64)",
        "np.array([seed, 0], np.uint64)", mask_laws.ranks_round_by_their_own_numbers, "the same numbers"),
    Bug("steps round by the same numbers", "DrawingCompressor.generator", "[0, 0, self.draws, 0]",
        "[0, 0, 0, 0]", mask_laws.ranks_round_by_their_own_numbers, "the same numbers"),
]  # fmt: skip
