"""The answers to the questions on lesson 02, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from minigrad import Tape, Tensor, op


def replaced(student):
    w = 0.5
    x = student.Node(1.0)
    y, entries = student.residual_blocks(x, w)
    student.backward(entries, y)
    leaf = Tensor(np.array([1.0]), requires_grad=True)
    with Tape() as tape:
        z = leaf
        for _ in range(3):
            z = z + w * z
    tape.backward(z)
    (right,) = leaf.grad
    assert x.grad == w**3, (
        f"your tape finds {x.grad:g} and the library's {right:g}; write x.grad = pullback(node.grad)"
    )
    return (
        f"it finds {x.grad:g} instead of {right:g}: the product ran before the sum, so backward comes to it "
        "later, and in each block it overwrites the derivative that came through the sum"
    )


def products(trained):
    """Products of matrices that the tape asks for: in backward to inputs, and to weights."""
    counts = {"inputs": 0, "weights": 0}

    def product(name, a, b):
        counts[name] += 1
        return a @ b

    @op
    def layer(x, w):
        return x @ w, (lambda g: product("inputs", g, w.T), lambda g: product("weights", x.T, g))

    with Tape() as tape:
        x = Tensor(np.ones((2, 128)))
        for requires_grad in trained:
            x = layer(x, Tensor(np.ones((128, 128)), requires_grad=requires_grad))
        loss = x.sum()
    tape.backward(loss)
    return counts


def first_layer(student):
    trained, everything = products(student.TRAINED), products((True,) * 4)
    total = sum(trained.values())
    assert tuple(student.TRAINED) == (True, False, False, False), (
        f"TRAINED is {student.TRAINED}, which takes {total} of {sum(everything.values())} products; "
        "let only the first be True"
    )
    only_last = sum(products((False, False, False, True)).values())
    return (
        f"{total} products: {trained['weights']} for the weights, and {trained['inputs']} to carry the "
        f"gradient to them through the frozen layers; if only the last layer is trained it is {only_last}"
    )


def wrong_gradients(function):
    """Names and (wrong, right) of the gradients that change when x is overwritten before backward."""
    results = []
    for refill in (False, True):
        x, w = (Tensor(np.array([value]), requires_grad=True) for value in (2.0, 3.0))
        with Tape() as tape:
            y = function(x, w)
        if refill:
            x.data[...] = 0.0
        tape.backward(y)
        results.append({"x": float(x.grad[0]), "w": float(w.grad[0])})
    right, after = results
    return {name: (after[name], right[name]) for name in right if after[name] != right[name]}, right


def filled_again(student):
    of_product, _ = wrong_gradients(lambda x, w: x * w)
    s = 1 / (1 + np.exp(-2.0))
    value = student.function(Tensor(np.array([2.0])), Tensor(np.array([3.0]))).data[0]
    assert np.isclose(value, 3 * s), f"your function of 2 and 3 is {value:g}, not sigmoid(2) * 3 = {3 * s:g}"
    wrong, right = wrong_gradients(student.function)
    assert not wrong, f"with your function these gradients are wrong: {wrong}"
    return (
        f"both are right, {right['x']:.3f} and {right['w']:.3f}, where x * w has {of_product['w'][0]:g} for "
        f"{of_product['w'][1]:g}: the derivative of the sigmoid is a (1 - a), so the tape keeps a and not x"
    )


QUESTIONS = [
    Question("c", replaced, (("x.grad = x.grad + pullback(node.grad)", "x.grad = pullback(node.grad)"),)),
    Question("b", first_layer, (("(True, True, True, True)", "(True, False, False, False)"),)),
    Question("a", filled_again, (("    return x * w\n", "    return ops.sigmoid(x) * w\n"),)),
]
