"""Laws of backends/pipeline/engine.py and p2p.py: a law refuses every seeded bug of the engine, though
with most of them accuracy rises.
"""

from functools import partial

import pytest

from backends.comm.mailboxes import Deadlock
from backends.data_parallel.bucketed import Bucketed
from backends.pipeline.pipeline import Pipeline
from minigrad.serial import Serial
from tests.backends.pipeline.broken_pipelines import broken
from tests.backends.pipeline.pipeline_laws import (
    Numbers,
    Reversed,
    backwards_reversed,
    sends_what_crosses,
    stack_trains,
    trains,
    watched,
)
from tests.nets import dropping, frozen, images, tied

# Laws, in the setting in which the bug shows


def close(pipeline, schedule="1f1b", ranks=2, **settings):
    trains(ranks, schedule, 4, pipeline=pipeline, **settings)


def memory(pipeline):
    trains(2, "gpipe", 4, sizes=(8, 8), pipeline=watched(pipeline))


def in_buckets(pipeline, schedule="1f1b", **settings):
    bucketed = partial(Bucketed, bucket_bytes=100, first_bucket_bytes=50)
    stack_trains((2, 2, 1), schedule, 4, data=bucketed, pipeline=pipeline, **settings)


def messages(pipeline):
    sends_what_crosses(
        Numbers(2, 4, 1), "1f1b", build=frozen(1), trained=2, bounds=(0, 1, 8), pipeline=pipeline
    )


def waiting_sends(pipeline):
    close(pipeline, "zb-h2", how={"rendezvous": True})


def in_memory_order(pipeline):
    close(watched(pipeline, channels_last=True), build=images, bounds=(0, 1, 7))


def recomputed(pipeline):
    close(pipeline, build=dropping, sizes=(12, 12), recompute=True)


SPLIT = "work.split(self.micro_batches)"
RECEIVED = "        x = self.posted.pop(hop)()\n"
ONE_BUFFER = """        x = self.posted.pop(hop)()
        room = vars(self).setdefault("room", {}).setdefault((hop.kind, hop.stage, x.shape), x)
        room[...] = x
        x = room
"""
BACK = "                tape.backward(y, seed, on_grad)\n"
WIPED = f"                for p in self.parts[i.chunk].parameters(): p.grad = None\n{BACK}"
SUMMED = "sum_gradients(group, parameters)"
SENT = "            self.sends[hop.next] = self.comm.start_send(x, to, self.tag(hop.next))"
AT_ONCE = "            self.comm.start_send(x, to, self.tag(hop.next))()"

BUGS = {
    "one receive buffer for all, by gradients": (close, {"schedule": "gpipe"}, ("p2p", RECEIVED, ONE_BUFFER)),
    "one receive buffer for all, by memory": (memory, {}, ("p2p", RECEIVED, ONE_BUFFER)),
    "equal weights for uneven micro-batches": (
        close,
        {},
        (
            "pipeline",
            SPLIT,
            "{i: part._replace(loss_weight=work.loss_weight / self.micro_batches)"
            " for i, part in work.split(self.micro_batches).items()}",
        ),
    ),
    "the last micro-batch counts as the first": (
        close,
        {},
        (
            "pipeline",
            SPLIT,
            "(found := [*work.split(self.micro_batches).values()]) and {i: part._replace("
            "loss_weight=found[0].loss_weight) for i, part in work.split(self.micro_batches).items()}",
        ),
    ),
    "the mean is taken twice": (
        close,
        {},
        ("engine", "comes else micro.seed", "comes else micro.seed / len(self.micros)"),
    ),
    "the loss is averaged twice": (
        close,
        {},
        (
            "engine",
            "work.weighted(forward_pass, loss)",
            "work.weighted(forward_pass, loss) / len(self.micros)",
        ),
    ),
    "the loss stays on the last rank": (
        close,
        {},
        ("pipeline", "return float(np.sum(allgather(self.comm, np.array(loss))))", "return loss"),
    ),
    "gradients wiped between micro-batches": (close, {}, ("engine", BACK, WIPED)),
    "a weight's instruction forgets a micro-batch": (
        close,
        {"schedule": "1f1b-pairs"},
        ("engine", "for micro in i.micros]\n", "for micro in i.micros[:1]]\n"),
    ),
    "each rank has its part of a tied gradient": (close, {"build": tied}, ("pipeline", SUMMED, "pass")),
    "a tied weight updated once only": (
        close,
        {"build": tied},
        ("pipeline", "        if present:\n", "        if present and comm.rank == 0:\n"),
    ),
    "replicas not summed": (close, {"schedule": "chimera"}, ("pipeline", SUMMED, "pass")),
    "replicas averaged": (
        close,
        {"schedule": "chimera"},
        ("pipeline", "allreduce(comm, message)", "allreduce(comm, message) / comm.size"),
    ),
    "a tied parameter counted twice in norms": (
        close,
        {"build": tied, "optimizer": "clipped"},
        ("pipeline", "if name not in counted}", "if rank != self.backend.rank}"),
    ),
    "norms of the own rank": (
        close,
        {"optimizer": "clipped"},
        ("pipeline", "return np.concatenate(rows)", "return squares"),
    ),
    "every micro-batch announces": (
        in_buckets,
        {},
        ("engine", "announce if final.get(i.chunk) == n else None", "announce"),
    ),
    "the first micro-batch announces": (
        in_buckets,
        {},
        (
            "engine",
            "for n, i in enumerate(instructions) if not isinstance(i, Forward)",
            "for n, i in reversed([*enumerate(instructions)]) if not isinstance(i, Forward)",
        ),
    ),
    "a tied weight announced by its own stage": (
        in_buckets,
        {"build": tied},
        ("engine", "isinstance(leaf, Parameter) and not self.is_shared(leaf)", "True"),
    ),
    "a shared gradient called final before it is summed": (
        in_buckets,
        {"schedule": "chimera"},
        ("pipeline", "return not self.engine.is_shared(parameter)", "return True"),
    ),
    "gradients sent to a frozen first stage": (
        messages,
        {},
        ("p2p", "hop.kind is Forward or hop.stage > self.first)", "hop.kind is Forward or hop.stage > 0)"),
        ("engine", "x.requires_grad = hop.stage > self.p2p.first", "x.requires_grad = hop.stage > 0"),
    ),
    "bounds off by one": (
        close,
        {"bounds": (0, 4, 8)},
        ("stages", "(pairwise(bounds))", "(pairwise([0, *(b + 1 for b in bounds[1:-1]), bounds[-1]]))"),
    ),
    "recomputed with other masks": (recomputed, {}, ("engine", "with replay, Tape()", "with Tape()")),
    "ranks start from their own parameters": (
        close,
        {},
        ("pipeline", "        broadcast_model(self.comm, model)\n", ""),
    ),
    "masks do not know the step": (
        close,
        {"build": dropping, "sizes": (12, 12)},
        ("engine", ", work.forward_pass() as", ", work._replace(step=0).forward_pass() as"),
    ),
    "what comes back is expected to be like what came": (
        close,
        {"ranks": 3, "sizes": (8, 8), "bounds": (0, 2, 5, 8)},
        ("p2p", "self.shapes.get((hop.kind,", "self.shapes.get((Forward,"),
    ),
    "images lose their memory order": (
        in_memory_order,
        {},
        ("engine", "self.p2p.send(hop, y.data)", "self.p2p.send(hop, y.data.copy(order='C'))"),
    ),
    "what was received is written": (
        memory,
        {},
        (
            "engine",
            "self.p2p.send(hop, y.data)\n",
            "self.p2p.send(hop, y.data)\n            x.data[...] *= 1.5\n",
        ),
    ),
    "a send is waited for at once": (waiting_sends, {}, ("p2p", SENT, AT_ONCE)),
    "the last sends are not finished": (close, {}, ("engine", "        self.p2p.finish()\n", "")),
}
LOUD = {
    "every micro-batch announces": (RuntimeError, "announced twice in one step"),
    "a tied weight announced by its own stage": (RuntimeError, "announced twice in one step"),
    "what comes back is expected to be like what came": (ValueError, "make both sides agree"),
    "a send is waited for at once": (Deadlock, "waits to send to rank 1"),
    "the last sends are not finished": (RuntimeError, "never finished the send"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    law, settings, *changes = BUGS[bug]
    law(Pipeline, **settings)
    error, message = LOUD.get(bug, (AssertionError, "of its scale|received|memory order|wanted"))
    with pytest.raises(error, match=message):
        law(broken(*changes), **settings)


def test_only_the_bits_tell_the_order_of_backwards_on_one_stage():
    """Sums in the wrong order are as good as any; to the last bit they are not serial."""
    trains(3, backwards_reversed(1), 4)
    trains(3, backwards_reversed(), 4, bound=0, serial=Reversed(4))
    for serial in (Serial(4), Reversed(4)):
        with pytest.raises(AssertionError, match="of its scale"):
            trains(3, backwards_reversed(1), 4, bound=0, serial=serial)
