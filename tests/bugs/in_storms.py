"""Bugs of checkpoints and of resuming that storms find; oracle: the run that no fault disturbs, bit for bit.

Also bugs of the simulated cluster, without which storms would prove nothing.
"""

from functools import partial

from minigrad_course.storm.fault import Fault
from minigrad_course.storm.job import Job
from minigrad_course.storm.storm import Storm

from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.compression.compressed import Compressed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.pipeline import Pipeline
from tests.bugs.bug import Bug
from tests.minigrad_course.storm.cluster_laws import (
    a_killed_rank_does_nothing_more,
    a_message_passes_a_partition_afterwards,
    a_paused_host_goes_on_afterwards,
)
from tests.minigrad_course.storm.storm_laws import (
    Planted,
    no_smaller_part_fails,
    same_seed_same_trace,
    storms_are_safe_and_live,
)

STRATEGIES = {  # of the world in which the bug is; the registry would give others
    "replicated": DataParallel,
    "bucketed": partial(Bucketed, bucket_bytes=256),
    "sharded": partial(Sharded, stage=2),
    "pipeline": partial(Pipeline, schedule="1f1b", micro_batches=2),
    "model-parallel": partial(ModelParallel, plan={"0": "column", "3": "row"}),
    "local-sgd": partial(LocalSGD, period=3),
    "compressed": partial(Compressed, compress="top-k", density=0.3),
}
storm_of = partial(Storm.of, find=lambda name: STRATEGIES[name])

# Laws


def storms_are_survived() -> None:
    """The seeds of the first 32 that catch one of the bugs below before any other seed does."""
    storms_are_safe_and_live((0, 1, 8, 14, 17, 20, 22, 31), storm_of)


def rare_storms_are_survived() -> None:
    """A rank without space on its disk, for which a save waits; a bit that flips while one rank is paused.

    And a partition at the end of the training.
    """
    storms_are_safe_and_live((84, 208, 346), storm_of)


def a_storm_can_be_repeated() -> None:
    same_seed_same_trace(97, storm_of)


def hosts_fail_as_they_should() -> None:
    a_killed_rank_does_nothing_more(1.23)
    a_message_passes_a_partition_afterwards(1.0, Fault("partition", 0.5, 2.0, 0, 0))
    a_message_passes_a_partition_afterwards(700.0, Fault("partition", 1.0, 0.0, 0, 0))
    for rank in (0, 1):
        a_paused_host_goes_on_afterwards(1.0, Fault("pause", 0.5, 2.0, rank, 0))


def storms_are_compared_with_their_own_strategies() -> None:
    for strategy in (DataParallel, STRATEGIES["local-sgd"]):
        storms_are_safe_and_live((0,), partial(Storm.of, strategy="replicated", find=lambda _, s=strategy: s))


def failing_storms_are_reduced() -> None:
    faults = tuple(Fault("kill", float(at), 0.0, 0, 0) for at in range(5))
    assert no_smaller_part_fails(Planted(0, Job("replicated", 2), faults, (frozenset({1, 3}),))) == [1, 3]


# Bugs


BUGS = [
    # Saving
    Bug("checkpoints go before the new one is there", "Checkpoints.write_part",
        "            self.committed = self.commit(step, part, [json.loads(described), *others])\n",
        "            for name in generation_names(disk, self.folder)[self.keep - 1 :]:\n                "
        "self.remove(self.folder / name)\n            self.committed = self.commit(step, part, "
        "[json.loads(described), *others])\n", storms_are_survived,
        "was written and synced, . are to be kept, and it is gone", thorough=True),
    Bug("the manifest is written into a folder that has its name already", "Checkpoints.commit",
        "    disk.rename(part, self.folder / name)\n",
        "    disk.remove(part / MANIFEST)\n    disk.rename(part, self.folder / name)\n    "
        "disk.write(self.folder / name / MANIFEST, sealed(body))\n    disk.sync_folder(self.folder / "
        "name)\n", storms_are_survived, "has its name and is not whole", thorough=True),
    Bug("files get the name of a checkpoint one by one", "Checkpoints.write_part",
        'part = self.folder / f".step-{step:08}.{self.token}.part"', 'part = self.folder / f"step-{step:08}"',
        storms_are_survived, "has its name and is not whole"),
    Bug("the names of a checkpoint's files are not synced", "Checkpoints.commit",
        "    disk.sync_folder(part)\n", "", storms_are_survived, "has its name and is not whole",
        thorough=True),
    Bug("a loss of power takes files of a checkpoint that goes, and not its name", "Checkpoints.remove",
        "    self.disk.sync_folder(self.folder)  # or a loss of power could leave the name, and not the "
        "files\n", "", storms_are_survived, "has its name and is not whole", thorough=True),
    Bug("a step that was written before cannot be written again", "Checkpoints.commit",
        "    while name in taken:", "    while False:", storms_are_survived, "Directory not empty"),
    Bug("a checkpoint that cannot be written ends the training", "TrainingCheckpoints.attempt",
        '            self.say(f"{error}; the training goes on")', "            raise", storms_are_survived,
        "ended with OSError", thorough=True),
    Bug("after a checkpoint that could not be written the next one is left out", "TrainingCheckpoints.write",
        "    self.attempt(Checkpoints.wait)  # apart: where the one before failed, this one is written all "
        "the same\n", "", storms_are_survived, "was written, and no message says why", thorough=True),
    Bug("the training ends before its last checkpoint is written", "TrainingCheckpoints.close",
        "    self.attempt(Checkpoints.close)\n", "", storms_are_survived,
        "was written, and no message says why"),
    Bug("a wait for another rank that timed out is taken for a full disk", "TrainingCheckpoints.attempt",
        "if isinstance(error, TimeoutError) and error.errno is None:", "if False:", rare_storms_are_survived,
        "never finished the send", thorough=True),
    Bug("rank 0 waits for ever for the part of another rank", "Checkpoints.description",
        "if self.disk.now() > end:", "if False:", rare_storms_are_survived, "not live: ranks failed 1 times"),
    # Loading
    Bug("the oldest checkpoint is taken", "newest_generation",
        "    for name in names:\n        generation, arrays",
        "    for name in reversed(names):\n        generation, arrays", storms_are_survived,
        "goes on from step ., and step . is on the disk", thorough=True),
    Bug("a flipped bit is loaded", "Generation.arrays", ' or crc32(content) != described["crc32"]', "",
        storms_are_survived, "does not hold what the undisturbed run has", thorough=True),
    Bug("ranks do not agree on the checkpoint that they load", "newest_generation",
        "problems = [words for words in allgather_json(comm, problem) if words]",
        "problems = [problem] if problem else []", rare_storms_are_survived, "not safe"),
    Bug("rank 0 alone loads", "newest_generation", "arrays = generation.arrays()\n        except",
        "arrays = generation.arrays() if comm.rank == 0 else {}\n        except", storms_are_survived,
        "rank 1 at step ., after a recovery, has another state", thorough=True),
    Bug("a restart forgets the optimizer's state", "load_optimizer",
        "    state.load_optimizer_state(model, optimizer, values)\n", "", storms_are_survived,
        "after a recovery, has another state in optimizer", thorough=True),
    Bug("a restart counts its steps from 0, and draws the masks of those", "load_state",
        '        backend.count_steps_from(facts["step_number"])\n', "", storms_are_survived,
        "has other losses", thorough=True),
    Bug("a restart forgets what ranks hold of their own", "load_own_state",
        "    backend.state.set_own_values(values)\n", "", storms_are_survived,
        "after a recovery, has another state in own", thorough=True),
    Bug("all ranks restart with the model of rank 0", "load_own_state",
        'own, prefix = facts["of each rank"][rank], f"rank-{rank}/"',
        'own, prefix = facts["of each rank"][0], "rank-0/"', storms_are_survived,
        "rank 1 at step ., after a recovery, has another state", thorough=True),
    Bug("the last step before a failure is taken twice", "fit", "len(history.losses) - epoch * per_epoch",
        "max(len(history.losses) - epoch * per_epoch - 1, 0)", storms_are_survived,
        "has other losses after a step", thorough=True),
    Bug("the losses are saved twice", "gather_state", "dict(vars(history))",
        'vars(history) | {"losses": 2 * history.losses}', storms_are_survived, "the losses in step-"),
    # The simulation
    Bug("a killed process goes on in its finally", "UnreliableWorld.check",
        "    if self.owners[rank] in self.dead:\n",
        "    if self.owners[rank] in self.dead and not self.dead.remove(self.owners[rank]):\n",
        hosts_fail_as_they_should, "the killed rank sent something|and ended at"),
    Bug("a killed process can handle its end", "unreliable_cluster.Killed", "class Killed(BaseException):",
        "class Killed(Exception):", hosts_fail_as_they_should, "a killed process handled"),
    Bug("the launcher does not end the other ranks", "UnreliableWorld.leave",
        "            self.end = min(self.end, now + self.cluster.notice)\n", "", hosts_fail_as_they_should,
        "rank 1 is stopped at"),
    Bug("no wait has a limit", "UnreliableWorld.ready_at", "limit = self.since.get(rank, inf) + self.limit",
        "limit = 10 * LIMIT", hosts_fail_as_they_should, "a wait of .* s ends after 600"),
    Bug("messages pass a partition", "UnreliableCluster.transfer",
        "stop = max(stop, fault.end + self.link.seconds(nbytes))", "pass", hosts_fail_as_they_should,
        "it is to arrive at"),
    Bug("a paused host runs", "UnreliableCluster.resumed", "            time = fault.end\n",
        "            pass\n", hosts_fail_as_they_should, "it is to go on at"),
    Bug("how long things take is not drawn from the seed", "Supervisor.attempt",
        "self.cluster.seed = self.now, self.random.getrandbits(32)",
        "self.cluster.seed = self.now, Random().getrandbits(32)", a_storm_can_be_repeated, "has two traces"),
    Bug("a storm is compared with other strategies of the same names", "Job.find",
        "field(default=registered, repr=False)", "field(default=registered, compare=False, repr=False)",
        storms_are_compared_with_their_own_strategies, "after a recovery, has another state in own"),
    Bug("faults that are needed are left out", "Storm.fewest_faults",
        "if self.only(fewer).run().problem is not None:", "if self.only(fewer).run().problem is None:",
        failing_storms_are_reduced, "do not fail|is not needed"),
]  # fmt: skip
