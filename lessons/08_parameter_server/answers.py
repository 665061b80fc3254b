"""The answers to the questions on lesson 08, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.data_parallel import ParameterServer
from minigrad import nn, ops, optim
from minigrad.data import Batch

INSTANT = Link(0.0)


class Training:
    """Asynchronous training of w² / 2 on a virtual clock; a gradient of worker w takes ``seconds[w]``.

    ``computed`` has (end, version) for each gradient: when it was ready, and of which version of the
    parameters. ``w`` is where all ranks end, and ``seconds`` when the last one does.
    """

    def __init__(self, seconds, steps, *, width=1, rate=0.1, servers=1, link=INSTANT, **settings):
        workers, self.computed = len(seconds), []
        cluster = VirtualCluster(workers + servers, link)
        x = np.zeros((workers, width))
        x[:, 0] = np.sqrt(0.5)  # the mean of (x w)² is w² / 2
        batch = Batch(x, np.zeros((workers, 1)))

        def work(comm):
            backend = ParameterServer(comm, servers=servers, **settings)
            model = nn.Linear(width, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
            model.weight.data[...] = 1.0
            model = backend.place(model)
            optimizer = optim.SGD(model.parameters(), rate)

            def loss(out, y):
                version = max(backend.versions)
                comm.compute(seconds[comm.rank])
                self.computed.append((comm.time(), version))
                return ops.mse(out, y)

            barrier(comm)  # all begin together
            for _ in range(steps):
                optimizer.zero_grad()
                backend.step(model, batch, loss)
                backend.update(model, optimizer)
            backend.finalize(model)
            return float(model.weight.data[0, 0]), backend.staleness_counts

        self.w, self.counts = cluster.run(work)[0]
        self.seconds = cluster.seconds

    def staleness(self, end):
        """For each gradient that was ready by ``end`` seconds, the updates since its version."""
        in_order = sorted(self.computed)
        ages = [k - version for k, (_, version) in enumerate(in_order)]
        assert sum(ages) == sum(tau * n for tau, n in self.counts.items())  # the library's own count
        return [age for age, (time, _) in zip(ages, in_order, strict=True) if time <= end]


def mean_staleness(seconds, steps=40):
    """The mean until the first worker is done, and the largest of all."""
    training = Training(seconds, steps)
    return np.mean(training.staleness(steps * min(seconds))), max(training.counts)


def slow_worker(student):
    (equal, _), (mine, most) = mean_staleness((1, 1, 1, 1)), mean_staleness(student.SECONDS)
    assert tuple(student.SECONDS) == (1, 1, 1, 4), (
        f"with the seconds {student.SECONDS} the mean is {mine:.2f}, with four equal workers {equal:.2f}; "
        "let SECONDS be (1, 1, 1, 4)"
    )
    return (
        f"the mean is {mine:.2f}, with equal workers {equal:.2f}, though the oldest gradient has {most}: at "
        "each update three other gradients are under way, and each of them gets older by one, for any speeds"
    )


def second_worker(student):
    def end(workers, **settings):
        return Training((1.0,) * workers, 20, rate=1.2, **settings).w

    one, mine = end(1, stale_rate="naive"), end(student.WORKERS, stale_rate="naive")
    assert student.WORKERS == 2, (
        f"with {student.WORKERS} workers w ends at {mine:.1e}, with one at {one:.1e}; let WORKERS be 2"
    )
    return (
        f"after 20 steps of each w is {mine:.0f}, with one worker {one:.0e}: with gradients that are one "
        f"update old only rates below 1 converge; the default, rate / (W + tau), ends at {end(2):.0e}"
    )


def round_milliseconds(servers, workers=8, width=10_000):
    """The time of a round of synchronous workers that compute in no time, on links of 1 Gbit/s."""
    link = Link(0.0, 1.25e8)
    six, four = (
        Training((0.0,) * workers, rounds, width=width, servers=servers, link=link, staleness=0).seconds
        for rounds in (6, 4)
    )
    return 1e3 * (six - four) / 2


def more_servers(student):
    one, mine = round_milliseconds(1), round_milliseconds(student.SERVERS)
    assert student.SERVERS == 8, (
        f"with {student.SERVERS} servers a round takes {mine:.1f} ms, with one {one:.1f} ms; let SERVERS be 8"
    )
    return (
        f"{mine:.1f} ms instead of {one:.1f} ms, {one / mine:.1f} times: a round takes p + S messages of n / "
        "S, so 9 n with one server and 2 n with eight; a worker's link, n each way, does not become shorter"
    )


QUESTIONS = [
    Question("c", slow_worker, (("SECONDS = (1, 1, 1, 1)", "SECONDS = (1, 1, 1, 4)"),)),
    Question("b", second_worker, (("WORKERS = 1\n", "WORKERS = 2\n"),)),
    Question("a", more_servers, (("SERVERS = 1\n", "SERVERS = 8\n"),)),
]
