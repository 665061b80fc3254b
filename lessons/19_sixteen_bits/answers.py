"""The answers to the questions on lesson 19, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from minigrad import Tape, nn, op, optim, text
from minigrad.bfloat16 import rounded
from minigrad.loss_scale import DynamicScale
from minigrad.models import transformer
from minigrad.tensor import Parameter

LENGTH = 32


def middle(student):
    nearest = float(np.float64(student.NUMBER).astype(np.float16))
    shown = f"{student.NUMBER} is rounded to {nearest:g}"
    assert student.NUMBER == 4098, f"{shown}; take 4098"
    assert nearest == 4096, shown
    return (
        f"{shown}: from 4096 to 8192 the gaps are 4 wide, and of the two neighbors 4096 and 4100 the first "
        "one ends with the bit 0"
    )


@op
def watched(x, *, notes):
    """x, whose gradient is appended to ``notes``."""

    def to_notes(g):
        notes.append(g)
        return g

    return x, (to_notes,)


class Watched(nn.Module):
    """A layer whose result's gradient is noted."""

    def __init__(self, layer, notes):
        self.layer, self.notes = layer, notes

    def forward(self, x, **masks):
        return watched(self.layer(x, **masks), notes=self.notes)


def net_and_loss():
    prose = text.text(LENGTH)
    net = transformer(
        np.random.default_rng(0), symbols=len(prose.symbols), length=LENGTH, width=32, heads=4, blocks=2
    )
    return net, prose.train, nn.CrossEntropyLoss(ignore_index=text.PADDING, class_axis=-1)


def backward(net, rows, loss_of, seed):
    with Tape() as tape:
        loss = loss_of(net(rows.x), rows.y)
    tape.backward(loss, seed)


def share_lost(rows):
    """The share of gradients of activations that is 0 in float16, at the seed 1."""
    notes = []
    net, train, loss_of = net_and_loss()
    for module in [net, *net.modules()]:
        for name, layer in module.children().items():
            if not layer.children() and not isinstance(layer, nn.Dropout | Watched):
                module.replace(name, Watched(layer, notes))
    backward(net, train[:rows], loss_of, 1.0)
    sizes = np.concatenate([np.abs(g[g != 0]) for g in notes])
    return float(np.mean(sizes <= 2.0**-25))


def larger_batch(student):
    few, many = share_lost(16), share_lost(student.ROWS)
    shown = f"{few:.1%} of the gradients are lost with 16 rows, {many:.1%} with {student.ROWS}"
    assert student.ROWS == 64, f"{shown}; take 64 rows"
    assert 2 < many / few < 4, shown
    return f"{shown}: each letter has 1/4 of the share in the mean that it had before"


def where_the_factor_is(student):
    assert student.FACTOR_OF in ("gradients", "loss"), f'"{student.FACTOR_OF}" is neither gradients nor loss'
    net, train, loss_of = net_and_loss()
    half = net_and_loss()[0].to(dtype=np.float16)
    rows, share, factor = train[:16], 2.0**-12, 4096
    backward(net, rows, loss_of, 1.0)
    before, after = (1, factor) if student.FACTOR_OF == "gradients" else (factor, 1)
    backward(half, rows, loss_of, share * before)
    off = []
    for right, own in zip(net.parameters(), half.parameters(), strict=True):
        g = own.grad.astype(np.float32) * (after / share / factor)
        off.append(np.abs(g - right.grad).max() / np.abs(right.grad).max())
    shown = f"with a factor of the {student.FACTOR_OF} they are wrong by {np.median(off):.2%}"
    assert student.FACTOR_OF == "loss", f'{shown}; take "loss"'
    assert np.median(off) < 1e-3, shown
    return f"{shown}: it acts before anything is rounded, and what is 0 after rounding stays 0"


def up_and_down(student):
    weight = Parameter(np.ones(1, np.float16))
    sgd = optim.SGD([weight], lr=abs(student.UPDATE))
    for _ in range(100):
        weight.grad = np.full(1, -np.sign(student.UPDATE), np.float16)
        sgd.step()
    last = float(weight.data[0])
    shown = f"a hundred updates of {student.UPDATE:g} bring the weight to {last:.4g}"
    assert student.UPDATE == 0.0004, f"{shown}; take 0.0004"
    assert last == 1, shown
    return (
        f"{shown}: above 1 the gaps are 2^-10 wide, twice as wide as below, and 0.0004 is less than half "
        "of that, 2^-11 = 0.00049"
    )


def bytes_of_a_parameter(dtype, make):
    net = nn.Linear(30, 20, rng=0).to(dtype=dtype)
    optimizer = make(net.parameters())
    if dtype == np.float16:
        optimizer.with_master_weights()
    for parameter in net.parameters():
        parameter.grad = np.ones_like(parameter.data)
    optimizer.step()
    arrays = [a for p in net.parameters() for a in (p.data, p.grad)]
    arrays += [a for state in optimizer.state for a in state.values() if isinstance(a, np.ndarray)]
    return sum(a.nbytes for a in arrays) / sum(p.size for p in net.parameters())


def momentum_instead(student):
    makers = {
        "AdamW": lambda parameters: optim.AdamW(parameters, lr=0.1),
        "SGD": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    }
    assert student.OPTIMIZER in makers, f'"{student.OPTIMIZER}" is none of {", ".join(makers)}'
    single, half = (
        bytes_of_a_parameter(dtype, makers[student.OPTIMIZER]) for dtype in (np.float32, np.float16)
    )
    shown = f"with {student.OPTIMIZER} there are {single:g} bytes in float32 and {half:g} in float16"
    assert student.OPTIMIZER == "SGD", f'{shown}; take "SGD"'
    assert single == half == 12, shown
    return f"{shown}: 4 + 4 + 4 and 2 + 2 + 4 + 4. The sums 4 + 4 and 2 + 2 + 4 are equal"


def hasty_scale(student):
    scale, steps = DynamicScale(growth_interval=student.GROWTH_INTERVAL), 9000
    for _ in range(steps):
        if scale.value * 2.0**-3 >= 2.0**16:  # a gradient of 2^-3 times the scale is infinite in float16
            scale.skip_step()
        else:
            scale.take_step()
    share = scale.skipped / steps
    shown = f"with {student.GROWTH_INTERVAL}, {share:.1%} of {steps:,} steps are left out"
    assert student.GROWTH_INTERVAL == 1, f"{shown}; take 1"
    assert abs(share - 0.5) < 0.01, shown
    return f"{shown}: a good step doubles the scale, and the next one overflows and halves it"


def order_of_a_sum(student):
    def work(comm):
        return ring_allreduce(comm, np.full(4, 1 if comm.rank else 2048, student.DTYPE))

    sums, *others = run_ranks(4, work)
    shown = f"in {student.DTYPE} the sums are {', '.join(f'{x:g}' for x in sums)}"
    assert all(np.array_equal(sums, other) for other in others), f"{shown}, and not on all ranks"
    assert student.DTYPE == "float16", f'{shown}; take "float16"'
    assert {2048, 2052} <= set(sums.tolist()), shown
    return (
        f"{shown}, alike on all ranks: the sum of each place begins on another rank. A sum that begins "
        "with 2048 loses each 1, and a sum that adds three of them first does not"
    )


def large_number(student):
    formats = {"float16": lambda x: x.astype(np.float16), "bfloat16": rounded}
    assert student.FORMAT in formats, f'"{student.FORMAT}" is none of {", ".join(formats)}'
    with np.errstate(over="ignore"):
        number = float(formats[student.FORMAT](np.full(1, 100000, np.float32))[0])
    shown = f"100,000 becomes {number:,g} in {student.FORMAT}"
    assert student.FORMAT == "bfloat16", f'{shown}; take "bfloat16"'
    assert number == 99840, shown
    return f"{shown}: it has the range, and from 65,536 on its gaps are 2^16 / 128 = 512 wide"


QUESTIONS = [
    Question("c", middle, (("NUMBER = 2049", "NUMBER = 4098"),)),
    Question("b", larger_batch, (("ROWS = 16", "ROWS = 64"),)),
    Question("c", where_the_factor_is, (('FACTOR_OF = "gradients"', 'FACTOR_OF = "loss"'),)),
    Question("b", up_and_down, (("UPDATE = -0.0004", "UPDATE = 0.0004"),)),
    Question("a", momentum_instead, (('OPTIMIZER = "AdamW"', 'OPTIMIZER = "SGD"'),)),
    Question("a", hasty_scale, (("GROWTH_INTERVAL = 8", "GROWTH_INTERVAL = 1"),)),
    Question("c", order_of_a_sum, (('DTYPE = "float32"', 'DTYPE = "float16"'),)),
    Question("b", large_number, (('FORMAT = "float16"', 'FORMAT = "bfloat16"'),)),
]
