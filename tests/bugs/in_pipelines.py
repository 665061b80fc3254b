"""Bugs of pipelines: engine, schedules, partition, and the versions of weights where there is no flush."""

from functools import partial

from backends.data_parallel.bucketed import Bucketed
from backends.partition import optimal
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from tests.backends.partition_laws import largest_is_smallest
from tests.backends.pipeline import pipeline_laws, stale_training
from tests.bugs.bug import Bug
from tests.nets import dropping, frozen, images, tied

# Laws


def trains_like_serial() -> None:
    for schedule in ("gpipe", "1f1b"):
        pipeline_laws.trains(2, schedule, 4)
    pipeline_laws.trains(3, "1f1b", 4, sizes=(8, 8), bounds=(0, 2, 5, 8))


def stages_pass_on_what_they_get() -> None:
    pipeline_laws.stages_may_pass_on_what_they_get((0, 2, 3, 7))


def weights_later_train_like_serial() -> None:
    pipeline_laws.trains(2, "1f1b-pairs", 4)


def tied_weights_train_like_serial() -> None:
    for optimizer in ("momentum", "clipped"):
        pipeline_laws.trains(2, build=tied, optimizer=optimizer)


def replicas_train_like_serial() -> None:
    pipeline_laws.trains(2, "chimera", 4)


def recomputed_stages_train_like_serial() -> None:
    pipeline_laws.trains(2, build=dropping, sizes=(12, 12), recompute=True)


def gradients_are_summed_in_serial_order() -> None:
    pipeline_laws.trains(3, "gpipe", 4, bound=0)


def buckets_leave_while_the_pipeline_drains() -> None:
    bucketed = partial(Bucketed, bucket_bytes=100, first_bucket_bytes=50)
    pipeline_laws.stack_trains((2, 2, 1), "1f1b", 4, data=bucketed)


def what_was_received_stays_as_it_was() -> None:
    pipeline_laws.trains(2, "gpipe", 4, sizes=(8, 8), pipeline=pipeline_laws.watched(Pipeline))


def images_keep_their_memory_order() -> None:
    watched = pipeline_laws.watched(Pipeline, channels_last=True)
    pipeline_laws.trains(2, "1f1b", 4, pipeline=watched, build=images, bounds=(0, 1, 7))


def sends_what_is_asked_for() -> None:
    numbers = pipeline_laws.Numbers(2, 4, 1)
    pipeline_laws.sends_what_crosses(numbers, "1f1b", build=frozen(1), trained=2, bounds=(0, 1, 8))


def sends_may_wait_for_their_receivers() -> None:
    pipeline_laws.trains(2, "zb-h2", 4, how={"rendezvous": True})


def schedules_do_everything_once() -> None:
    from tests.backends.pipeline.schedule_laws import everything_once  # here, since it takes long to load

    for name, numbers in {"1f1b": (3, 4, 1), "interleaved": (2, 4, 2), "zb-h1": (3, 4, 1)}.items():
        everything_once(SCHEDULES[name], *numbers)


def schedules_take_and_hold_what_the_formulas_say() -> None:
    from tests.backends.pipeline.schedule_laws import memory_as_promised, takes_as_long

    for name in ("gpipe", "1f1b", "zb-h1"):
        takes_as_long(SCHEDULES[name], 4, 6, 1, 1, 1, 1)
        memory_as_promised(SCHEDULES[name], 4, 6, 1)


def parts_are_as_even_as_promised() -> None:
    for costs in ([1, 1, 4, 2, 1], [9, 0, 0, 3, 3, 1], [2, 2, 2, 2], [1, 1, 1, 9, 9, 9]):
        for parts in (1, 2, 3, 4):
            largest_is_smallest(optimal, costs, parts)


def stale(versions: str) -> None:
    stale_training.law(versions, optimizer="adam", sizes=(5, 4, 4, 5, 4, 4, 3))


def stashed_weights_are_the_loops() -> None:
    stale("stashing")


def vertical_versions_are_the_loops() -> None:
    stale("vertical")


def two_versions_are_the_loops() -> None:
    stale("2bw")


# Bugs

SERIAL, LOOP = "of its scale on rank", "on rank . of 3"
SPLIT = "work.split(self.micro_batches)"

BUGS = [
    Bug("one receive buffer, to which tapes refer", "PipelineComm.receive",
        "    x = self.posted.pop(hop)()\n",
        '    x = self.posted.pop(hop)()\n    room = vars(self).setdefault("room", {})\n    room = '
        "room.setdefault((hop.kind, hop.stage, x.shape), x)\n    room[...] = x\n    x = room\n",
        trains_like_serial, SERIAL),
    Bug("one receive buffer, by what becomes of what came", "PipelineComm.receive",
        "    x = self.posted.pop(hop)()\n",
        '    x = self.posted.pop(hop)()\n    room = vars(self).setdefault("room", {})\n    room = '
        "room.setdefault((hop.kind, hop.stage, x.shape), x)\n    room[...] = x\n    x = room\n",
        what_was_received_stays_as_it_was, "was received was written|share memory"),
    Bug("the last micro-batch counts as the first", "Pipeline.forward_backward", SPLIT,
        "(found := [*work.split(self.micro_batches).values()]) and {i: "
        "part._replace(loss_weight=found[0].loss_weight) for i, part in "
        "work.split(self.micro_batches).items()}", trains_like_serial, SERIAL),
    Bug("unlike micro-batches count the same", "Pipeline.forward_backward", SPLIT,
        "{i: part._replace(loss_weight=work.loss_weight / self.micro_batches) for i, part in "
        "work.split(self.micro_batches).items()}", trains_like_serial, SERIAL),
    Bug("gradients are wiped between micro-batches", "Engine.backward",
        "            tape.backward(y, seed, on_grad)\n",
        "            for p in self.parts[i.chunk].parameters(): p.grad = None\n            "
        "tape.backward(y, seed, on_grad)\n", trains_like_serial, SERIAL),
    Bug("the loss is averaged twice", "Engine.forward", "work.weighted(forward_pass, loss)",
        "work.weighted(forward_pass, loss) / len(self.micros)", trains_like_serial,
        rf"loss \(\) differs .* {SERIAL}"),
    Bug("the mean goes in twice", "Engine.backward", "comes else micro.seed",
        "comes else micro.seed / len(self.micros)", trains_like_serial, SERIAL),
    Bug("the loss stays on the last rank", "Pipeline.finish",
        "return float(np.sum(allgather(self.comm, np.array(loss))))", "return loss", trains_like_serial,
        rf"loss \(\) differs .* {SERIAL}"),
    Bug("a product of weights forgets a micro-batch", "Engine.weight", "for micro in i.micros]\n",
        "for micro in i.micros[:1]]\n", weights_later_train_like_serial, SERIAL),
    Bug("backwards are reversed on one stage", "unidirectional.gpipe",
        "yield from map(Backward, range(micros))",
        "yield from map(Backward, range(micros)[:: -1 if rank == 1 else 1])",
        gradients_are_summed_in_serial_order, SERIAL),
    Bug("a tied weight is updated on one rank only", "sum_gradients", "        if present:\n",
        "        if present and comm.rank == 0:\n", tied_weights_train_like_serial, SERIAL),
    Bug("a tied weight counts twice in the norm", "PipelineState.global_square_norms",
        "if name not in counted}", "if rank != self.backend.rank}", tied_weights_train_like_serial, SERIAL),
    Bug("a stage that gives what it gets has no way back", "Engine.through", "if y is x:", "if False:",
        stages_pass_on_what_they_get, "no gradient goes back"),
    Bug("replicas are not summed", "Pipeline.finish", "        sum_gradients(group, parameters)\n",
        "        pass\n", replicas_train_like_serial, SERIAL),
    Bug("every micro-batch announces its gradients", "Engine.step",
        "announce if final.get(i.chunk) == n else None", "announce", buckets_leave_while_the_pipeline_drains,
        "announced twice in one step"),
    Bug("a gradient is final at the first micro-batch", "Engine.step",
        "for n, i in enumerate(instructions) if not isinstance(i, Forward)",
        "for n, i in reversed([*enumerate(instructions)]) if not isinstance(i, Forward)",
        buckets_leave_while_the_pipeline_drains, SERIAL),
    Bug("a stage is recomputed with other masks", "Engine.backward", "with replay, Tape()", "with Tape()",
        recomputed_stages_train_like_serial, SERIAL),
    Bug("a frozen stage is sent gradients", "PipelineComm.goes",
        "hop.kind is Forward or hop.stage > self.first)", "hop.kind is Forward or hop.stage > 0)",
        sends_what_is_asked_for, "wanted Counter|no gradient goes back"),
    Bug("images are sent in another memory order", "Engine.forward", "self.p2p.send(hop, y.data)",
        "self.p2p.send(hop, y.data.copy(order='C'))", images_keep_their_memory_order, "memory order"),
    Bug("a send is waited for at once", "PipelineComm.send",
        "        self.sends[hop.next] = self.comm.start_send(x, to, self.tag(hop.next))",
        "        self.comm.start_send(x, to, self.tag(hop.next))()",
        sends_may_wait_for_their_receivers, "Deadlock.*waits to send"),
    Bug("the last sends are not finished", "Engine.step", "    self.p2p.finish()\n", "", trains_like_serial,
        "never finished the send"),
    Bug("a stage begins one layer late", "StageMap.__init__", "(pairwise(bounds))",
        "(pairwise([0, *(b + 1 for b in bounds[1:-1]), bounds[-1]]))", trains_like_serial, SERIAL),
    Bug("the warm-up is one forward short", "unidirectional.one_f_one_b", "ahead=ranks - rank - 1)",
        "ahead=max(0, ranks - rank - 2))", schedules_take_and_hold_what_the_formulas_say, "makespan"),
    Bug("the warm-up is one forward long", "unidirectional.one_f_one_b", "ahead=ranks - rank - 1)",
        "ahead=ranks - rank)", schedules_take_and_hold_what_the_formulas_say, "in_flight|makespan"),
    Bug("chunks go back as they went forward", "interleaved", "Backward(micro, chunks - 1 - chunk)",
        "Backward(micro, chunk)", schedules_do_everything_once, "Stuck|Error"),
    Bug("weights wait longer than promised", "zb_h1", "behind=rank)", "behind=ranks)",
        schedules_take_and_hold_what_the_formulas_say, "in_flight|makespan"),
    Bug("the largest part is a sum of parts", "optimal", "[max(ends[j] - ends[i], rest[j]) for j",
        "[ends[j] - ends[i] + rest[j] for j", parts_are_as_even_as_promised,
        r"assert max\(sums\(costs, bounds\)\) == least"),
    Bug("each pipeline measures its layers for itself", "Pipeline.__init__",
        "comm if agree_on is None else agree_on", "comm", pipeline_laws.pipelines_of_a_grid_are_cut_alike,
        "."),
    Bug("stages are alike in bytes although layers can be measured", "Pipeline.cut",
        'bounds == "bytes" or bounds is None and not measurable', 'bounds in ("bytes", None)',
        pipeline_laws.pipelines_of_a_grid_are_cut_alike, "the ranks' bounds are"),
    Bug("the stash is not copied", "WeightStash.advance", "array.copy() for", "array for",
        stashed_weights_are_the_loops, LOOP),
    Bug("back with the newest weights", "WeightStash.backward", "self.swapped_in(self.in_flight.popleft())",
        "self.in_flight.popleft() and self.swapped_in(self.newest)", stashed_weights_are_the_loops, LOOP),
    Bug("forward with weights one version too old", "AsynchronousPipeline.begin",
        "behind = self.rank if self.rule.vertical else 0", "behind = 1", stashed_weights_are_the_loops, LOOP),
    Bug("stages agree on a version, one too new", "AsynchronousPipeline.begin", "behind = self.rank if",
        "behind = max(self.rank - 1, 0) if", vertical_versions_are_the_loops, LOOP),
    Bug("the weights that were lent stay", "WeightStash.swapped_in", "self.point_at(self.newest.arrays)",
        "pass", vertical_versions_are_the_loops, LOOP),
    Bug("two batches' gradients are added", "AsynchronousEngine.backward",
        "point_gradients_at(self.stash.parameters, self.gradients.get(batch))", "pass",
        two_versions_are_the_loops, LOOP),
    Bug("what is in flight at the end is lost", "AsynchronousPipeline.finalize",
        "for batch in range(max(steps - self.delay, 0), steps):", "for batch in ():",
        stashed_weights_are_the_loops, LOOP),
]  # fmt: skip
