"""Lesson 02. Back-propagation: write down what you compute, then walk back through it.

Lecture section: back-propagation. By hand on (x + y) z, a tape of twenty lines, one unit, values that are
used twice, pullbacks; then the library's tape, what it leaves out, and how a wrong derivative is found
(Linnainmaa 1970; Rumelhart, Hinton and Williams 1986; Griewank and Walther 2008, chapter 3).

    python lessons/02_backpropagation/lesson.py

Needs neither MPI nor a cluster. Figures go to runs/lessons/02_backpropagation/. In an editor that knows
`# %%` cells this file opens as a notebook.
"""

# %%
import os
from unittest.mock import patch

import drawings
import numpy as np

import minigrad
from lessons.style import start_lesson
from minigrad import Tensor, mnist, nn, op, ops, optim
from minigrad.models import one_hot
from minigrad.testing import gradient_matches_difference

FIGURES = start_lesson("02_backpropagation")

# %% [markdown]
# ## 1. By hand
# f = (x + y) z at x = 2, y = 1, z = 5. Forward, one operation after the other: q = x + y = 3, f = q z = 15.
#
# Now the question of all training: if x moves a little, how much does f move? Ask it at the *end* first. If f
# moves by one, f moves by one: df/df = 1. f = q z, so q counts z times: df/dq = z = 5, and df/dz = q = 3. And
# q = x + y moves as much as x does: df/dx = df/dq * 1 = 5. That is the chain rule, walked from the end to
# the start. Each operation needs to know only its own inputs and the derivative that arrives from behind.

# %%
print("1. By hand: f = (x + y) z")


def by_difference(f, at, h=1e-5):
    """How f moves with each of its arguments: (f(x + h) - f(x - h)) / 2h, an error of some 1e-10."""
    shift = h * np.eye(len(at))
    return np.array([(f(*(at + row)) - f(*(at - row))) / (2 * h) for row in shift])


at = np.array([2.0, 1.0, 5.0])
found = by_difference(lambda x, y, z: (x + y) * z, at)
print(f"   by hand 5, 5, 3; by moving each input a little: {', '.join(f'{d:.8f}' for d in found)}")
np.testing.assert_allclose(found, [5, 5, 3], atol=1e-8)

# %% [markdown]
# ## 2. A tape
# What we did needs no insight, only order. So let a *tape* do it. An operation returns its value and, for
# each input, a function that takes the derivative arriving from behind, g, and gives the one to pass on:
# its **pullback**. The tape keeps a list of what was run. Backward walks the list from its end.


# %%
class Node:
    def __init__(self, value):
        self.value, self.grad = value, 0.0


class Tape:
    def __init__(self):
        self.entries = []

    def run(self, operation, *inputs):
        value, pullbacks = operation(*[node.value for node in inputs])
        output = Node(value)
        self.entries.append((output, inputs, pullbacks))
        return output

    def backward(self, output):
        output.grad = np.ones_like(output.value)
        for node, inputs, pullbacks in reversed(self.entries):
            for x, pullback in zip(inputs, pullbacks, strict=True):
                x.grad = x.grad + pullback(node.grad)


def add(x, y):
    return x + y, (lambda g: g, lambda g: g)


def multiply(x, y):
    return x * y, (lambda g: g * y, lambda g: g * x)


# %% [markdown]
# That is all of back-propagation: twenty lines, and two for each operation. `walk`, the first function in
# `minigrad/tape.py`, is the same for tensors.

# %%
print("\n2. A tape")
tape = Tape()
x, y, z = (Node(value) for value in at)
q = tape.run(add, x, y)
f = tape.run(multiply, q, z)
tape.backward(f)
print(f"   f = {f.value}; from the tape {x.grad}, {y.grad}, {z.grad}; on the way df/dq = {q.grad}")
assert (f.value, x.grad, y.grad, z.grad, q.grad) == (15, 5, 5, 3, 5)
places = {x: (0, 2, "x"), y: (0, 0, "y"), z: (1.5, -0.6, "z"), q: (1.5, 1, "+"), f: (3, 0.4, "×")}
drawings.graphs({"f = (x + y) z": (tape, places)}).savefig(FIGURES / "by_hand.png")

# %% [markdown]
# ## 3. One unit
# A neuron: a = sigmoid(w x + b), where sigmoid(s) = 1 / (1 + e^-s) has the pleasant derivative a (1 - a).


# %%
def sigmoid(s):
    a = 1 / (1 + np.exp(-s))
    return a, (lambda g: g * a * (1 - a),)


print("\n3. One unit: a = sigmoid(w x + b)")
tape = Tape()
w, x, b = Node(2.0), Node(0.5), Node(-2.0)
product = tape.run(multiply, w, x)
total = tape.run(add, product, b)
a = tape.run(sigmoid, total)
tape.backward(a)
found = by_difference(lambda w, x, b: 1 / (1 + np.exp(-(w * x + b))), np.array([2.0, 0.5, -2.0]))
for name, node, difference in zip("wxb", (w, x, b), found, strict=True):
    print(f"   da/d{name}: tape {node.grad:.8f}, by difference {difference:.8f}")
    assert abs(node.grad - difference) < 1e-9
spots = {w: (0, 2, "w"), x: (0, 0, "x"), b: (1.5, -0.6, "b")}
spots |= {product: (1.5, 1, "×"), total: (3, 0.4, "+"), a: (4.5, 0.4, "σ")}
drawings.graphs({"a = sigmoid(w x + b)": (tape, spots)}).savefig(FIGURES / "unit.png")

# %% [markdown]
# ## 4. Used twice: gradients add
# f = x sigmoid(x). If x moves, f moves for two reasons: the factor x, and the sigmoid. Both happen at once,
# so they *add*. That is the + in `x.grad = x.grad + ...`. And it is why the order matters: whoever uses a
# value stands later in the list, so when the walk comes to the value, all its users have spoken.
#
# To forget the + is the classical mistake. Nothing complains.

# %%
print("\n4. Used twice: f = x sigmoid(x)")


class Forgetful(Tape):
    def backward(self, output):
        output.grad = np.ones_like(output.value)
        for node, inputs, pullbacks in reversed(self.entries):
            for x, pullback in zip(inputs, pullbacks, strict=True):
                x.grad = pullback(node.grad)  # wrong: what came from elsewhere is lost


def twice(kind):
    tape, x = kind(), Node(1.0)
    gate = tape.run(sigmoid, x)
    f = tape.run(multiply, x, gate)
    tape.backward(f)
    return tape, x, {x: (0, 0.5, "x"), gate: (1.5, 1.4, "σ"), f: (3, 0.5, "×")}


tape, x, spots = twice(Tape)
_, forgotten, _ = twice(Forgetful)
(found,) = by_difference(lambda x: x / (1 + np.exp(-x)), np.array([1.0]))
print(f"   tape {x.grad:.8f}, by difference {found:.8f}; the tape that forgets {forgotten.grad:.8f}")
assert abs(x.grad - found) < 1e-9 and abs(forgotten.grad - found) > 0.1
drawings.graphs({"f = x sigmoid(x)": (tape, spots)}).savefig(FIGURES / "twice.png")

# %% [markdown]
# ## 5. Arrays: what a pullback is, and what it is not
# For arrays y = h(x) the derivative is a matrix, the Jacobian J, with a row for each number of y and a
# column for each number of x. The chain rule multiplies by it: dL/dx = Jᵀ g. But nobody writes J down. A
# pullback is the *function* g -> Jᵀ g. For the product Y = X W of a batch with the weights it is another
# product:
#
#     dL/dX = g Wᵀ        dL/dW = Xᵀ g


# %%
def matmul(x, w):
    return x @ w, (lambda g: g @ w.T, lambda g: x.T @ g)


print("\n5. A pullback is Jᵀ g without J")
rng = np.random.default_rng(0)
x, w, g = rng.normal(size=(4, 3)), rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
jacobian = by_difference(
    lambda *w: (x @ np.reshape(w, (3, 2))).ravel(), w.ravel()
).T  # (8 outputs, 6 weights)
pulled = matmul(x, w)[1][1](g)
off = np.abs(jacobian.T @ g.ravel() - pulled.ravel()).max()
print(f"   a Jacobian of {jacobian.shape}: Jᵀ g and the pullback differ by {off:.0e}")
assert off < 1e-9
print(f"   for 100 digits and a layer of 128, J has {100 * 128 * 784 * 128:.1e} numbers, ", end="")
print(f"the gradient {784 * 128:,}")

# %% [markdown]
# ## 6. The real one
# The library's tape is the same list. `@op` lifts a function of the very form we have been writing, so that
# it takes and gives tensors, and writes itself on the tape that is open.

# %%
print("\n6. minigrad")


@op
def swish(x):
    a, (to_s,) = sigmoid(x)
    return x * a, (lambda g: g * a + to_s(g * x),)


two_ops = ("x sigmoid(x) in two ops", lambda x: x * ops.sigmoid(x), found)
for name, function, expected in (
    two_ops,
    ("x sigmoid(x) in one op", swish, found),
    ("x + x", lambda x: x + x, 2),
):
    x = Tensor([1.0], requires_grad=True)
    with minigrad.Tape() as tape:
        y = function(x)
    tape.backward(y)
    print(f"   {name + ':':24} {x.grad[0]:.8f}")
    assert abs(x.grad[0] - expected) < 1e-9

# %% [markdown]
# **What nobody needs is never computed.** There is one pullback per input, and not one for all, because
# often only some are wanted. Nobody trains the pixels: the first layer's dL/dX would be thrown away. Let us
# see who is called.

# %%
called = []


def noting(x, w):
    value, (to_x, to_w) = matmul(x, w)

    def noted(name, pullback):
        return lambda g: called.append(name) or pullback(g)

    return value, (noted("to x", to_x), noted("to w", to_w))


def who_is_called(x_wanted, w_wanted):
    called.clear()
    with minigrad.Tape() as tape:
        x = Tensor(np.ones((4, 3)), requires_grad=x_wanted)
        w = Tensor(np.ones((3, 2)), requires_grad=w_wanted)
        y = op(noting)(x, w)
    tape.backward(y, np.ones((4, 2)))
    return list(called)


print(
    f"   pixels and weights: {who_is_called(False, True)}; hidden layer: {who_is_called(True, True)}; ",
    end="",
)
print(f"frozen weights: {who_is_called(True, False)}")
assert who_is_called(False, True) == ["to w"] and who_is_called(True, False) == ["to x"]
assert sorted(who_is_called(True, True)) == ["to w", "to x"]

# %% [markdown]
# **How a wrong pullback is found.** Not by looking at the loss. Here is a sigmoid whose pullback lacks the
# factor a. No sign is wrong, only every size. `gradient_matches_difference` compares the gradient with a
# central difference in a random direction: one line for any op. It is the first *law* of this course: a
# statement that must hold for every input, and is tried on inputs drawn at random.


# %%
def careless(s):
    a, _ = sigmoid(s)
    return a, (lambda g: g * (1 - a),)


s = rng.normal(size=(5, 3))
gradient_matches_difference(op(sigmoid), s)
gradient_matches_difference(swish, s)
gradient_matches_difference(op(matmul), s, rng.normal(size=(3, 2)))
try:
    gradient_matches_difference(op(careless), s)
except AssertionError as error:
    print("   careless: " + str(error).split(", along")[0])
else:
    raise AssertionError("the law has let a wrong pullback pass")

# %% [markdown]
# And who does not check? Let us train a network with it, 784-32-10, squared error, on our own tape. Once with
# the right pullback in the hidden units, once with the careless one.

# %%
digits = mnist.load("mnist5k")
images = digits.train.x.reshape(-1, 784).astype(np.float64)
targets = one_hot(digits.train.y)


def squared_error(x, y):
    """The mean of (x - y)² over all numbers."""
    d = x - y
    return (d * d).sum() / d.size, (lambda g: g * 2 * d / d.size, lambda g: g * -2 * d / d.size)


def start(seed=0):
    """The four parameters of a network of 784, 32 and 10 units: weights (in, out), biases (1, out)."""
    rng = np.random.default_rng(seed)
    shapes = ((784, 32), (1, 32), (32, 10), (1, 10))
    return [rng.uniform(-1, 1, shape) / np.sqrt(784 if shape[1] == 32 else 32) for shape in shapes]


def add_row(x, row):
    """x + row, the row repeated for each sample; so its gradient is the sum over the samples."""
    return x + row, (lambda g: g, lambda g: g.sum(axis=0, keepdims=True))


def gradients(parameters, x, y, inner=sigmoid):
    """The loss of a batch, and the gradient of each parameter, by the tape of part 2.

    ``inner`` is the sigmoid of the hidden units.
    """
    tape, nodes = Tape(), [Node(value) for value in parameters]
    w1, b1, w2, b2 = nodes
    hidden = tape.run(inner, tape.run(add_row, tape.run(matmul, Node(x), w1), b1))
    out = tape.run(sigmoid, tape.run(add_row, tape.run(matmul, hidden, w2), b2))
    loss = tape.run(squared_error, out, Node(y))
    tape.backward(loss)
    return loss.value, [node.grad for node in nodes]


def train(inner, rate=5.0, steps=300, size=50):
    parameters, losses, errors = start(), [], []
    for step in range(steps):
        first = step * size % len(images)
        rows = slice(first, first + size)
        loss, grads = gradients(parameters, images[rows], targets[rows], inner)
        losses.append(loss)
        if step % 20 == 0:
            _, right = gradients(parameters, images[rows], targets[rows])
            flat, other = (np.concatenate([g.ravel() for g in gs]) for gs in (grads, right))
            errors.append(np.linalg.norm(flat - other) / np.linalg.norm(other))
        parameters = [p - rate * g for p, g in zip(parameters, grads, strict=True)]
    return losses, errors


right, wrong = train(sigmoid), train(careless)
ends = [np.mean(losses[-50:]) for losses, _ in (right, wrong)]
print(
    f"   a network's loss falls from {right[0][0]:.3f} to {ends[0]:.3f}; with the careless pullback to ",
    end="",
)
print(f"{ends[1]:.3f}, its gradient off by {min(wrong[1]):.0%} or more")
assert max(ends) < right[0][0] / 2 and min(wrong[1]) > 0.2 and max(right[1]) == 0
drawings.careless(right, wrong).savefig(FIGURES / "careless.png")

# %% [markdown]
# Remember this picture. Everything in this course that can be wrong, can be wrong like that: a falling loss
# proves nothing. Gradients prove.
#
# One more way to be wrong in silence: a pullback holds the arrays that it saw, not copies, so that a tape
# costs little. If one is changed before backward (weights updated too early, a batch refilled in place),
# backward takes the new numbers. With MINIGRAD_CHECK=arrays the tape notices it, and names the op.

# %%
x, w = (Tensor(np.full(2, value), requires_grad=True) for value in (3.0, 5.0))
for check in ("", "arrays"):
    x.grad, w.data[...] = None, 5.0
    with patch.dict(os.environ, MINIGRAD_CHECK=check), minigrad.Tape() as tape:
        total = (x * w).sum()
    w.data[...] = 100.0  # too early
    try:
        tape.backward(total)
        print(f"   d(x w)/dx at w = 5 comes out as {x.grad[0]:.0f}")
        assert not check and x.grad[0] == 100
    except RuntimeError as error:
        print(f"   with the check: {str(error).partition(';')[0]}")
        assert check and "that multiply needs" in str(error)

# %% [markdown]
# ## 7. What does backward cost?
# Count multiplications. X W with X (N, n) and W (n, m) takes N n m. Each of its two pullbacks takes as
# many. So backward costs up to **twice** forward, whatever the number of parameters: two products for one.
# It is less by the first layer's share, whose dL/dX is never asked for: in a deep network hardly less, in a
# small one whose first layer is nearly all of it only once forward. (To get the same by differences would
# take two forward passes *per parameter*.) We let the real tape run real layers, and count.

# %%
print("\n7. What does backward cost?")


def count(widths, samples=10):
    """Multiplications: forward, backward to the inputs, backward to the weights."""
    counts = {"forward": 0, "to inputs": 0, "to weights": 0}

    def counted(what, function):
        def product(x, y):
            counts[what] += x.shape[0] * x.shape[1] * y.shape[1]
            return x @ y

        return function(product)

    @op
    def layer(x, w):
        value = counted("forward", lambda product: product(x, w))
        return value, (
            lambda g: counted("to inputs", lambda product: product(g, w.T)),
            lambda g: counted("to weights", lambda product: product(x.T, g)),
        )

    with minigrad.Tape() as tape:
        x = Tensor(np.ones((samples, widths[0])))
        for n, m in zip(widths, widths[1:], strict=False):
            x = layer(x, Tensor(np.ones((n, m)) / n, requires_grad=True))
        loss = x.sum()
    tape.backward(loss)
    return counts


counted = {}
for widths in ((784, 128, 10), (784, 128, 128, 10), (128,) * 5, (128,) * 17):
    name = f"{widths[0]} x {len(widths) - 1} layers" if widths[0] == 128 else "-".join(map(str, widths))
    counted[name] = found = count(widths)
    ratio = (found["to inputs"] + found["to weights"]) / found["forward"]
    first = widths[0] * widths[1] / sum(n * m for n, m in zip(widths, widths[1:], strict=False))
    print(
        f"   {name + ':':18} backward / forward = {ratio:.3f}; 2 - the first layer's share = {2 - first:.3f}"
    )
    assert found["to weights"] == found["forward"] and abs(ratio - (2 - first)) < 1e-12
drawings.cost(counted).savefig(FIGURES / "cost.png")

# %% [markdown]
# ## 8. Our twenty lines against the library
# The same network once more, 784-32-10, and the same start: trained for 20 steps by our tape, and by
# minigrad's layers, tape, loss and optimizer. Not the curves are compared, but all 25,450 derivatives, in
# every step.

# %%
print("\n8. Twenty lines against the library")
rng = np.random.default_rng(0)
first, last = (nn.Linear(n, m, rng=rng, dtype=np.float64) for n, m in ((784, 32), (32, 10)))
model = nn.Sequential(first, nn.Sigmoid(), last, nn.Sigmoid())
parameters, theirs = start(), [first.weight, first.bias, last.weight, last.bias]
for mine, parameter in zip(parameters, theirs, strict=True):
    parameter.data[...] = mine.T.reshape(parameter.shape)  # the library keeps weights as (out, in)
optimizer = optim.SGD(model.parameters(), lr=1.0)
worst = 0.0
for step in range(20):
    rows = slice(50 * step, 50 * step + 50)
    loss, grads = gradients(parameters, images[rows], targets[rows])
    optimizer.zero_grad()
    with minigrad.Tape() as tape:
        their_loss = ops.mse(model(Tensor(images[rows])), Tensor(targets[rows]))
    tape.backward(their_loss)
    for mine, parameter in zip(grads, theirs, strict=True):
        off = np.abs(mine.T.reshape(parameter.shape) - parameter.grad).max() / np.abs(mine).max()
        worst = max(worst, off)
    parameters = [p - 1.0 * g for p, g in zip(parameters, grads, strict=True)]
    optimizer.step()
    assert abs(loss - their_loss.item()) < 1e-12
size = sum(p.size for p in parameters)
print(f"   {size:,} derivatives in each of 20 steps: they differ by {worst:.0e} at most")
assert worst < 1e-12
print(f"\nFigures: {FIGURES}/")
