"""One worker's update with momentum after the selection of entries to send, which is wrong, and before it.

Say an entry's gradients are g_1, ..., g_T and it is sent, for the first time, in iteration T. With momentum
m, dense SGD has then moved it by lr sum_t g_t (1 - m^(T-t+1)) / (1 - m), as each gradient keeps acting. The
basic sparse update has moved it by lr sum_t g_t, as if all gradients were new: a gradient that waited j
iterations has only (1 - m) / (1 - m^(j+1)) of its effect. The corrected update applies momentum before
selection, and moves the entry as dense SGD does.
Source: deep gradient compression (DGC), Lin, Han, Mao, Wang and Dally 2018, arXiv 1712.01887. Lesson:
10_gradient_compression.
"""

from minigrad.device import Array


def basic(
    velocity: Array, error: Array, g: Array, sent: Array, momentum: float
) -> tuple[Array, Array, Array]:
    """Wrong: momentum after selection. (step, velocity, error) of one worker; ``sent`` is a mask.

    v = e + g; velocity = momentum velocity + the sent entries of v; e = the others. This is top-k with an
    optimizer that has momentum.
    """
    v = error + g
    velocity = momentum * velocity + v * sent
    return velocity, velocity, v * ~sent


def corrected(
    velocity: Array, error: Array, g: Array, sent: Array, momentum: float, masking: bool = True
) -> tuple[Array, Array, Array]:
    """Right: momentum before selection. (step, velocity, error) of one worker; ``sent`` is a mask.

    velocity = momentum velocity + g; v = e + velocity; the step is the sent entries of v, e the others.
    ``masking`` sets the velocity of the sent entries to 0, which would otherwise keep an old direction.
    """
    velocity = momentum * velocity + g
    v = error + velocity
    return v * sent, velocity * ~sent if masking else velocity, v * ~sent


def discount(momentum: float, waited: int) -> float:
    """The effect of a gradient that waited in the basic update, relative to its effect in dense SGD."""
    return (1 - momentum) / (1 - momentum ** (waited + 1))
