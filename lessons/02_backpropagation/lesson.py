"""Lesson 02. Back-propagation: write down what you compute, then walk back through it.

Lecture section: back-propagation. (x + y) z by hand, a tape of twenty lines, gates (add, multiply, max,
sigmoid), values that are used twice, pullbacks of arrays, the library's tape, wrong derivatives, convolution
and pooling, the cost of backward.

The slide asks: how does a computer get the derivative of a loss by each of a million weights?

You need: lesson 01; the chain rule, partial derivatives and products of matrices.

Time: about 55 minutes; the program runs for about 5 seconds.

After this you can: compute all derivatives of a small graph by hand; derive the pullback of an operation,
also of a convolution; prove by differences that a pullback is right; say what backward costs.

    python lessons/02_backpropagation/lesson.py

Needs neither MPI nor a cluster. Figures go to runs/lessons/02_backpropagation/. In an editor that knows
`# %%` cells this file opens as a notebook.
"""

# %%
import os
from unittest.mock import patch

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson
from minigrad_course.shared.svg_picture import save_svg

import minigrad
from minigrad import Tensor, mnist, nn, op, ops, optim
from minigrad.figures import save
from minigrad.models import one_hot
from minigrad.testing import gradient_matches_difference

FIGURES = start_lesson("02_backpropagation")

# %% [markdown]
# ## 1. By hand
# f = (x + y) z at x = 2, y = 1, z = 5. The *forward* pass runs one operation after the other: q = x + y = 3,
# and then f = q z = 15.
#
# Training asks one question: if x changes a little, how much does f change? The answer is the derivative
# df/dx. Start at the *end*: df/df = 1. Since f = q z, df/dq = z = 5 and df/dz = q = 3. Since q = x + y, dq/dx
# = 1, and the chain rule gives df/dx = df/dq * dq/dx = 5 * 1 = 5, and the same for y. We went from the output
# to the inputs: the *backward* pass. Each operation used only its own inputs and the derivative of f by its
# output.

# %%
print("1. By hand: f = (x + y) z")


def by_difference(f, at, h=1e-5):
    """The derivative of f by each of its arguments: (f(x + h) - f(x - h)) / 2h, up to about 1e-10."""
    shift = h * np.eye(len(at))
    return np.array([(f(*(at + row)) - f(*(at - row))) / (2 * h) for row in shift])


at = np.array([2.0, 1.0, 5.0])
differences = by_difference(lambda x, y, z: (x + y) * z, at)
print(f"   by hand 5, 5, 3; by moving each input a little: {', '.join(f'{d:.8f}' for d in differences)}")
error = np.abs(differences - [5, 5, 3]).max()
assert error < 1e-8, (
    f"by hand 5, 5, 3, by difference {differences}: they differ by {error:.1e}, expected below 1e-8"
)

# %% [markdown]
# Read: Rumelhart, Hinton and Williams 1986, doi:10.1038/323533a0; Baydin et al. 2018, arXiv:1502.05767,
# section 3.2.
#
# ## 2. A tape
# These steps are mechanical, so a program can do them. A *tape* is a list of the operations that were run. An
# operation returns its value and, for each input, one function, the **pullback**: it takes g, the derivative
# of f by the operation's output, and returns the derivative of f by that input. `backward` goes through the
# list from its end to its start.


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
# This is all of back-propagation: twenty lines, and two lines for each operation. `walk`, the first function
# in `minigrad/tape.py`, does the same for the library's tensors.

# %%
print("\n2. A tape")
tape = Tape()
x, y, z = (Node(value) for value in at)
q = tape.run(add, x, y)
f = tape.run(multiply, q, z)
tape.backward(f)
print(f"   f = {f.value}; from the tape {x.grad}, {y.grad}, {z.grad}; on the way df/dq = {q.grad}")
by_tape = (f.value, x.grad, y.grad, z.grad, q.grad)
assert by_tape == (15, 5, 5, 3, 5), f"f, df/dx, df/dy, df/dz, df/dq are {by_tape}, expected 15, 5, 5, 3, 5"

# %%
places = {x: (0, 2, "x"), y: (0, 0, "y"), z: (1.5, -0.6, "z"), q: (1.5, 1, "+"), f: (3, 0.4, "×")}
save(drawings.graphs({"f = (x + y) z": (tape, places)}), FIGURES / "by_hand.png")

# %% [markdown]
# Read: Linnainmaa 1976, doi:10.1007/BF01931367; Griewank and Walther 2008, "Evaluating Derivatives",
# doi:10.1137/1.9780898717761, chapter 3.
#
# ## 3. Gates: add, multiply, max
# An operation in such a graph is also called a *gate*. Look at what each gate does with the derivative of its
# output. An **add** gate copies it to both inputs. A **multiply** gate exchanges the inputs: each input gets
# the derivative times the *other* input. A **max** gate routes it: the larger input gets all of it, the
# smaller one gets 0, because a small change of the smaller input does not change the maximum. ReLU, max(0,
# x), is a max gate with the constant 0 as one input.


# %%
def maximum(x, y):
    return max(x, y), (lambda g: g * (x > y), lambda g: g * (x <= y))  # equal: y gets all


print("\n3. Gates: f = max(x, y) z")
gates, tapes = {"the larger input is x": (4.0, 1.0, 5.0), "the larger input is y": (2.0, 3.0, 5.0)}, {}
for name, values in gates.items():
    tape = Tape()
    x, y, z = (Node(value) for value in values)
    m = tape.run(maximum, x, y)
    f = tape.run(multiply, m, z)
    tape.backward(f)
    central = by_difference(lambda x, y, z: max(x, y) * z, np.array(values))
    error = np.abs(central - [x.grad, y.grad, z.grad]).max()
    print(f"   {name}: from the tape {x.grad}, {y.grad}, {z.grad}; the differences agree to {error:.0e}")
    assert error < 1e-8, f"the tape's derivatives differ by {error:.1e} from the differences, limit 1e-8"
    assert x.grad * y.grad == 0, f"one input of max gets nothing, but x got {x.grad} and y got {y.grad}"
    tapes[name] = (
        tape,
        {x: (0, 2, "x"), y: (0, 0, "y"), z: (1.5, -0.6, "z"), m: (1.5, 1, "max"), f: (3, 0.4, "×")},
    )

# %%
save(drawings.graphs(tapes), FIGURES / "max_gate.png")

# %% [markdown]
# ### One unit
# A neuron with one input, a = sigmoid(w x + b), is three gates. The sigmoid, 1 / (1 + e^-s), has the
# derivative a (1 - a), where a is its value.


# %%
def sigmoid(s):
    a = 1 / (1 + np.exp(-s))
    return a, (lambda g: g * a * (1 - a),)


print("   one unit, a = sigmoid(w x + b):")
tape = Tape()
w, x, b = Node(2.0), Node(0.5), Node(-2.0)
product = tape.run(multiply, w, x)
total = tape.run(add, product, b)
a = tape.run(sigmoid, total)
tape.backward(a)
differences = by_difference(lambda w, x, b: 1 / (1 + np.exp(-(w * x + b))), np.array([2.0, 0.5, -2.0]))
for name, node, difference in zip("wxb", (w, x, b), differences, strict=True):
    print(f"      da/d{name}: tape {node.grad:.8f}, by difference {difference:.8f}")
    assert abs(node.grad - difference) < 1e-9, f"da/d{name}: tape {node.grad}, by difference {difference}"

# %%
spots = {w: (0, 2, "w"), x: (0, 0, "x"), b: (1.5, -0.6, "b")}
spots |= {product: (1.5, 1, "×"), total: (3, 0.4, "+"), a: (4.5, 0.4, "σ")}
save(drawings.graphs({"a = sigmoid(w x + b)": (tape, spots)}), FIGURES / "unit.png")

# %% [markdown]
# Read: LeCun, Bottou, Orr and Müller 1998, "Efficient BackProp", doi:10.1007/3-540-49430-8_2, section 4.4 (on
# the choice of the sigmoid).
#
# ## 4. A value that is used twice: derivatives add
# In f = x sigmoid(x) the value x is used twice. A change of x changes f in two ways, through the factor x and
# through the sigmoid, and the two changes *add up*. This is the + in `x.grad = x.grad + ...`. It is also the
# reason for the order of backward: in the list, each operation comes after the operations that made its
# inputs. When `backward` comes to a value, all operations that use this value have already added their part.
#
# A common mistake is to write = instead of adding. The program still runs; only its gradients are wrong.

# %%
print("\n4. Used twice: f = x sigmoid(x)")


class Forgetful(Tape):
    def backward(self, output):
        output.grad = np.ones_like(output.value)
        for node, inputs, pullbacks in reversed(self.entries):
            for x, pullback in zip(inputs, pullbacks, strict=True):
                x.grad = pullback(node.grad)  # wrong: the part from the other use is lost


def twice(kind):
    tape, x = kind(), Node(1.0)
    gate = tape.run(sigmoid, x)
    f = tape.run(multiply, x, gate)
    tape.backward(f)
    return tape, x, {x: (0, 0.5, "x"), gate: (1.5, 1.4, "σ"), f: (3, 0.5, "×")}


tape, x, spots = twice(Tape)
_, forgotten, _ = twice(Forgetful)
(central,) = by_difference(lambda x: x / (1 + np.exp(-x)), np.array([1.0]))
print(f"   tape {x.grad:.8f}, by difference {central:.8f}; the tape that forgets {forgotten.grad:.8f}")
assert abs(x.grad - central) < 1e-9, f"df/dx: tape {x.grad}, by difference {central}"
assert abs(forgotten.grad - central) > 0.1, (
    f"without the +: {forgotten.grad}, right: {central}; too close to see"
)

# %%
save(drawings.graphs({"f = x sigmoid(x)": (tape, spots)}), FIGURES / "twice.png")

# %% [markdown]
# Read: Griewank and Walther 2008, section 3.2 (reverse mode).
#
# ## 5. Arrays: a pullback is a product with the Jacobian, without the Jacobian
# For arrays, y = h(x), the derivative is a matrix, the *Jacobian* J, with a row for each number of y and a
# column for each number of x. The chain rule multiplies by its transpose: dL/dx = Jᵀ g, where g = dL/dy and L
# is the loss. J itself is far too large to be stored. A pullback is the *function* g -> Jᵀ g. For the product
# Y = X W, where X is a batch with a row for each sample and W are the weights, it is another product of
# matrices:
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
assert off < 1e-9, f"Jᵀ g and the pullback differ by {off:.1e}, limit 1e-9"
print(f"   for 100 digits and a layer of 128, J has {100 * 128 * 784 * 128:.1e} numbers, ", end="")
print(f"the gradient {784 * 128:,}")

# %% [markdown]
# Read: Baydin et al. 2018, arXiv:1502.05767, section 3.2 (reverse mode).
#
# ## 6. The library
# The library's tape is the same list, and its ops are pairs of a value and pullbacks like ours, in files to
# read: `linear.py`, `elementwise.py`, `shape.py`, `reduce.py`, `conv.py`, `pool.py`, `layer_norm.py`,
# `dropout.py` in `minigrad/ops`. The decorator `@op` takes a function of this form, and returns an op: it
# takes and returns *tensors*, arrays of which a gradient may be wanted (`requires_grad=True`), and records
# itself on the tape that is open.

# %%
print("\n6. minigrad")


@op
def swish(x):
    a, (to_s,) = sigmoid(x)
    return x * a, (lambda g: g * a + to_s(g * x),)


two_ops = ("x sigmoid(x) in two ops", lambda x: x * ops.sigmoid(x), central)
for name, function, expected in (
    two_ops,
    ("x sigmoid(x) in one op", swish, central),
    ("x + x", lambda x: x + x, 2),
):
    x = Tensor([1.0], requires_grad=True)
    with minigrad.Tape() as tape:
        y = function(x)
    tape.backward(y)
    print(f"   {name + ':':24} {x.grad[0]:.8f}")
    assert abs(x.grad[0] - expected) < 1e-9, f"{name}: tape {x.grad[0]}, expected {expected}"

# %% [markdown]
# **Only the derivatives that are needed are computed.** There is one pullback for each input, and not one for
# all inputs together, because often only some derivatives are needed. Pixels are not trained, so the dL/dX of
# the first layer is not needed; nor is the dL/dW of a *frozen* layer, which keeps its weights. We record
# which pullbacks are called.

# %%
called = []


def recorded_matmul(x, w):
    value, (to_x, to_w) = matmul(x, w)

    def recorder(name, pullback):
        return lambda g: called.append(name) or pullback(g)

    return value, (recorder("to x", to_x), recorder("to w", to_w))


def called_pullbacks(x_wanted, w_wanted):
    called.clear()
    with minigrad.Tape() as tape:
        x = Tensor(np.ones((4, 3)), requires_grad=x_wanted)
        w = Tensor(np.ones((3, 2)), requires_grad=w_wanted)
        y = op(recorded_matmul)(x, w)
    tape.backward(y, np.ones((4, 2)))
    return list(called)


print(
    f"   pixels and weights: {called_pullbacks(False, True)}; hidden layer: {called_pullbacks(True, True)}; ",
    end="",
)
print(f"frozen weights: {called_pullbacks(True, False)}")
for flags, expected in (
    ((False, True), ["to w"]),
    ((True, False), ["to x"]),
    ((True, True), ["to w", "to x"]),
):
    calls = sorted(called_pullbacks(*flags))
    assert calls == expected, (
        f"x and w need gradients: {flags}; pullbacks called {calls}, expected {expected}"
    )

# %% [markdown]
# **How to find a wrong pullback.** The loss does not show it. Here is a sigmoid whose pullback lacks the
# factor a: every sign is right, every size is wrong. `gradient_matches_difference` compares the gradient with
# a central difference, the quotient of part 1, in a random direction. It takes any op. It is the first *law*
# of this course: a statement that must hold for every input, and is tested on inputs that are drawn at
# random.


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
    raise AssertionError("the law accepted the careless pullback: 1 wrong pullback, 0 reports")

# %% [markdown]
# What happens without such a check? We train a network on our own tape: 784 pixels, 32 hidden units, 10
# outputs, each with a sigmoid, and the squared error. It is trained once with the right pullback in the
# hidden units, and once with the careless one.

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


# %%
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


# %%
right, wrong = train(sigmoid), train(careless)
ends = [np.mean(losses[-50:]) for losses, _ in (right, wrong)]
print(
    f"   a network's loss falls from {right[0][0]:.3f} to {ends[0]:.3f}; with the careless pullback to ",
    end="",
)
print(f"{ends[1]:.3f}, its gradient off by {min(wrong[1]):.0%} or more")
assert max(ends) < right[0][0] / 2, f"losses {right[0][0]:.3f} at the start, {max(ends):.3f} at the end"
assert min(wrong[1]) > 0.2 and max(right[1]) == 0, f"errors {min(wrong[1]):.0%} and {max(right[1]):.0%}"

# %%
save(drawings.careless(right, wrong), FIGURES / "careless.png")

# %% [markdown]
# A falling loss does not prove that the gradients are right. So this course compares gradients.
#
# There is a second mistake that raises no error. A pullback keeps the arrays of the forward pass, not copies
# of them, so that a tape needs little memory. If such an array is changed before backward (the weights are
# updated too early, or the next batch is read into the same memory), backward uses the new numbers. If the
# environment variable MINIGRAD_CHECK is "arrays", the tape detects this, and the error names the op.

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
        assert not check, f"w changed from 5 to {w.data[0]:.0f} before backward, and the check found nothing"
        assert x.grad[0] == 100, f"d(x w)/dx is {x.grad[0]}, expected the changed w, 100"
    except RuntimeError as error:
        print(f"   with the check: {str(error).partition(';')[0]}")
        assert check and "that multiply needs" in str(error), f"check {check!r} raised: {error}"

# %% [markdown]
# Read: Griewank and Walther 2008, chapter 3.
#
# ## 7. Convolution and pooling
# A convolution moves a small matrix of weights, the *kernel*, over an image. Each output is the sum of a
# patch of the image times the kernel. Instead of a loop over the outputs, write a loop over the *taps*, the
# single weights of the kernel: tap (a, b) adds w[a, b] times the image shifted by (a, b) to all outputs at
# once. Then backward is the same loop: each tap adds its weight times g to the gradient of the pixels that it
# read.


# %%
def convolution(x, w):
    """y[i, j] is the sum of w[a, b] x[i + a, j + b] over all taps (a, b): one image, one kernel."""
    height, width = np.subtract(x.shape, w.shape) + 1
    taps = {(a, b): np.s_[a : a + height, b : b + width] for a, b in np.ndindex(w.shape)}

    def to_x(g):
        dx = np.zeros_like(x)
        for tap, pixels in taps.items():
            dx[pixels] += w[tap] * g
        return dx

    def to_w(g):
        return np.array([(x[pixels] * g).sum() for pixels in taps.values()]).reshape(w.shape)

    return sum(w[tap] * x[pixels] for tap, pixels in taps.items()), (to_x, to_w)


print("\n7. Convolution and pooling")
image, kernel = rng.normal(size=(7, 7)), rng.normal(size=(3, 3))
gradient_matches_difference(op(convolution), image, kernel)
leaves = [Tensor(a[None, None], requires_grad=True) for a in (image, kernel)]
with minigrad.Tape() as tape:
    y = ops.conv2d(*leaves)
g = rng.normal(size=y.shape)
tape.backward(y, g)
ours, pullbacks = convolution(image, kernel)
errors = [np.abs(ours - y.data[0, 0]).max()]
errors += [
    np.abs(back(g[0, 0]) - leaf.grad[0, 0]).max() for back, leaf in zip(pullbacks, leaves, strict=True)
]
print("   ops.conv2d and these lines differ by {:.0e} forward, {:.0e} to x, {:.0e} to w".format(*errors))
assert max(errors) < 1e-12, f"they differ by {max(errors):.1e}, limit 1e-12"

# %% [markdown]
# **Which outputs use one pixel?** Put 1 into one pixel and 0 into all others, and number the taps 1 to 9. The
# outputs that use the pixel are then not 0, and each shows the number of the tap that it uses for the pixel.
# There are nine such outputs, and their numbers are the kernel *turned by 180 degrees*: the output to the
# upper left of the pixel uses the last tap, and the output to the lower right uses the first. So the
# derivative by this pixel is the sum of nine derivatives g times the turned kernel. This holds at each pixel:
# **the gradient of the image is the convolution of g, with zeros around it, with the turned kernel.**

# %%
numbers, one_pixel = np.arange(1.0, 10.0).reshape(3, 3), np.zeros((7, 7))
one_pixel[3, 3] = 1
used, _ = convolution(one_pixel, numbers)
turned = kernel[::-1, ::-1]
assert (used[1:4, 1:4] == numbers[::-1, ::-1]).all(), f"outputs use the taps\n{used}, expected 9 to 1"
assert np.count_nonzero(used) == 9, f"{np.count_nonzero(used)} outputs use the pixel, expected 9"
by_turning, _ = convolution(np.pad(g[0, 0], 2), turned)
error = np.abs(by_turning - pullbacks[0](g[0, 0])).max()
print(f"   {np.count_nonzero(used)} outputs use one pixel; to_x against the turned kernel: {error:.0e}")
assert error < 1e-12, f"to_x and the convolution with the turned kernel differ by {error:.1e}, limit 1e-12"

# %%
save(drawings.one_pixel(numbers, one_pixel, used), FIGURES / "one_pixel.png")

# %% [markdown]
# If the kernel is not turned, a test with a symmetric kernel still passes. The law with a random kernel
# fails.


# %%
def not_turned(x, w):
    y, (_, to_w) = convolution(x, w)
    return y, (lambda g: convolution(np.pad(g, len(w) - 1), w)[0], to_w)


blur = np.outer([1.0, 2.0, 1.0], [1.0, 2.0, 1.0]) / 16
gradient_matches_difference(op(lambda x: (not_turned(x, blur)[0], not_turned(x, blur)[1][:1])), image)
try:
    gradient_matches_difference(op(not_turned), image, kernel)
except AssertionError as error:
    print("   not turned: a symmetric kernel passes; else " + str(error).split(", along")[0])
else:
    raise AssertionError("the law accepted the kernel that is not turned: 1 wrong pullback, 0 reports")

# %% [markdown]
# **Pooling** makes images smaller. Here each block of 2 x 2 pixels becomes one number. *Max pooling* is a max
# gate with four inputs: the largest pixel of each block gets the whole derivative. *Average pooling* is an
# add gate followed by a division by 4: each of the four pixels gets a quarter.


# %%
def max_pooling(x):
    blocks = x.reshape(len(x) // 2, 2, -1, 2)
    y = blocks.max(axis=(1, 3), keepdims=True)
    return y[:, 0, :, 0], (lambda g: ((blocks == y) * g[:, None, :, None]).reshape(x.shape),)


def average_pooling(x):
    y = x.reshape(len(x) // 2, 2, -1, 2).mean(axis=(1, 3))
    return y, (lambda g: np.repeat(np.repeat(g / 4, 2, axis=0), 2, axis=1),)


# %%
x, g = 1.0 + rng.permutation(16).reshape(4, 4), np.array([[1.0, 2.0], [3.0, 4.0]])
pictures = {}
for ours, library in ((max_pooling, ops.max_pool2d), (average_pooling, ops.avg_pool2d)):
    gradient_matches_difference(op(ours), x)
    leaf = Tensor(x[None, None], requires_grad=True)
    with minigrad.Tape() as tape:
        y = library(leaf, kernel=2)
    tape.backward(y, g[None, None])
    value, (back,) = ours(x)
    errors = np.abs(value - y.data[0, 0]).max(), np.abs(back(g) - leaf.grad[0, 0]).max()
    pictures[ours.__name__.replace("_", " ")] = x, value, g, back(g)
    print(
        f"   {ours.__name__}: ops.{library.__name__} differs by {errors[0]:.0e} forward, "
        f"{errors[1]:.0e} backward"
    )
    assert max(errors) < 1e-12, f"they differ by {max(errors):.1e}, limit 1e-12"
    assert back(g).sum() == g.sum(), (
        f"derivatives sum to {back(g).sum()}, expected the outputs' sum, {g.sum()}"
    )

# %%
save(drawings.pooling(pictures), FIGURES / "pooling.png")

# %% [markdown]
# An image may have several *channels*, such as red, green and blue, and a layer several kernels, its
# *filters*. The library's `conv2d` does the same for many images, channels and filters; `direct`, the first
# function in `minigrad/ops/conv.py`, has the same loop over the taps.
#
# Read: LeCun, Bottou, Bengio and Haffner 1998, doi:10.1109/5.726791, section II; Dumoulin and Visin 2016,
# arXiv:1603.07285, chapter 4 (the turned kernel as a transposed convolution).
#
# ## 8. What does backward cost?
# Count multiplications. X W with X (N, n) and W (n, m) takes N n m. Each of its two pullbacks takes as many.
# So backward costs up to **twice** as much as forward, for any number of parameters. It costs less if dL/dX
# of the first layer is not needed: then the share of the first layer in all multiplications is saved. In a
# deep network this share is small; a small network may have nearly all its work in the first layer, and then
# backward costs about as much as forward. (The same derivatives by differences would take two forward passes
# *per parameter*.) We let the library's tape run layers, and count.

# %%
print("\n8. What does backward cost?")


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


# %%
counted = {}
for widths in ((784, 128, 10), (784, 128, 128, 10), (128,) * 5, (128,) * 17):
    name = f"{widths[0]} x {len(widths) - 1} layers" if widths[0] == 128 else "-".join(map(str, widths))
    counted[name] = cost = count(widths)
    ratio = (cost["to inputs"] + cost["to weights"]) / cost["forward"]
    first = widths[0] * widths[1] / sum(n * m for n, m in zip(widths, widths[1:], strict=False))
    print(f"   {name + ':':18} backward / forward = {ratio:.3f}; 2 - first layer's share: {2 - first:.3f}")
    assert abs(ratio - (2 - first)) < 1e-12, f"backward / forward is {ratio}, the formula gives {2 - first}"

# %%
save(drawings.cost(counted), FIGURES / "cost.png")

# %% [markdown]
# Read: Griewank and Walther 2008, section 3.3 (a gradient costs a small multiple of its function).
#
# ## 9. Our twenty lines against the library
# The network of part 6 is trained for 20 steps from the same start by our tape, and by the library's layers,
# tape, loss and optimizer. We compare not the losses but all derivatives, in every step.

# %%
print("\n9. Twenty lines against the library")
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
    assert abs(loss - their_loss.item()) < 1e-12, f"losses {loss} and {their_loss.item()} in step {step}"
size = sum(p.size for p in parameters)
print(f"   {size:,} derivatives in each of 20 steps: they differ by {worst:.0e} at most")
assert worst < 1e-12, f"the derivatives differ by {worst:.1e} of the largest one, limit 1e-12"

# %% [markdown]
# A tape draws itself, also as the last line of a cell in a notebook: the operations, the arrays that it keeps
# for backward, and after backward the gradients and what was freed.

# %%
with minigrad.Tape() as tape:
    loss_of_a_batch = ops.mse(model(Tensor(images[:50].copy())), Tensor(targets[:50]))
save_svg(tape, FIGURES / "tape.svg")
tape.backward(loss_of_a_batch)
save_svg(tape, FIGURES / "tape_after_backward.svg")

# %% [markdown]
# Read: Baydin et al. 2018, arXiv:1502.05767, section 5 (implementations).

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - The gradient of every op of the library equals its central difference, for shapes and numbers drawn at
#   random: [tests](../../tests/minigrad/ops/test_ops.py).
# - A tape gives each value the sum over all its uses, and no gradient to constants and frozen parameters, for
#   programs drawn at random: [tests](../../tests/minigrad/test_tape.py).
# - Every algorithm of the library's convolution computes what the loop over the taps computes, forward and
#   backward: [tests](../../tests/minigrad/ops/fast/test_conv.py).
# - An array that is changed between forward and backward is found, and the error names the op that needs it:
#   [tests](../../tests/minigrad/test_changed_arrays.py).
# - Only here, by the assertions of this lesson, which [a test](../../tests/lessons/test_lessons.py) runs: our
#   twenty lines find the library's 25,450 derivatives in each of 20 steps up to 1e-12, and backward costs 2 -
#   (share of the first layer) times forward.
#
# Not proved: that a wrong pullback always lets a network learn. It did so here, for one network and one
# mistake.
#
# Next: [lesson 03](../03_memory/lesson.py): the tape keeps the arrays that backward needs, and they fill the
# memory.
