"""What lesson 13 measures in real seconds, which differ from machine to machine."""

import time
from itertools import pairwise

import numpy as np

from backends.comm import run_ranks
from backends.comm.trace import Traced, gather_trace
from backends.pipeline import Pipeline
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import shares
from minigrad.tape import finish_weights


def gpipe_in_real_time(batch):
    """The trace of a step in 4 micro-batches on two threads."""

    def work(comm):
        rng, layers = np.random.default_rng(0), [nn.Flatten()]
        for n_in, n_out in pairwise((784, 768, 768, 768, 768, 10)):
            layers += [nn.Linear(n_in, n_out, rng=rng), nn.ReLU()]
        traced = Traced(comm)
        backend = Pipeline(traced, "gpipe", micro_batches=4, bounds=(0, 5, 10))
        model = backend.place(nn.Sequential(*layers[:-1]))
        for _ in range(2):  # the first one is slower
            comm.split(0)  # all ranks begin together
            traced.record.spans.clear()
            backend.step(model, batch, ops.cross_entropy)
        return gather_trace(comm, traced)

    return run_ranks(2, work)[0]


inputs, outputs = np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32)


def weights_later(parts, together):
    """Processor seconds for a layer's weight gradients of 512 samples in ``parts`` micro-batches; their sum.

    Processor time is counted, as other programs hardly change it. ``together`` computes one large product.
    """
    layer, later = nn.Linear(512, 512, rng=np.random.default_rng(0)), []
    for share in shares(512, parts):
        with Tape() as tape:
            y = layer(Tensor(inputs[share], requires_grad=True))
        later.append(tape.backward(y, outputs[share], weights_later=True))
    start = time.process_time()
    for some in [sum(later, [])] if together else later:
        finish_weights(some)
    return time.process_time() - start, layer.weight.grad
