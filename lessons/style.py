"""The start that all lessons share, and the colors of their figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from threadpoolctl import threadpool_limits

from backends.launch import only_rank_0

# Okabe and Ito 2008: four colors that color-blind readers tell apart
BLUE, ORANGE, GREEN, RED = COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00")
INK, GREY = "#222222", "#8a8a8a"  # text and lines
PAPER, SAND, SKY = "#f1efea", "#e4e1da", "#dfe7f1"  # areas
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "savefig.dpi": 150}


def start_lesson(name: str) -> Path:
    """The folder for the figures of the lesson, ``06_data_parallel``; under mpiexec only rank 0 goes on.

    Linear algebra uses one thread from now on: the networks are small, and ranks are threads already. Figures
    that are saved get an alternative text, and a notebook shows them (``figure_canvas.py``).
    """
    only_rank_0()
    threadpool_limits(1)
    matplotlib.use("module://lessons.figure_canvas")
    plt.style.use(STYLE)
    folder = Path("runs/lessons") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
