"""How often to save: Young's and Daly's intervals, and the share of the time that is lost. Lessons 15 and 16.

Sources: Young 1974, doi:10.1145/361147.361115; Daly 2006, doi:10.1016/j.future.2004.11.016.
"""

import math

import numpy as np


def young(save, failures):
    """Seconds between checkpoints that take ``save``, where machines fail every ``failures``."""
    return math.sqrt(2 * save * failures)


def daly(save, failures):
    """Seconds between checkpoints as ``young`` has them, to higher order (Daly 2006)."""
    if save >= 2 * failures:
        return failures
    part = save / (2 * failures)
    return young(save, failures) * (1 + math.sqrt(part) / 3 + part / 9) - save


def waste(interval, save, failures):
    """Share of the time that is lost, at random failures: saving, and what came after the last checkpoint."""
    return 1 - interval / failures / np.expm1((interval + save) / failures)
