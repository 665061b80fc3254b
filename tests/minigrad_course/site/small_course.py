"""A course of two lessons, a guide and two modules, which builds in two seconds."""

from pathlib import Path

LESSON = '''"""Lesson {number}. {title}: one number.

Lecture section: numbers. See minigrad/one.py.

The slide asks: what is `one` number?

You need: what a number is.

Time: about 15 minutes; the program runs for about 5 seconds.

After this you can: name a number.

    python lessons/{folder}/lesson.py
"""

# %%
import helper
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from minigrad_course.shared.style import start_lesson

FIGURES = start_lesson("{folder}")
print("first", helper.NUMBER)

# %% [markdown]
# ## 1. A picture: A ring all-reduce
# Text with *emphasis*, and a long table:
#
# | one | {long} |
# |---|---|
# | 1 | 2 |

# %%
print("\\n1. A picture, in short")
print("second <b>", __import__("os").urandom(8).hex())

# %%
figure, axes = plt.subplots(figsize=(3, 2))
axes.plot([1, 2])
axes.set(title="A line that rises", xlabel="steps", ylabel="height")
figure.savefig(FIGURES / "line.png")
bare = Figure(figsize=(3, 2))
bare.suptitle("Made without pyplot")
bare.savefig(FIGURES / "bare.png")

# %% [markdown]
# Read: Patarasuk and Yuan 2009 (the ring), doi:10.1016/j.jpdc.2008.09.002.
'''
QUESTIONS = '''"""Questions."""

# %% [markdown]
# ## 1. The double
# What is twice the number? Edit: return it.
#
# - a: two
# - b: four, as a
#   sum

# %%
PREDICTION_1 = ""


def double(x):
    return x
'''
ANSWERS = '''"""Answers."""

from minigrad_course.lesson.questions import Question


def right(student):
    assert student.double(2) == 4, f"double(2) is {student.double(2)}, expected 4"
    return "twice 2 is 4"


QUESTIONS = [Question("b", right, (("    return x\\n", "    return 2 * x\\n"),))]
'''
README = """# Lessons

[First](01_first/lesson.py), [its answers](01_first/answers.py), [a module](../minigrad/one.py),
[a law](../tests/test_one.py), [nothing](nothing.md), [outside](../../outside.md).
"""
MODULE = '''"""One function: the square."""


def square(x: float, *, times: int = 1) -> float:
    """The square of ``x``.

    >>> print("rank 0 |", square(2.0))
    rank 0 | 4.0
    """
    return x * x * times
'''
LAYER = '''"""One layer."""


def sized(n: int) -> int:
    """A helper, which stands above the layer."""
    return n


class Base:
    """What all layers share."""

    def __init__(self, n_in: int, *, bias: bool = True):
        self.n_in = sized(n_in)


class Layer(Base):
    """A layer that counts its inputs."""
'''
GUIDE = "# The course\n\n" + "".join(f"## {part}\n\nText.\n\n" for part in ("Install", "Run", "Ask", "End"))
PROOF = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 20"><rect width="60" height="20"/></svg>'


def explorables() -> dict[str, str]:
    return {"allreduce.html": '<!doctype html><html lang="en"><title>The player</title><h1>The player</h1>'}


def write_course(root: Path) -> Path:
    """Write the tree, and return its root."""
    files = {
        "pyproject.toml": "",
        "README.md": GUIDE,
        "minigrad/one.py": MODULE,
        "minigrad/nn/__init__.py": "from .layer import Layer\n",
        "minigrad/nn/layer.py": LAYER,
        "tests/test_one.py": '"""A law."""\n\n\ndef test_one():\n    assert True\n',
        "lessons/README.md": README,
        "lessons/pictures/proof.svg": PROOF,
        "lessons/assignments/README.md": "# Assignments\n\nThey are graded.\n",
        "lessons/teaching/syllabus.md": "# Syllabus\n\nWeek one.\n",
    }
    for folder, title in (("01_first", "First"), ("05_second", "Second")):
        here = f"lessons/{folder}"
        text = LESSON.format(folder=folder, number=folder[:2], title=title, long="wide" * 40)
        files |= {f"{here}/lesson.py": text, f"{here}/helper.py": "NUMBER = 1\n"}
        files |= {f"{here}/questions.py": QUESTIONS, f"{here}/answers.py": ANSWERS}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root
