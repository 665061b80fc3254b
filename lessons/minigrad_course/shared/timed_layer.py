"""A layer that takes time on a rank's virtual clock, for lessons that look at who works when."""

from minigrad import nn, op


@op
def then_backward(x, *, call):
    """``x`` itself; backward first calls ``call()``, then goes on to the layer below."""

    def pullback(g):
        call()
        return g

    return x, (pullback,)


class TimedLayer(nn.Module):
    """A layer that takes ``seconds`` of the virtual clock of ``comm`` forward, and twice that backward."""

    def __init__(self, layer, comm, seconds):
        self.layer, self.comm, self.seconds = layer, comm, seconds

    def work(self, name, seconds):
        with self.comm.computing(name):
            self.comm.compute(seconds)

    def forward(self, x):
        self.work("forward", self.seconds)
        return then_backward(self.layer(x), call=lambda: self.work("backward", 2 * self.seconds))
