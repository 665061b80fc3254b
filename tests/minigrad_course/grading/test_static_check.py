"""Laws of lessons/minigrad_course/grading/static_check.py: nothing dangerous is reached by what a
submission may say, and who does as asked is not refused.
"""

import builtins
import collections
import contextlib
import ctypes
import dataclasses
import enum
import functools
import importlib
import io
import operator
import random
import types
import typing
import warnings
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from minigrad_course.grading import static_check
from minigrad_course.grading.assignment import find_assignments
from minigrad_course.grading.static_check import (
    ALLOWED,
    BUILTINS,
    REFUSED,
    check,
    check_in_process,
    is_allowed,
)

from tests.bugs.mutant import mutant

ASSIGNMENTS = {one.name.partition("_")[0]: one for one in find_assignments()}
SOLVED = Path(__file__).parents[2] / "assignments"
NP = "import numpy as np\n"


# What can be reached


def plain_objects():
    """An object of every kind that a submission makes by what it may say."""

    def generator():
        yield

    async def coroutine():
        pass

    @contextlib.contextmanager
    def manager():
        yield

    class Plain:
        @property
        def value(self):
            return 1

        @functools.cached_property
        def cached_value(self):
            return 1

    @dataclasses.dataclass
    class Record:
        x: int = 0

    Member, Pair = enum.Enum("Member", ["A"]), typing.NamedTuple("Pair", [("a", int)])
    error = ZeroDivisionError("x")
    running = coroutine()
    running.close()
    x = np.zeros((2, 3))
    return [
        *(
            generator,
            generator(),
            running,
            manager,
            manager(),
            Plain,
            Plain(),
            Plain.value,
            Plain.cached_value,
            Plain().value,
        ),
        *(
            Record,
            Record(),
            Member,
            Member.A,
            Pair,
            Pair(1),
            error,
            AttributeError(),
            ImportError(),
            OSError(1, ""),
        ),
        *(
            x,
            x.T,
            x.flat,
            x.data,
            x.dtype,
            x[0, 0],
            np.array([None]),
            np.array("a"),
            np.datetime64("now"),
            x.flags,
        ),
        *(
            np.dtype([("a", int)]),
            np.nditer(x),
            np.ndindex(2),
            np.ndenumerate(x),
            np.vectorize(len),
            np.poly1d([1]),
        ),
        *(
            np.frompyfunc(len, 1, 1),
            np.errstate(),
            np.broadcast(x),
            np.iinfo(int),
            np.finfo(float),
            np.r_,
            np.add,
        ),
        *(np.random.default_rng(0), np.random.RandomState(0), np.random.default_rng(0).bit_generator),
        *(
            functools.partial(len),
            functools.lru_cache(len),
            functools.cmp_to_key(lambda a, b: 0),
            random.Random(0),
        ),
        *(typing.Optional["int"], typing.Union["int"], typing.TypeVar("T"), list[int], int | str),
        *(
            contextlib.suppress(KeyError),
            contextlib.closing(generator()),
            contextlib.nullcontext(),
            operator.itemgetter(0),
        ),
        *(
            iter([]),
            iter({}),
            {}.items(),
            range(3),
            slice(1),
            zip(),
            map(len, []),
            enumerate([]),
            b"",
            "",
            1,
            1.0,
            1j,
        ),
        *(warnings.warn, super(Plain, Plain()), print, Plain().__init__, [].append, object(), lambda: 0),
    ]


def allowed_objects():
    """What is allowed to be taken from every module, what starters import, and Python's own."""
    for module, names in ALLOWED.items():
        value = importlib.import_module(module)
        for name in dir(value) if names == ["*"] else names:
            whole = f"{module}.{name}"  # np.ndarray is compared with, and nothing more
            if is_allowed(module, name) and whole not in {*ALLOWED, "numpy.ndarray"} and hasattr(value, name):
                yield f"{module}.{name}", getattr(value, name)
    for assignment in ASSIGNMENTS.values():
        for _, module, name in starter_imports(assignment):
            yield f"{module}.{name}", getattr(importlib.import_module(module), name)
    for name in BUILTINS - {"__name__", "Ellipsis", "False", "None", "True"}:
        yield name, getattr(builtins, name)


def starter_imports(assignment):
    tree = static_check.ast.parse(assignment.starter.read_text(encoding="utf-8"))
    for node in static_check.ast.walk(tree):
        for module, name, *_ in static_check.imports(node):
            if name is not None:
                yield assignment.name, module, name


SYSTEM = """os posix sys subprocess _posixsubprocess importlib _io io gc ctypes _ctypes socket _socket marshal
pickle _pickle mmap signal _signal resource code pdb"""
LEADS = [
    *(
        getattr(builtins, name)
        for name in REFUSED - {"memoryview"}  # what it is of, .obj, is not said
        if name.islower() and callable(getattr(builtins, name, None))
    ),
    *(
        np.ndarray,
        np.load,
        np.save,
        np.lib.stride_tricks.as_strided,
        operator.attrgetter,
        operator.methodcaller,
    ),
    *(typing.get_type_hints, dataclasses.field, dataclasses.make_dataclass, functools.singledispatch),
]
ENOUGH = 50  # objects of a kind that are looked into


def dangerous(x):
    """Whether an object leads out of what a submission is given: a module first of all."""
    if isinstance(
        x,
        types.ModuleType
        | types.FrameType
        | types.CodeType
        | types.TracebackType
        | type(ctypes.pythonapi)
        | io.IOBase,
    ):
        return True
    if isinstance(x, type) and issubclass(
        x, type | np.ndarray | ctypes._SimpleCData | io.IOBase | dataclasses.Field
    ):
        return True
    if isinstance(x, dataclasses.Field) or (type(x) is dict and "__builtins__" in x):
        return True
    home = getattr(x, "__module__", None)
    if (
        callable(x)
        and isinstance(home, str)
        and home.split(".")[0] in SYSTEM.split()
        and not isinstance(x, type)
    ):
        return True
    return any(x is one for one in LEADS)


def reached(roots, steps, hidden):
    """``name: object`` of what is dangerous among all that so many attributes or elements lead to."""
    objects, dangers, kinds = {}, {}, collections.Counter()
    front = list(roots)
    for step in range(steps + 1):
        following = []
        for name, x in front:
            if id(x) in objects:
                continue
            objects[id(x)] = x  # held, so that no other gets its number
            if dangerous(x):
                dangers[name] = x
                continue
            kinds[type(x)] += 1
            if kinds[type(x)] > ENOUGH and not isinstance(x, type | dict | types.FunctionType):
                continue  # another array, or another bound method: they lead to the same
            if step < steps and not isinstance(x, int | float | str | bytes | complex | None):
                following += led_to(name, x, hidden)
        front = following
    return dangers, len(objects)


def led_to(name, x, hidden):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in dir(x):
            if hidden(key):
                continue
            with contextlib.suppress(Exception):
                yield f"{name}.{key}", getattr(x, key)
    if isinstance(x, tuple | list | set | frozenset):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(x))
    elif isinstance(x, dict | types.MappingProxyType):
        yield from ((f"{name}[{key!r}]", item) for key, item in x.items())


class Every(set):
    """A set that holds whatever one asks for."""

    def __contains__(self, _):
        return True


def hidden_by(module):
    table = module.symtable.symtable("", "", "exec")
    reader = module.Checker(module.ast.parse(""), table, set())
    reader.own_names = Every()  # a program can give any name to something of its own
    return lambda key: any(reader.check_attribute_name(key))


def nothing_dangerous_is_reached(module, steps=5):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        roots = [*allowed_objects(), *((type(x).__name__, x) for x in plain_objects())]
    dangers, count = reached(roots, steps, hidden_by(module))
    assert not dangers, dangers
    assert count > 2000


def test_nothing_dangerous_is_reached_by_what_may_be_said():
    nothing_dangerous_is_reached(static_check)


BUGS = {
    "attributes of compiled functions": ('BEHIND = {*LISTS["behind"].split()}', "BEHIND = {'gi_frame'}"),
    "names of Python's own": ("or (dunder(name) and name not in METHODS)", ""),
}


@pytest.mark.parametrize("bug", BUGS)
def test_what_is_forgotten_is_reached(bug):
    with pytest.raises(AssertionError):
        nothing_dangerous_is_reached(mutant("minigrad_course.grading.static_check", BUGS[bug]), steps=2)


# What is refused

WAYS = [  # to take an attribute of a module
    "import {module} as m\nx = m.{name}\n",
    "import {module}\nx = {module}.{name}\n",
    "from {module} import {name}\n",
    "from {module} import {name} as fine\n",
    "def f():\n    import {module} as m\n    return lambda: m.{name}\n",
    "import {module} as m\nx = getattr(m, '{name}')\n",
    "import {module} as m\nn = m\nx = n.{name}\n",
    "import {module} as m\nclass A:\n    kept = m\nx = A.kept.{name}\n",
    "class A:\n    import {module} as m\nx = A.m.{name}\n",
    "import {module} as m\n(lambda m=m: m.{name})()\n",
    "import {module} as m\nmatch m:\n    case object({name}=x): pass\n",
    "import {module} as m\nx = [m][0].{name}\n",
    "import {module} as m\ndel m.{name}\n",
    "import {module} as m\nm.{name} = len\n",
    "import {module} as m\nfor m.{name} in [1]: pass\n",
    "import {module} as m\nm.{name} += 1\n",
    "import {module} as m\nprint(f'{{m.{name}}}')\n",
    "import {module} as m\nprint('{{0.{name}}}'.format(m))\n",
    "from {module} import *\nx = {name}\n",
    "import {module}.{name} as m\n",
    "def f(x: {module}.{name}): pass\nimport {module}\n",
]
OUTSIDE = [
    "os",
    "sys",
    "gc",
    "ctypes",
    "subprocess",
    "builtins",
    "importlib",
    "socket",
    "logging",
    "inspect",
    "io",
]


@st.composite
def takings(draw):
    """A program that takes from a module what it may not have."""
    module = draw(st.sampled_from([*ALLOWED, *OUTSIDE]).filter(lambda name: name != "__future__"))
    names = [n for n in dir(importlib.import_module(module)) if not is_allowed(module, n)]
    return draw(st.sampled_from(WAYS)).format(module=module, name=draw(st.sampled_from(names)))


@given(takings())
def test_what_a_module_does_not_offer_is_not_taken_from_it(text):
    assert check(text, "") is not None


PLACES = [
    "{}",
    "x = {}",
    "def f():\n    return {}",
    "f({})",
    "[{}]",
    "@{}\ndef f(): pass",
    "class A({}): pass",
]
PLACES += ["print(f'{{{}}}')", "lambda: {}", "[{} for x in y]", "class A:\n    x = {}", "def f(x={}): pass"]


@given(st.sampled_from(sorted(REFUSED)), st.sampled_from(PLACES))
def test_a_built_in_that_leads_out_is_not_used(name, place):
    assert check(place.format(name), "") is not None


NOT_SAID = {  # what is written, and words of what is said to it
    "a module as a value": ("m = np", "uses the module np as a value"),
    "a module of a module": ("np.random", "uses the module numpy.random as a value"),
    "the class of an object": ("x.__class__", "uses .__class__"),
    "format": ("'{0.a}'.format(1)", "write an f-string"),
    "format as a function": ("'{}'.format", "write an f-string"),
    "format by a pattern": ("match '{0.a}':\n case str(format=f): f(1)", "write an f-string"),
    "format in a format": ("'{:{0.a}}'.format(1)", "write an f-string"),
    "a name that is made": ("getattr(1, '__cl' + 'ass__')", "with a name that only shows when it runs"),
    "arguments that are made": ("getattr(*a, 'x')", "with a name that only shows when it runs"),
    "getattr as a value": ("map(getattr, a, b)", "uses getattr other than to call it"),
    "compatible characters": ("ｅｖａｌ('1')", "line 2 uses eval"),
    "compatible characters of an attribute": ("x.ｃtypes", "line 2 uses .ctypes"),
    "an escaped name": ("getattr(x, '\\x5f_class_\\x5f')", "uses .__class__"),
    "making a class": ("type(int)('C', (), {})", "uses type other than"),
    "a metaclass": ("class M(type): pass", "uses type other than"),
    "a metaclass as a keyword": ("class A(metaclass=B): pass", "metaclass="),
    "a metaclass of typing's": ("import typing\nclass A(typing.Type): pass", "takes typing.Type"),
    "a comparison that lies in wait": ("type(int) == E()", "uses type other than"),
    "a comparison with several": ("type(x) in (G(), np.ndarray)", "uses type other than"),
    "an array over a buffer": ("np.ndarray((2,), object, bytearray(16))", "uses np.ndarray other than"),
    "a kind of array": ("class A(np.ndarray): pass", "uses np.ndarray other than"),
    "an annotation that lies in wait": ("def f(x: G()[np.ndarray]): pass", "uses np.ndarray other than"),
    "a union that lies in wait": ("isinstance(x, np.ndarray | G())", "uses np.ndarray other than"),
    "isinstance that is not Python's": ("isinstance = f\nisinstance(x, np.ndarray)", "uses np.ndarray"),
    "a module's attributes": ("def __getattr__(name): pass", "uses __getattr__"),
    "memory of others": ("class A:\n    __array_interface__ = {}", "uses __array_interface__"),
    "memory of others by a text": ("f('__array_interface__')", "writes __array_interface__"),
    "an attribute that is another's": ("comm._channel", "uses ._channel, which is no name of its own"),
    "an attribute that is another's, by a pattern": ("match c:\n case C(_channel=c): pass", "uses ._channel"),
    "a class's beginning": ("class A:\n    def __init_subclass__(cls): pass", "uses __init_subclass__"),
    "what a class calls its parts": ("class A:\n    def __set_name__(self, o, n): pass", "__set_name__"),
    "frames by a pattern": ("match x:\n case A(gi_frame=f): pass", "uses .gi_frame"),
    "frames of a traceback": ("try: f()\nexcept E as e: e.__traceback__.tb_frame", "uses ."),
    "names of a compiled function": ("np.random.default_rng.func_globals", "uses .func_globals"),
    "Python's names by an exception": ("try: f()\nexcept E as __builtins__: pass", "uses __builtins__"),
    "Python's names by a global": ("global __builtins__", "uses __builtins__"),
    "Python's names by a walrus": ("(__builtins__ := 1)", "uses __builtins__"),
    "Python's names by a parameter": ("def f(__builtins__): pass", "uses __builtins__"),
    "the module of a failed look-up": ("try: np.pi\nexcept AttributeError as e: e.obj", "uses .obj"),
    "a text that is evaluated": (
        "from typing import Union\nUnion['f()']._evaluate({}, {})",
        "uses ._evaluate",
    ),
    "fields with other names": ("from dataclasses import field", "takes dataclasses.field"),
    "annotations that are evaluated": (
        "import functools\nfunctools.singledispatch",
        "takes functools.singled",
    ),
    "a reduction": ("class A:\n    def __reduce__(self): return f, ()", "uses __reduce__"),
    "a file in a function": ("def f():\n    return open('f')", "line 3 uses open"),
    "a function of that name": ("def open(): pass\nopen()", "uses open"),
    "memory through strides": ("np.lib.stride_tricks.as_strided(x)", "takes numpy.lib.stride_tricks.as_str"),
    "a file of an array": ("x.tofile('f')", "uses .tofile"),
    "the library": (
        "import backends.comm.collectives as c",
        "imports backends.comm.collectives; import what",
    ),
    "the library's sum": ("from backends.comm import allreduce", "imports backends.comm; import what"),
    "beside itself": ("from . import x", "imports .; import what"),
    "a null byte": ("x\0", "is not Python"),
    "an open bracket": ("f(", "line 2 is not Python: '(' was never closed\n    f(\n     ^"),
    "a return outside": ("return 1", "line 2 is not Python: 'return' outside function"),
}


WAYS_TO_THE_LIBRARY = [  # and to what grades
    "from backends.comm.collectives import ring_allreduce",
    "from backends.comm.collectives.ring import pass_around as mine",
    "import backends.comm.collectives.ring as r",
    "from backends.comm import *",
    "from backends.comm import allreduce",
    "import backends.comm as c\ndef f(): return c.allreduce",
    "import backends.comm\nx = backends.comm.collectives.ring",
    "import backends.comm as c\nx = getattr(c, 'allreduce')",
    "import backends.comm as c\nname = 'all' + 'reduce'\nx = getattr(c, name)",
    "import backends.comm as c\nx = vars(c)['allreduce']",
    "import backends.comm as c\nx = c.__dict__",
    "from backends.laws import integers",
    "import importlib\nx = importlib.import_module('backends.laws')",
    "from importlib import import_module as i\nx = i('backends' + '.laws')",
    "x = __import__('backends.laws')",
    "import sys\nx = sys.modules['backends.laws']",
    "import sys\nx = sys.modules.get('backends.laws')",
    "from sys import modules",
    "import runpy\nrunpy.run_path('x.py')",
    "exec('import os')",
    "from lessons.assignments.a2_allreduce import answers",
    "def f():\n    if 1:\n        from backends.laws import integers",
    "import gc",
    "from minigrad_course.grading import Wrong",
    "from backends.comm.differentiable import all_reduce",
    "import backends.comm.differentiable as a\nx = a.fan_out",
    "import tasks",
    "import threading\nthreading.setprofile(print)",
    "from signal import alarm",
    "x = [].append.__self__",
    "import inspect\nx = inspect.currentframe()",
    "from backends.laws import trains_like_serial",
    "import threading\nthreading.Thread.run = lambda self: None",
    "from backends import laws\nlaws.trains_like_serial.__code__ = (lambda: 0).__code__",
    "import sys\nlook = getattr(sys, '_get' + 'frame')",
    "import logging\nlogging.currentframe().f_back",
    "from concurrent.futures import ThreadPoolExecutor",
    "import answers",
    "from numpy import ctypeslib\nctypeslib.ctypes.pythonapi['system']",
]


def refuses(module):
    """All of these texts are refused."""
    said = [NP + text for text, _ in NOT_SAID.values()] + WAYS_TO_THE_LIBRARY
    assert [text for text in said if module.check(text, NP) is None] == []


def test_the_library_and_the_grader_are_not_imported():
    refuses(static_check)


TEXT_BUGS = {
    "modules as values": ("elif name in self.modules and isinstance(node.ctx, ast.Load):", "elif False:"),
    "modules of modules as values": ("elif whole in ALLOWED and not", "elif False and not"),
    "what is not offered": ("if not is_allowed(module, node.attr):", "if False:"),
    "what is not offered by name": ("elif name is not None and not is_allowed(module, name):", "elif False:"),
    "modules of the library": ("elif module not in ALLOWED:", "elif False:"),
    "attributes of patterns": ("for name in node.kwd_attrs:", "for name in ():"),
    "texts as names": ("text = literal(node.args[1])", "text = 'x'"),
    "getattr as a value": (
        "if not (isinstance(parent, ast.Call) and parent.func is node and len",
        "if False and (len",
    ),
    "identifiers": ("for name in identifiers(node):", "for name in ():"),
    "built-in names": ("elif name in REFUSED and", "elif False and"),
    "names bound elsewhere": (
        "if s.is_referenced() and (s.is_global() or block",
        "if s.is_referenced() and (block",
    ),
    "formats": ("if name in FORMATS:", "if False:"),
    "fields of formats": ("return not any(", "return True or any("),
    "type as a function": (
        "if not (is_plain_call(parent, node) and self.is_only_inspected(parent)):",
        "if False:",
    ),
    "texts that are names of Python's": (
        "case ast.Constant(value=str(text)) if",
        "case ast.Constant(value=str(text)) if False and",
    ),
    "attributes that are another's": ("elif self.is_private(name):", "elif False:"),
    "what compares": ("return same or all(", "return True or all("),
    "unions": ("if isinstance(parent, ast.BinOp) and not", "if False and not"),
    "what is subscripted": ("if isinstance(parent, ast.Subscript) and not", "if False and not"),
    "another isinstance": ("return second is child and name not in self.bound", "return second is child"),
    "keywords of classes": ("case ast.ClassDef() if node.keywords:", "case ast.ClassDef() if False:"),
    "arrays over buffers": ('elif whole == "numpy.ndarray" and', "elif False and"),
}


@pytest.mark.parametrize("bug", TEXT_BUGS)
def test_bugs_in_reading_are_caught(bug):
    with pytest.raises(AssertionError):
        refuses(mutant("minigrad_course.grading.static_check", TEXT_BUGS[bug]))


@pytest.mark.parametrize("what", NOT_SAID)
def test_what_is_refused_is_told_once_with_its_line(what):
    text, words = NOT_SAID[what]
    refusals = check(NP + text, NP)
    assert refusals is not None and words in refusals and refusals.startswith(("line ", "the file "))


HONEST = [
    "type(x) is np.ndarray",
    "type(x) == np.ndarray and type(x) in (list, tuple)",
    "isinstance(x, (list, np.ndarray)) or isinstance(x, np.ndarray | float)",
    "print(type(x).__name__, '{} {:>5}'.format(1, 2), f'{x!r}')",
    "def f(input, open, dir):\n    return [input + id(dir) for open in open]",
    "def f(x: np.ndarray | None, y: 'np.ndarray') -> list[np.ndarray]:\n    return [x]",
    "getattr(x, 'shape', None), hasattr(x, 'rank'), setattr(x, 'y', 1)",
    "np.linalg.norm(x), np.random.default_rng(1).normal(), np.add.at(x, 0, 1), np.fft.rfft(x), np.r_[1, 2]",
    "np.lib.stride_tricks.sliding_window_view(x, 3)",
    "import math, itertools, random as r\nr.seed(0), math.pi",
    "from collections.abc import Iterable\nfrom functools import partial",
    "import collections\nP = collections.namedtuple('P', 'a')\nP(1)._replace(a=2)",
    "class A:\n    '''An A.'''\n    def __init__(self):\n        super().__init__()\n        self.__x = 1",
    "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass D:\n    x: int = 0",
    "np.testing.assert_allclose(x, y)",
    "if __name__ == '__main__':\n    print(__name__)",
    "try:\n    f()\nexcept (ValueError, MemoryError) as e:\n    raise RuntimeError(str(e)) from e",
    "x = np.zeros(3); x[0] += 1; x.T.sum(); del x",
    "class A:\n    __slots__ = ('_y',)\n    _z = 1\n    def _f(self):\n        self._x = self._y + self._z",
    "print('____', '__', 'a__b__')",
    "match x:\n    case {'a': [1, *rest]} | int(rest): pass",
]


@pytest.mark.parametrize("text", HONEST)
def test_what_an_honest_program_says_is_not_refused(text):
    assert check(NP + text, "") is None


@pytest.mark.parametrize("short", ASSIGNMENTS)
def test_starters_and_solutions_are_not_refused(short):
    starter = ASSIGNMENTS[short].starter.read_text(encoding="utf-8")
    assert check_in_process(starter, starter) is None
    assert check_in_process((SOLVED / f"solved_{short}.py").read_text(encoding="utf-8"), starter) is None
    assert check(f"{starter}\nimport os\n", starter) is not None


@pytest.mark.parametrize(
    ("first", "repeated", "last"),
    [("", "(", ""), ("", "-", "1"), ("a", ".b", ""), ("1", "+1", ""), ("", "not ", "x"), ("", "x" * 100, "")],
)
def test_what_is_too_much_for_the_parser_is_refused_and_the_grader_goes_on(first, repeated, last):
    refusals = check_in_process(first + repeated * 10**5 + last, "")
    assert refusals and len(refusals) < 200


def test_the_text_is_read_as_it_will_be_run():
    """A declared encoding changes nothing: it is a text already."""
    assert check("# -*- coding: utf-7 -*-\nx = '+AGUAdgBhAGw-'\n", "") is None
    assert check("# -*- coding: rot13 -*-\nimport os\n", "") is not None
