"""The rows that ``ops.py`` times: each op and network is written for both libraries, with the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from engine_workloads import channels_last

from minigrad import Tape, Tensor, ops

Function = Callable[..., Any]
Step = Callable[[], list[np.ndarray]]
MILLION = (1024, 1024)
KINKS = 0.03


@dataclass(frozen=True)
class Row:
    """An op, or a few, on inputs of ``shapes``; a step is forward, and backward from a random gradient.

    ``constants`` come behind the inputs, and get no gradient. ``image`` says that the first input may lie
    channels-last; minigrad gets it so, as its own ops hand it on.
    """

    title: str
    mine: Function
    theirs: Function
    shapes: Sequence[tuple[int, ...]]
    constants: tuple[np.ndarray, ...] = ()
    image: bool = False
    input_gradient: bool = True  # of the first input, as between layers; False as for data
    positive: bool = False
    smallest: tuple[int, ...] | None = None  # shape of the first input, to time what a step takes on any
    tolerance: float = 2e-4  # in networks more: what rounding moves over a kink of ReLU or pooling differs

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(shape, np.float32) for shape in self.shapes]
        for array in arrays[1:]:
            if array.ndim > 1:  # weights: what comes out has the size of what goes in
                array /= np.sqrt(array[0].size)
        return [np.abs(array) + 0.1 for array in arrays] if self.positive else arrays

    def peers(self) -> dict[str, Step]:
        peers = {"minigrad": self.minigrad(), "torch": self.torch(torch.contiguous_format)}
        if self.image:
            peers["channels_last"] = self.torch(torch.channels_last)
        if self.smallest:
            peers["smallest"] = replace(self, shapes=[self.smallest, *self.shapes[1:]]).minigrad()
        return peers

    def seed(self, value: Any) -> np.ndarray:
        return np.random.default_rng(1).standard_normal(tuple(value.shape), np.float32)

    def minigrad(self) -> Step:
        arrays = self.arrays()
        if self.image:
            arrays[0] = channels_last(arrays[0])
        inputs: list[Any] = [Tensor(a, requires_grad=True) for a in arrays]
        inputs[0] = inputs[0] if self.input_gradient else Tensor(arrays[0])
        g = self.seed(self.mine(*inputs, *self.constants))
        g = channels_last(g) if self.image and g.ndim == 4 else g

        def step() -> list[np.ndarray]:
            for x in inputs:
                x.grad = None
            with Tape() as tape:
                value = self.mine(*inputs, *self.constants)
            tape.backward(value, g)
            return [value.data, *(x.grad for x in inputs if x.requires_grad)]

        return step

    def torch(self, layout: Any) -> Step:
        inputs: list[Any] = [torch.from_numpy(a) for a in self.arrays()]
        inputs = [x.to(memory_format=layout) if x.ndim == 4 else x for x in inputs]
        for x in inputs[0 if self.input_gradient else 1 :]:
            x.requires_grad_()
        constants = [torch.from_numpy(np.asarray(c)) for c in self.constants]
        value = self.theirs(*inputs, *constants)
        g = torch.from_numpy(self.seed(value))
        g = g.to(memory_format=layout) if g.ndim == 4 else g

        def step() -> list[Any]:
            for x in inputs:
                x.grad = None
            value = self.theirs(*inputs, *constants)
            value.backward(g)
            return [value, *(x.grad for x in inputs if x.requires_grad)]

        return step

    def check(self, peers: dict[str, Step]) -> None:
        """Raise RuntimeError where values or gradients are not PyTorch's."""
        ours = peers["minigrad"]()
        theirs = [x.detach().numpy() for x in peers["torch"]()]  # pyright: ignore
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            error = np.abs(a - b).max() / max(np.abs(b).max(), 1e-6)
            if not error <= self.tolerance:
                what = "the value" if i == 0 else f"gradient {i}"
                raise RuntimeError(f"{self.title}: {what} differs from PyTorch's by {error:g} of its largest")


def conv(n: int, c: int, f: int, size: int, k: int, **settings: Any) -> Row:
    groups, padding = settings.get("groups", 1), settings.pop("padding", k // 2)
    data = settings.pop("data", False)
    more = "".join(f" {name} {value}" for name, value in settings.items())
    return Row(
        f"conv {c}->{f} {k}x{k}{more} on {n}x{c}x{size}x{size}" + (", data" if data else ""),
        lambda x, w, b: ops.conv2d(x, w, b, padding=padding, **settings),
        lambda x, w, b: F.conv2d(x, w, b, padding=padding, **settings),
        [(n, c, size, size), (f, c // groups, k, k), (f,)],
        image=True,
        input_gradient=not data,
        smallest=(1, c, k, k),
    )


def of(name: str, mine: Function, theirs: Function, *shapes: tuple[int, ...], **settings: Any) -> Row:
    sizes = "x".join(map(str, shapes[0])) if shapes[0] != MILLION else "1M"
    return Row(f"{name} {sizes}", mine, theirs, shapes, **settings)


def indices(rows: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, rows, shape)


def einsum(subscripts: str) -> tuple[Function, Function]:
    return (lambda *xs: ops.einsum(subscripts, *xs)), (lambda *xs: torch.einsum(subscripts, *xs))


def batch_norm(n: int, c: int, *size: int) -> Row:
    return of(
        "batch_norm",
        ops.batch_norm,
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (n, c, *size),
        (c,),
        (c,),
        image=bool(size),
    )


def layer_norm(*shape: int) -> Row:
    c = shape[-1]
    return of("layer_norm", ops.layer_norm, lambda x, w, b: F.layer_norm(x, (c,), w, b), shape, (c,), (c,))


def group_norm(groups: int, n: int, c: int, *size: int) -> Row:
    return of(
        f"group_norm {groups}",
        lambda x, w, b: ops.group_norm(x, w, b, groups=groups),
        lambda x, w, b: F.group_norm(x, groups, w, b),
        (n, c, *size),
        (c,),
        (c,),
        image=True,
    )


def conv_transpose(n: int, c: int, f: int, size: int, k: int, **settings: Any) -> Row:
    more = "".join(f" {name} {value}" for name, value in settings.items())
    return Row(
        f"conv_transpose {c}->{f} {k}x{k}{more} on {n}x{c}x{size}x{size}",
        lambda x, w, b: ops.conv_transpose2d(x, w, b, **settings),
        lambda x, w, b: F.conv_transpose2d(x, w, b, **settings),
        [(n, c, size, size), (c, f // settings.get("groups", 1), k, k), (f,)],
        image=True,
    )


def conv1d(n: int, c: int, f: int, length: int, k: int, **settings: Any) -> Row:
    return Row(
        f"conv1d {c}->{f} {k} on {n}x{c}x{length}",
        lambda x, w, b: ops.conv1d(x, w, b, padding=k // 2, **settings),
        lambda x, w, b: F.conv1d(x, w, b, padding=k // 2, **settings),
        [(n, c, length), (f, c, k), (f,)],
    )


def pool(name: str, mine: Function, theirs: Function, *shape: int) -> Row:
    return of(name, mine, theirs, shape, image=True)


def linear_with(activation: str, theirs: Function, *sizes: int) -> Row:
    """A linear layer and its activation, which are one op here; ``sizes`` are those of x and the outputs."""
    *shape, c, f = sizes
    return Row(
        f"linear {'x'.join(map(str, (*shape, c)))}->{f}, {activation}",
        partial(ops.linear, activation=activation),
        lambda x, w, b: theirs(F.linear(x, w, b)),
        [(*shape, c), (f, c), (f,)],
        tolerance=KINKS,
    )


def linear(n: int, c: int, f: int) -> Row:
    return Row(f"linear {n}x{c}->{f}", ops.linear, F.linear, [(n, c), (f, c), (f,)])


def attention(samples: int, tokens: int, heads: int, size: int) -> Row:
    """Causal self-attention; PyTorch's is the fused one, which takes less time than its ops one by one."""

    def fused(qkv: Any) -> Any:
        q, k, v = (part.transpose(1, 2) for part in qkv.chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    return Row(
        f"attention of {samples}x{tokens}, {heads} heads of {size}",
        lambda qkv: ops.self_attention(qkv, causal=True),
        fused,
        [(samples, tokens, heads, 3 * size)],
    )


def embedding(rows: int, width: int, *shape: int) -> Row:
    places = indices(rows, *shape)
    return Row(
        f"embedding {rows}x{width}, {'x'.join(map(str, shape))}",
        ops.embedding,
        lambda w, i: F.embedding(i, w),
        [(rows, width)],
        (places,),
    )


def multilayer(batch: int, depth: int, width: int = 128) -> Row:
    """An MLP of ``depth`` linear layers with ReLU between them."""

    def network(relu: Function, linear: Function) -> Function:
        def run(x: Any, *weights: Any) -> Any:
            for i in range(0, len(weights), 2):
                x = linear(relu(x) if i else x, weights[i], weights[i + 1])
            return x

        return run

    shapes: list[tuple[int, ...]] = [(batch, width)]
    for _ in range(depth):
        shapes += [(width, width), (width,)]
    mine, theirs = network(ops.relu, ops.linear), network(F.relu, F.linear)
    return Row(f"MLP of {depth} layers, batch {batch}", mine, theirs, shapes, input_gradient=False)


def lenet(batch: int) -> Row:
    def network(
        _: Function, pooled: Function, relu: Function, linear: Function, flatten: Function
    ) -> Function:
        def run(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, w4: Any, b4: Any) -> Any:
            x = pooled(pooled(x, w1, b1), w2, b2)
            return linear(relu(linear(flatten(x), w3, b3)), w4, b4)

        return run

    return Row(
        f"LeNet, batch {batch}",
        network(*MINE),
        network(*THEIRS),
        [(batch, 1, 28, 28), (16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,)]
        + [(128, 1568), (128,), (10, 128), (10,)],
        image=True,
        input_gradient=False,
        tolerance=KINKS,
    )


def vgg(batch: int) -> Row:
    """The network of W4."""

    def network(
        conv: Function, pooled: Function, relu: Function, linear: Function, flatten: Function
    ) -> Function:
        def run(x: Any, *w: Any) -> Any:
            x = pooled(relu(conv(x, w[0], w[1])), w[2], w[3])
            x = pooled(relu(conv(x, w[4], w[5])), w[6], w[7])
            return linear(relu(linear(flatten(x), w[8], w[9])), w[10], w[11])

        return run

    shapes: list[tuple[int, ...]] = [(batch, 3, 32, 32)]
    for c, f in ((3, 32), (32, 32), (32, 64), (64, 64)):
        shapes += [(f, c, 3, 3), (f,)]
    shapes += [(256, 4096), (256,), (10, 256), (10,)]
    title = f"W4's network, batch {batch}"
    return Row(
        title, network(*MINE), network(*THEIRS), shapes, image=True, input_gradient=False, tolerance=KINKS
    )


def conv_norm_relu(size: int) -> Row:
    """Two blocks of convolution, batch normalisation and ReLU, 16 channels.

    The last two are the one op that a Sequential takes for them.
    """

    def network(conv: Function, norm_relu: Function) -> Function:
        def run(x: Any, w1: Any, s1: Any, b1: Any, w2: Any, s2: Any, b2: Any) -> Any:
            x = norm_relu(conv(x, w1), s1, b1)
            return norm_relu(conv(x, w2), s2, b2)

        return run

    return Row(
        f"conv, batch norm, ReLU twice on 8x3x{size}x{size}",
        network(lambda x, w: ops.conv2d(x, w, padding=1), partial(ops.batch_norm, relu=True)),
        network(
            lambda x, w: F.conv2d(x, w, padding=1),
            lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
        ),
        [(8, 3, size, size), (16, 3, 3, 3), (16,), (16,), (16, 16, 3, 3), (16,), (16,)],
        image=True,
        input_gradient=False,
        smallest=(1, 3, 1, 1),
        tolerance=KINKS,
    )


MINE = (  # a convolution, one with pooling and ReLU, ReLU, linear, flatten
    lambda x, w, b: ops.conv2d(x, w, b, padding=1),
    lambda x, w, b: ops.conv_pool2d(x, w, b, padding=1, pool=2, relu=True),
    ops.relu,
    ops.linear,
    lambda x: ops.flatten(x, start_axis=1),
)
THEIRS = (
    lambda x, w, b: F.conv2d(x, w, b, padding=1),
    lambda x, w, b: F.relu(F.max_pool2d(F.conv2d(x, w, b, padding=1), 2)),
    F.relu,
    F.linear,
    lambda x: torch.flatten(x, 1),
)

ROWS = [
    # Every element alone
    of("x ** 2", lambda x: x**2, lambda x: x**2, MILLION),
    of("x ** 3", lambda x: x**3, lambda x: x**3, MILLION),
    of("x ** -1", lambda x: x**-1, lambda x: x**-1, MILLION, positive=True),
    of("x ** 0.5", lambda x: x**0.5, lambda x: x**0.5, MILLION, positive=True),
    of("x + y", lambda x, y: x + y, lambda x, y: x + y, MILLION, MILLION),
    of("x * y", lambda x, y: x * y, lambda x, y: x * y, MILLION, MILLION),
    of("x / y", lambda x, y: x / y, lambda x, y: x / y, MILLION, MILLION, positive=True),
    of("x * row", lambda x, y: x * y, lambda x, y: x * y, MILLION, (1024,)),
    of("relu", ops.relu, F.relu, MILLION),
    of("relu", ops.relu, F.relu, (64, 32, 32, 32), image=True),
    of("leaky_relu", ops.leaky_relu, F.leaky_relu, MILLION),
    of("gelu", lambda x: ops.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh"), MILLION),
    of("gelu exact", ops.gelu, F.gelu, MILLION),
    of("silu", ops.silu, F.silu, MILLION),
    of("elu", ops.elu, F.elu, MILLION),
    of("softplus", ops.softplus, F.softplus, MILLION),
    of("log_sigmoid", ops.log_sigmoid, F.logsigmoid, MILLION),
    of("hardswish", ops.hardswish, F.hardswish, MILLION),
    of("sigmoid", ops.sigmoid, torch.sigmoid, MILLION),
    of("tanh", ops.tanh, torch.tanh, MILLION),
    of("exp", ops.exp, torch.exp, MILLION),
    of("log", ops.log, torch.log, MILLION, positive=True),
    of("sqrt", ops.sqrt, torch.sqrt, MILLION, positive=True),
    of("abs", ops.abs, torch.abs, MILLION),
    of("clip", lambda x: ops.clip(x, low=-1, high=1), lambda x: torch.clip(x, -1, 1), MILLION),
    of("maximum", ops.maximum, torch.maximum, MILLION, MILLION),
    # Sums along axes
    of("sum of rows", lambda x: ops.sum(x, axis=1), lambda x: x.sum(1), MILLION),
    of("sum of columns", lambda x: ops.sum(x, axis=0), lambda x: x.sum(0), MILLION),
    of("mean of all", ops.mean, torch.mean, MILLION),
    of("var of rows", lambda x: ops.var(x, axis=1), lambda x: x.var(1, correction=0), MILLION),
    of("std of rows", lambda x: ops.std(x, axis=1, ddof=1), lambda x: x.std(1), MILLION),
    of("prod of rows", lambda x: ops.prod(x, axis=1), lambda x: x.prod(1), MILLION),
    of("cumsum of rows", lambda x: ops.cumsum(x, axis=1), lambda x: x.cumsum(1), MILLION),
    of("cumsum of columns", lambda x: ops.cumsum(x, axis=0), lambda x: x.cumsum(0), MILLION),
    of("cumprod of rows", lambda x: ops.cumprod(x, axis=1), lambda x: x.cumprod(1), (256, 256)),
    of("largest 8 of rows", lambda x: ops.topk(x, k=8)[0], lambda x: x.topk(8)[0], MILLION),
    of("max of rows", lambda x: ops.max(x, axis=1), lambda x: x.amax(1), MILLION),
    of("softmax", ops.softmax, lambda x: F.softmax(x, -1), (64, 128, 128)),
    of("softmax", ops.softmax, lambda x: F.softmax(x, -1), (8, 8, 256, 256)),
    of("softmax", ops.softmax, lambda x: F.softmax(x, -1), (128, 10000)),
    of("log_softmax", ops.log_softmax, lambda x: F.log_softmax(x, -1), (128, 10000)),
    of("log_softmax", ops.log_softmax, lambda x: F.log_softmax(x, -1), (128, 10)),
    of("log_softmax", ops.log_softmax, lambda x: F.log_softmax(x, -1), (4096, 100)),
    of("logsumexp", lambda x: ops.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1), (128, 10000)),
    # Losses
    of("cross_entropy", ops.cross_entropy, F.cross_entropy, (128, 10), constants=(indices(10, 128),)),
    of("cross_entropy", ops.cross_entropy, F.cross_entropy, (128, 10000), constants=(indices(10000, 128),)),
    of("mse", ops.mse, F.mse_loss, (128, 1000), constants=(np.ones((128, 1000), np.float32),)),
    of("huber", ops.huber_loss, F.huber_loss, (1024, 256), constants=(np.zeros((1024, 256), np.float32),)),
    # Normalisations
    layer_norm(32, 128, 256),
    layer_norm(512, 768),
    batch_norm(32, 64, 32, 32),
    batch_norm(64, 16, 28, 28),
    batch_norm(128, 512),
    group_norm(8, 32, 64, 32, 32),
    group_norm(32, 8, 256, 14, 14),
    of("instance_norm", ops.instance_norm, F.instance_norm, (32, 64, 32, 32), image=True),
    of("rms_norm", ops.rms_norm, lambda x, w: F.rms_norm(x, (256,), w), (32, 128, 256), (256,)),
    # Products
    linear(1, 784, 128),
    linear(128, 784, 128),
    linear(256, 2048, 2048),
    of("linear", ops.linear, F.linear, (32, 128, 256), (256, 256), (256,)),
    linear_with("relu", F.relu, 128, 784, 128),
    linear_with("relu", F.relu, 16, 128, 256, 1024),
    linear_with("gelu", F.gelu, 16, 128, 256, 1024),
    of("einsum of rows", *einsum("ij,ij->i"), MILLION, MILLION),
    of("einsum of heads", *einsum("bqhd,bkhd->bhqk"), (8, 128, 8, 32), (8, 128, 8, 32)),
    of("matmul", ops.matmul, torch.matmul, (256, 256), (256, 256)),
    of("matmul of stacks", ops.matmul, torch.matmul, (64, 128, 64), (64, 64, 128)),
    attention(16, 128, 4, 64),
    attention(2, 1024, 4, 64),
    # Rows by index, and other shapes
    embedding(10000, 256, 64, 64),
    embedding(1000, 64, 4096),
    of(
        "rows by index", lambda x, i: x[i], lambda x, i: x[i], (10000, 256), constants=(indices(10000, 4096),)
    ),
    of(
        "gather",
        lambda x, i: ops.gather(x, i, axis=1),
        lambda x, i: x.gather(1, i),
        MILLION,
        constants=(indices(1024, *MILLION),),
    ),
    of("roll", lambda x: ops.roll(x, shift=5, axis=1), lambda x: x.roll(5, 1), MILLION),
    of(
        "repeat", lambda x: ops.repeat(x, repeats=2, axis=1), lambda x: x.repeat_interleave(2, 1), (512, 1024)
    ),
    of("tril", ops.tril, torch.tril, MILLION),
    of(
        "masked_fill",
        lambda x, m: ops.masked_fill(x, m, value=-1e9),
        lambda x, m: x.masked_fill(m, -1e9),
        MILLION,
        constants=(indices(2, *MILLION) > 0,),
    ),
    of("transpose and copy", lambda x: x.T * 2.0, lambda x: x.T * 2.0, MILLION),
    of(
        "concatenate",
        lambda x, y: ops.concatenate(x, y, axis=1),
        lambda x, y: torch.cat((x, y), 1),
        MILLION,
        MILLION,
    ),
    of("slice", lambda x: x[:, 100:900], lambda x: x[:, 100:900], MILLION),
    # Pools
    of(
        "max_pool 2",
        lambda x: ops.max_pool2d(x, kernel=2),
        lambda x: F.max_pool2d(x, 2),
        (64, 32, 32, 32),
        image=True,
    ),
    of(
        "max_pool 3, stride 2",
        lambda x: ops.max_pool2d(x, kernel=3, stride=2),
        lambda x: F.max_pool2d(x, 3, 2),
        (32, 32, 32, 32),
        image=True,
    ),
    of(
        "avg_pool 2",
        lambda x: ops.avg_pool2d(x, kernel=2),
        lambda x: F.avg_pool2d(x, 2),
        (64, 32, 32, 32),
        image=True,
    ),
    of("max_pool1d 2", lambda x: ops.max_pool1d(x, kernel=2), lambda x: F.max_pool1d(x, 2), (32, 32, 1000)),
    of(
        "avg_pool 7",
        lambda x: ops.avg_pool2d(x, kernel=7),
        lambda x: F.avg_pool2d(x, 7),
        (32, 512, 7, 7),
        image=True,
    ),
    pool(
        "adaptive_avg_pool 6",
        lambda x: ops.adaptive_avg_pool2d(x, output_size=6),
        lambda x: F.adaptive_avg_pool2d(x, 6),
        *(32, 256, 13, 13),
    ),
    pool(
        "adaptive_max_pool 6",
        lambda x: ops.adaptive_max_pool2d(x, output_size=6),
        lambda x: F.adaptive_max_pool2d(x, 6),
        *(32, 256, 13, 13),
    ),
    pool(
        "max_pool 3, stride 2, ceil_mode",
        lambda x: ops.max_pool2d(x, kernel=3, stride=2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        *(32, 32, 32, 32),
    ),
    *(
        pool(
            f"max_pool {kernel}, stride {stride}, padding {padding}",
            lambda x, k=kernel, s=stride, p=padding: ops.max_pool2d(x, kernel=k, stride=s, padding=p),
            lambda x, k=kernel, s=stride, p=padding: F.max_pool2d(x, k, s, p),
            *shape,
        )
        for kernel, stride, padding, shape in (
            (2, 2, 0, (16, 3, 64, 64)),
            (3, 1, 1, (16, 32, 28, 28)),
            (3, 2, 1, (8, 64, 56, 56)),
        )
    ),
    pool(
        "avg_pool 3, stride 1, padding 1",
        lambda x: ops.avg_pool2d(x, kernel=3, stride=1, padding=1),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        *(16, 32, 28, 28),
    ),
    *(
        pool(
            f"adaptive_{name} 5",
            lambda x, mine=mine: mine(x, output_size=5),
            lambda x, theirs=theirs: theirs(x, 5),
            *(16, 64, 16, 16),
        )
        for name, mine, theirs in (
            ("avg_pool", ops.adaptive_avg_pool2d, F.adaptive_avg_pool2d),
            ("max_pool", ops.adaptive_max_pool2d, F.adaptive_max_pool2d),
        )
    ),
    *(
        pool(
            f"upsample {factor} {mode}",
            lambda x, factor=factor, mode=mode: ops.interpolate(x, scale_factor=factor, mode=mode),
            lambda x, factor=factor, mode=mode: F.interpolate(x, scale_factor=factor, mode=mode),
            *shape,
        )
        for factor, mode, shape in (
            (2, "nearest", (32, 64, 16, 16)),
            (2, "bilinear", (32, 64, 16, 16)),
            (1.5, "bilinear", (16, 32, 16, 16)),
            (2, "nearest", (16, 3, 64, 64)),
        )
    ),
    # Convolutions
    conv1d(32, 16, 32, 1000, 9),
    conv1d(16, 64, 64, 256, 3),
    conv_transpose(16, 128, 64, 16, 4, stride=2, padding=1),
    conv_transpose(64, 64, 1, 14, 4, stride=2, padding=1),
    conv_transpose(16, 64, 64, 32, 3, padding=1),
    conv_transpose(16, 64, 64, 16, 4, stride=2, padding=1, groups=64),
    conv_transpose(16, 64, 64, 16, 4, stride=2, padding=1, groups=4),
    conv(64, 1, 16, 28, 3, data=True),
    conv(64, 16, 32, 14, 3),
    conv(64, 3, 32, 32, 3, data=True),
    conv(32, 16, 16, 32, 3),
    conv(32, 64, 64, 32, 3),
    conv(16, 128, 128, 14, 3),
    conv(4, 512, 512, 7, 3),
    conv(32, 64, 64, 16, 1, padding=0),
    conv(32, 32, 32, 16, 5),
    conv(8, 64, 64, 32, 7),
    conv(8, 3, 64, 64, 7, stride=2, data=True),
    conv(32, 64, 128, 16, 3, stride=2),
    conv(16, 64, 64, 16, 3, groups=4),
    conv(32, 32, 32, 32, 3, groups=32),
    conv(8, 128, 128, 28, 3, groups=128, stride=2),
    conv(16, 32, 32, 16, 3, dilation=2, padding=2),
    conv(1, 1, 16, 28, 3),
    # Networks
    multilayer(1, 3),
    multilayer(64, 3),
    multilayer(1024, 3),
    multilayer(64, 32),
    lenet(1),
    lenet(64),
    lenet(256),
    vgg(1),
    vgg(64),
    conv_norm_relu(16),
    conv_norm_relu(64),
    conv_norm_relu(128),
]
