"""Right and wrong classes that properties 2, 4 and 6 of assignment a8 are tried on, besides the starter's.

Whoever wants to find out whether a property is good writes it before reading this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.grading.assignment import load_file

starter: Any = load_file(Path(__file__).parent / "submission.py", "starter_of_a8")
with_halo = starter.with_halo


# 2. Inboxes


class Fresh:
    """Right: new memory for each message."""

    def take(self, message):
        return message.copy()

    def give_back(self, taken):
        pass


class Pool:
    """Right: what was given back is used again."""

    def __init__(self):
        self.free = []

    def take(self, message):
        x = self.free.pop() if self.free else np.empty_like(message)
        x[...] = message
        return x

    def give_back(self, taken):
        self.free.append(taken)


class TwoBuffers(Pool):
    """Wrong: two buffers in turn, which is enough for two micro-batches in flight."""

    def take(self, message):
        self.free = self.free or [np.empty_like(message), np.empty_like(message)]
        self.free.reverse()
        self.free[0][...] = message
        return self.free[0]

    def give_back(self, taken):
        pass


class OldestFirst(Pool):
    """Wrong: whatever is given back, the memory of the oldest is used again."""

    def __init__(self):
        super().__init__()
        self.used = []

    def take(self, message):
        self.used.append(super().take(message))
        return self.used[-1]

    def give_back(self, taken):
        self.free.append(self.used.pop(0))


class NeverOut(Pool):
    """Wrong: memory that is used again stays among what is free."""

    def take(self, message):
        if not self.free:
            return message.copy()
        self.free[-1][...] = message
        return self.free[-1]


class NoCopy(Fresh):
    """Wrong: the transport's own memory."""

    def take(self, message):
        return message


# 4. Error feedback


class Feedback(starter.ErrorFeedback):
    """Right: by partition, which leaves another order."""

    def compress(self, gradient):
        v = self.residual + gradient
        indices = np.argpartition(abs(v), v.size - self.k)[v.size - self.k :]
        return indices, self.sent(v, indices, gradient)

    def sent(self, v, indices, gradient):
        values = v[indices]
        self.residual = v
        self.residual[indices] = 0
        return values


class InPlace(Feedback):
    """Right: the residual is one array for ever."""

    def compress(self, gradient):
        self.residual += gradient
        indices = np.argsort(abs(self.residual))[::-1][: self.k]
        values = self.residual[indices]
        self.residual[indices] = 0
        return indices, values


class SentAgain(Feedback):
    """Wrong: what was sent stays in the residual."""

    def sent(self, v, indices, gradient):
        self.residual = v
        return v[indices]


class Forgetful(Feedback):
    """Wrong: what waited fades."""

    def sent(self, v, indices, gradient):
        values = super().sent(v, indices, gradient)
        self.residual *= 0.5
        return values


class NewOnly(Feedback):
    """Wrong: of what is sent, the part that waited is dropped."""

    def sent(self, v, indices, gradient):
        super().sent(v, indices, gradient)
        return gradient[indices]


class Swapped(Feedback):
    """Wrong: values that belong to one another's indices."""

    def compress(self, gradient):
        indices, values = super().compress(gradient)
        return np.roll(indices, 1), values


# 6. Filters


class Filter(starter.SplitFilter):
    """Right: the gradients' own neighbours are asked for."""

    def backward(self, g):
        w, p, q = self.weight, self.padded, self.around(g)
        return w[2] * q[:-2] + w[1] * q[1:-1] + w[0] * q[2:], np.array([g @ p[:-2], g @ p[1:-1], g @ p[2:]])

    def around(self, g):
        return with_halo(self.comm, g)


class Adjoint(Filter):
    """Right: what belongs to the neighbours' elements is sent to them, and added there."""

    def backward(self, g):
        _, to_weight = super().backward(g)
        spread = sum(np.pad(w * g, (k, 2 - k)) for k, w in enumerate(self.weight))
        comm, to_x = self.comm, spread[1:-1].copy()
        before, after = comm.rank - 1, comm.rank + 1
        for rank, edge in ((before, spread[:1]), (after, spread[-1:])):
            if 0 <= rank < comm.size:
                comm.send(edge, rank)
        if before >= 0:
            to_x[:1] += comm.recv(before)
        if after < comm.size:
            to_x[-1:] += comm.recv(after)
        return to_x, to_weight


class NoHalo(Filter):
    """Wrong: on the way back every rank is alone."""

    def around(self, g):
        return np.pad(g, 1)


class FirstHalo(Filter):
    """Wrong: the neighbours' elements are those of the first step."""

    def forward(self, x):
        if not hasattr(self, "padded"):
            return super().forward(x)
        self.padded = np.concatenate([self.padded[:1], x, self.padded[-1:]])
        w, p = self.weight, self.padded
        return w[0] * p[:-2] + w[1] * p[1:-1] + w[2] * p[2:]


class OneSided(Filter):
    """Wrong: nobody hears from the right on the way back."""

    def around(self, g):
        return np.append(with_halo(self.comm, g)[:-1], 0.0)


class NoLeft(Filter):
    """Wrong in y alone: nobody hears from the left on the way there."""

    def forward(self, x):
        y = super().forward(x)
        y[0] -= self.weight[0] * self.padded[0]
        return y


class StaleGradient(Filter):
    """Wrong in the gradient of x alone: the neighbours' gradients are those of the first step."""

    def __init__(self, comm, weight):
        super().__init__(comm, weight)
        self.ends = np.zeros(0)

    def around(self, g):
        q = super().around(g)
        self.ends = self.ends if self.ends.size else q[[0, -1]]
        q[[0, -1]] = self.ends
        return q


class OwnElements(Filter):
    """Wrong in the gradient of w alone: it is made of own elements, without the neighbours'."""

    def backward(self, g):
        p = np.pad(self.padded[1:-1], 1)
        return super().backward(g)[0], np.array([g @ p[:-2], g @ p[1:-1], g @ p[2:]])


class AddedUp(Filter):
    """Wrong in the gradient of w alone: those of earlier steps are in it."""

    def __init__(self, comm, weight):
        super().__init__(comm, weight)
        self.total = np.zeros(3)

    def backward(self, g):
        to_x, to_weight = super().backward(g)
        self.total += to_weight
        return to_x, self.total.copy()


RIGHT = {2: (Fresh, Pool), 4: (Feedback, InPlace), 6: (Filter, Adjoint)}
WRONG = {
    2: (starter.Inbox, TwoBuffers, OldestFirst, NeverOut, NoCopy),
    4: (starter.ErrorFeedback, SentAgain, Forgetful, NewOnly, Swapped),
    6: (*(starter.SplitFilter, NoHalo, FirstHalo, OneSided), *(NoLeft, StaleGradient, OwnElements, AddedUp)),
}
