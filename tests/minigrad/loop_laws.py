"""Laws of minigrad/loops.py: compiled loops end with the module that defines them."""

import gc
import weakref

import numpy as np

COPY = """
def copy(x, y):
    for i in range(len(x)):
        y[i] = x[i]
"""


def end_with_their_module(compiled):
    """Nothing is left of loops whose module nothing refers to."""
    module = {"__name__": "a module", "compiled": compiled}
    exec(compile(f"@compiled{COPY}", "no file", "exec"), module)
    module["copy"](np.ones(3), np.ones(3))
    loop = weakref.ref(module["copy"])
    del module
    gc.collect()
    assert loop() is None, "machine code outlives its module"
