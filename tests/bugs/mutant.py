"""A bug is a line of the real source, changed: it stays a copy of what is shipped, with one thing wrong."""

import importlib
import inspect
import types

from minigrad import tape


def mutant(name: str, *changes: tuple[str, str]) -> types.ModuleType:
    """A copy of the module with each (right, wrong) piece of its text replaced.

    Raises LookupError where a piece is not there exactly once: the source has moved on. Other modules go on
    with the real one; where they are to meet the bug too, take ``bug.Bug``.
    """
    real = importlib.import_module(name)
    text = inspect.getsource(real)
    for right, wrong in changes:
        if text.count(right) != 1:
            raise LookupError(f"{name} holds {text.count(right)} times {right!r}: move the bug along")
        text = text.replace(right, wrong)
    module = types.ModuleType(name)
    module.__dict__.update(__package__=real.__package__, __file__=real.__file__)
    exec(compile(text, f"{name} (mutant)", "exec"), module.__dict__)
    if name == tape.__name__:
        module.__dict__["current_tape"] = tape.current_tape  # the one that ops look at
    return module
