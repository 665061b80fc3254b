"""The answers to the questions on lesson 03, and the laws that show them."""

import weakref

import numpy as np
from minigrad_course.lesson.questions import Question

from minigrad import Tape, Tensor, nn, op, recomputed
from minigrad.memory import base_of, retained_arrays

SAMPLES, WIDTH = 8, 16
KINDS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


def nbytes(model, width=WIDTH):
    """Bytes that the tape of a step keeps, the batch included, the weights (also frozen ones) not."""
    with Tape() as tape:
        model(Tensor(np.ones((SAMPLES, width), np.float32))).sum()
    pullbacks = [entry for entry in tape.entries if isinstance(entry, list)]
    arrays = {id(a): a for a in map(base_of, retained_arrays(pullbacks))}
    weights = {id(base_of(p.data)) for p in model.parameters()}
    return sum(a.nbytes for key, a in arrays.items() if key not in weights)


def network(activation, layers=4):
    rng, modules = np.random.default_rng(0), []
    for _ in range(layers):
        modules += [nn.Linear(WIDTH, WIDTH, rng=rng), activation()]
    return nn.Sequential(*modules[:-1])  # no activation function at the end


def arrays(activation=nn.ReLU, trained=(True,) * 4):
    """Arrays of the width that the tape keeps where these layers are ``trained``."""
    model = network(activation)
    for layer, trainable in zip(model.layers[::2], trained, strict=True):
        for parameter in layer.parameters():
            parameter.requires_grad = trainable
    return nbytes(model) / (4 * SAMPLES * WIDTH)


def another_activation(student):
    hidden = 3
    relu, other = ((arrays(kind) - 1) / hidden for kind in (nn.ReLU, student.ACTIVATION))
    assert student.ACTIVATION is nn.GELU, (
        f"{student.ACTIVATION.__name__} keeps {other:g} of each hidden layer, and ReLU {relu:g}; take nn.GELU"
    )
    return (
        f"{other:g} instead of {relu:g}: its derivative needs its input, from which backward computes the "
        "normal distribution again, and the next layer needs its output; the derivative of a ReLU needs only "
        "the output, which is kept anyway"
    )


def first_is_trained(student):
    last, every = arrays(trained=(False, False, False, True)), arrays()
    assert len(student.TRAINED) == 4, f"TRAINED has {len(student.TRAINED)} entries, and there are 4 layers"
    mine = arrays(trained=student.TRAINED)
    assert tuple(student.TRAINED) == (True, False, False, False), (
        f"TRAINED is {student.TRAINED}, and the tape keeps {mine:g} of {every:g} arrays; let only the first "
        "be True"
    )
    return (
        f"{mine:g} arrays, as with all layers ({every:g}), and {last:g} with the last one: the gradient must "
        "come to the first layer, and each ReLU on the way needs its own output"
    )


def most_alive(segments, layers=36):
    """The most activations, with the batch, that exist at a time in a step, and the layers run forward."""
    alive, most, runs = 1, 1, 0  # the batch

    def gone():
        nonlocal alive
        alive -= 1

    @op
    def counted(x):
        nonlocal alive, most, runs
        alive, runs = alive + 1, runs + 1
        most = max(most, alive)
        weakref.finalize(base_of(x), gone).atexit = False
        return x, (lambda g: g,)

    class Layer(nn.Linear):
        def forward(self, x):
            return counted(super().forward(x))

    rng = np.random.default_rng(0)
    model = nn.Sequential(*(Layer(4, 4, rng=rng) for _ in range(layers)))
    with Tape() as tape:
        loss = recomputed(model, segments)(Tensor(np.ones((2, 4), np.float32))).sum()
    tape.backward(loss)
    return most, runs


def shorter_segments(student):
    (of_6, _), (mine, runs) = most_alive(6), most_alive(student.SEGMENTS)
    assert student.SEGMENTS == 18, (
        f"{student.SEGMENTS} segments have at most {mine} activations, 6 have {of_6}; let SEGMENTS be 18"
    )
    return (
        f"{mine} instead of {of_6}: the inputs of all {student.SEGMENTS} segments, and the 2 layers of one "
        f"segment, k + n / k; both run {runs} layers forward"
    )


def what_a_tape_keeps(student):
    rng = np.random.default_rng(0)
    five = ["linear", "relu", "linear", "relu", "linear"]
    cases = [five] + [["linear", *rng.choice(["linear", *KINDS], rng.integers(0, 7))] for _ in range(30)]
    for case in cases:
        layers = [str(kind) for kind in case]
        widths, modules = [int(rng.integers(1, 50))], []
        for kind in layers:
            widths.append(int(rng.integers(1, 50)) if kind == "linear" else widths[-1])
            a, b = widths[-2:]
            modules.append(nn.Linear(a, b, rng=rng) if kind == "linear" else KINDS[kind]())
        library = nbytes(nn.Sequential(*modules), widths[0]) / (4 * SAMPLES)
        mine = student.numbers_on_tape(layers, widths)
        assert mine == library, (
            f"{', '.join(layers)} of widths {widths}: your function says {mine:g} numbers, the tape keeps "
            f"{library:g}"
        )
    of_five = nbytes(network(nn.ReLU, layers=3)) / (4 * SAMPLES * WIDTH)
    return (
        f"{of_five:g} arrays: a ReLU's output and the next layer's input are one array, and backward does "
        f"not need the outputs of the linear layers; your function is right for all {len(cases)} networks"
    )


KEPT = """\
    arrays = {i if kind in ("linear", "gelu") else i + 1 for i, kind in enumerate(layers)}
    return sum(widths[i] for i in arrays)
"""
QUESTIONS = [
    Question("b", another_activation, (("ACTIVATION = nn.ReLU", "ACTIVATION = nn.GELU"),)),
    Question("a", first_is_trained, (("(False, False, False, True)", "(True, False, False, False)"),)),
    Question("b", shorter_segments, (("SEGMENTS = 6", "SEGMENTS = 18"),)),
    Question("a", what_a_tape_keeps, (("    return 0\n", KEPT),)),
]
