"""Functions of what passes between the layers of a net, forward and backward, for lesson 19."""

from minigrad import nn, op


@op
def between(x, *, value, gradient):
    """``value(x)``; backward passes on ``gradient(g)``."""
    return value(x), (lambda g: gradient(g),)


class Between(nn.Module):
    """A layer, then ``value`` of its result in forward, and ``gradient`` of its gradient in backward."""

    def __init__(self, layer, value, gradient):
        self.layer, self.value, self.gradient = layer, value, gradient

    def forward(self, x, **masks):
        return between(self.layer(x, **masks), value=self.value, gradient=self.gradient)


def put_between(net, value, gradient):
    """``net`` with a Between around each of its innermost layers; ``gradient(name)`` returns a function."""
    for path, module in [("", net), *net.named_modules()]:
        for name, layer in module.children().items():
            if not layer.children() and not isinstance(layer, nn.Dropout):
                full = f"{path}.{name}" if path else name
                module.replace(name, Between(layer, value, gradient(full)))
    return net
