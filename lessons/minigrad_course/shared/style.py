"""The start that all lessons share. The look of their figures is that of all: ``minigrad.figures``."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from threadpoolctl import threadpool_limits

from minigrad.figures import STYLE

from .only_rank_0 import only_rank_0


def start_lesson(name: str) -> Path:
    """The folder for the figures of the lesson, ``06_data_parallel``; under mpiexec only rank 0 goes on.

    Linear algebra uses one thread from now on: the networks are small, and ranks are threads already. Figures
    that are saved get an alternative text, and a notebook shows them (``figure_canvas.py``).
    """
    only_rank_0()
    threadpool_limits(1)
    matplotlib.use("module://minigrad_course.shared.figure_canvas")
    plt.style.use(STYLE)
    folder = Path("runs/lessons") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
