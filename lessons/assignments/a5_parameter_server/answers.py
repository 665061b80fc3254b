"""The library's own answers to assignment a5: its servers' state and rules, with this text's messages."""

from dataclasses import dataclass

import numpy as np

from backends.data_parallel.flat import Segment
from backends.data_parallel.parameter_server.consistency import Asynchronous
from backends.data_parallel.parameter_server.server import Push, Server
from minigrad.data import shares as cut
from minigrad.optim import SGD
from minigrad.tensor import Parameter

__all__ = ["cut", "serve", "serve_bounded", "train", "work"]

LAST = 1  # the tag of what is sent when all workers have ended


def work(comm, workers, parameters, steps, gradient):
    parameters = parameters.copy()
    places = dict(enumerate(cut(parameters.size, comm.size - workers), workers))
    versions = dict.fromkeys(places, 0.0)
    for _ in range(steps):
        g = gradient(parameters)
        coming = {server: comm.start_recv(server) for server in places}
        going = [
            comm.start_send(np.concatenate([[versions[server]], g[place]]), server)
            for server, place in places.items()
        ]
        for server, place in places.items():
            versions[server], *parameters[place] = coming[server]()
        for finish in going:
            finish()
    for server in places:
        comm.send(np.empty(0), server)
    return parameters


@dataclass(frozen=True)
class Ahead(Asynchronous):
    """Update on arrival; nobody goes on who is more than ``bound`` pushes ahead of the slowest."""

    bound: int = 0

    def may_proceed(self, server, clock):
        return clock - min(server.clocks.values()) <= self.bound


def serve_by(rule, comm, workers, part, rate):
    pieces = [Segment(0, slice(0, part.size), slice(0, part.size))]
    server = Server(np.concatenate([[0.0], part]), pieces, dict.fromkeys(range(workers), 0), rule)
    optimizer = SGD([Parameter(np.zeros(1))], rate)
    while server.clocks:
        worker, message = comm.recv_any()
        if message.size:
            server.take(Push(worker, 0, int(message[0]), 1, [True], message[1:]))
            server.apply(server.pushes, optimizer)
        else:
            server.lose(worker, "it has made all its steps")
        for free in server.ready_workers():
            comm.send(server.answer, free)
    return server.weights.copy(), server.staleness


def serve(comm, workers, part, rate):
    return serve_by(Asynchronous(), comm, workers, part, rate)


def serve_bounded(comm, workers, part, rate, bound):
    return serve_by(Ahead(bound=bound), comm, workers, part, rate)


def train(comm, workers, parameters, steps, gradient, rate, bound):
    own, going = np.empty(0), []
    if comm.rank < workers:
        work(comm, workers, parameters, steps, gradient)
    else:
        place = cut(parameters.size, comm.size - workers)[comm.rank - workers]
        own, _ = serve_bounded(comm, workers, parameters[place], rate, bound)
        going = [comm.start_send(own, to, LAST) for to in range(comm.size) if to != comm.rank]
    servers = range(workers, comm.size)
    parts = [own if server == comm.rank else comm.recv(server, LAST) for server in servers]
    for finish in going:
        finish()
    return np.concatenate(parts)
