"""Modules hold parameters: layers, and layers made of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np

from .bfloat16 import rounded
from .device import Array, array_module, on_gpu, to_device, to_host
from .forward_pass import current_observer, current_path
from .keyword_settings import check_positions
from .model_file import ModelFile, read_model
from .tensor import Parameter, Tensor
from .tensor_base import as_array


class Module:
    """Holds parameters: attributes that are Parameters, arrays, or modules.

    Modules may also stand in lists, tuples and dicts, and these in one another: ``self.heads["en"][0]`` is
    called "heads.en.0". Subclasses write ``forward``. Arrays that are no parameters (running statistics) are
    part of the state. A new module is in training mode: ``train`` and ``eval`` set the mode, which decides
    what dropout and batch-norm do.
    """

    training = True
    token_wise: ClassVar[bool] = False  # it acts on each token (B, S, ...) alone, or asks ``current_tokens``
    written: ClassVar[tuple[Any, ...]] = ()  # its forward and __call__, as the class was written

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Raises TypeError where settings are passed by position, or to a class without any."""
        if cls.__init__ is object.__init__ and (arguments or settings):
            raise TypeError(f"{cls.__name__} takes no arguments; write {cls.__name__}()")
        check_positions(cls.__init__, cls.__name__, len(arguments), unseen=1)
        return super().__new__(cls)

    @property
    def is_whole(self) -> bool:
        """Whether this process holds all elements of the arrays that are this module's own."""
        return True

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a forward method")

    def __call__(self, *inputs: Any, **keywords: Any) -> Tensor:
        """What ``forward`` gives for any number of inputs, ``attention(q, k, v, mask=...)``."""
        try:
            if (observer := current_observer()) is not None:
                y = observer.call(self, self.forward, inputs, keywords)
            elif len(inputs) == 1 and not keywords:  # the quick call of most layers
                y = self.forward(inputs[0])
            else:
                y = self.forward(*inputs, **keywords)
        except (ValueError, TypeError) as error:
            if not self.children():  # the innermost layer signs the error
                error.args = (f"in {self!r}: {error}",)
            raise
        if y is None:
            raise TypeError(f"the forward of {type(self).__name__} returned None; end it with return")
        return y

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.written = cls.forward, cls.__call__
        if "forward" in cls.__dict__ or "__call__" in cls.__dict__:  # an inherited one says nothing of it
            cls.token_wise = cls.__dict__.get("token_wise", False)

    def unchanged_type(self) -> type[Module] | None:
        """The class of the layer; None where a spy or a counter has replaced ``forward`` or ``__call__``."""
        kind = type(self)
        written = kind.written == (kind.forward, kind.__call__)
        return kind if written and not self.has_own_forward() else None

    def has_own_forward(self) -> bool:
        """Whether this object has a forward instead of its class's, as where a spy or a counter was put."""
        return self.forward != MethodType(type(self).forward, self)

    def computes_as(self, kind: type[Module]) -> bool:
        """Whether its forward is that of the class ``kind``, so that a form of this class may replace it."""
        return isinstance(self, kind) and type(self).forward is kind.forward and not self.has_own_forward()

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """How many of the layers that follow in a Sequential this one can compute together with itself."""
        return 0

    def forward_with(self, x: Any, following: Sequence[Module]) -> Tensor | None:
        """What the ``following`` layers, all ``in_one_pass``, give one by one; None where that is faster."""

    def forward_in_sequence(self, x: Any, following: Sequence[Module]) -> tuple[Tensor, int]:
        """The output of the ``following`` layers ``in_one_pass``, and their number; or this layer's, and 0.

        It raises no errors but those of this layer.
        """
        if n := self.in_one_pass(following):
            try:
                if (y := self.forward_with(x, following[:n])) is not None:
                    return y, n
            except (ValueError, TypeError):
                pass  # the layer where it comes from raises it again
        return self(x), 0

    def children(self) -> dict[str, Module]:
        """The modules directly inside, by attribute name, then by position or key.

        Raises TypeError for a Parameter that only a list, tuple or dict holds, and for modules in a set;
        ValueError for two modules of one name, as in ``{1: a, "1": b}``.
        """
        by_name: dict[str, Module] = {}
        for attribute, value in vars(self).items():
            for name, inside in contents(attribute, value) if isinstance(value, CONTAINERS) else ():
                if isinstance(inside, Module):
                    if name in by_name:
                        raise ValueError(f"{type(self).__name__} has two modules called {name}; rename a key")
                    by_name[name] = inside
                elif inside is not value and not any(inside is own for own in vars(self).values()):
                    raise TypeError(
                        f"{type(self).__name__}.{name} is a Parameter that an optimizer would not find; "
                        "make it an attribute of its own, or put it into a Module"
                    )
        return by_name

    def replace(self, child: str, module: Module) -> None:
        """Put ``module`` in the place of the one that ``children`` calls ``child``."""
        for attribute, value in list(vars(self).items()):
            if child == attribute or child.startswith(f"{attribute}."):
                setattr(self, attribute, with_replacement(attribute, value, child, module))

    def modules(self) -> Iterator[Module]:
        """This module and all inside, outermost first; a module in two places appears twice."""
        yield self
        for child in self.children().values():
            yield from child.modules()

    def train(self, mode: bool = True) -> Self:
        """Put this module and all inside into training mode, or, with ``mode=False``, into eval mode."""
        self.training = mode
        for child in self.children().values():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Put this module and all inside into eval mode."""
        return self.train(False)

    def register_buffer(self, name: str, array: Any) -> None:
        """Make ``array`` the attribute ``name``, as an assignment does: state that is no parameter.

        It is saved and loaded, and converted and moved by ``to``. A forward changes it in place. Where ranks
        share the batch, floats that a forward pass in training mode wrote become, after the step, the mean
        over the ranks by their samples: right for what moves by a mean over samples. Others stay as they are,
        and integers stay those of each rank.
        Raises TypeError for what is no array, ValueError for a name that is none or is taken.
        """
        if not isinstance(array, np.ndarray) and not on_gpu(array):
            raise TypeError(f"the buffer {name} is {type(array).__name__}; make it an array: np.array(...)")
        if not name.isidentifier() or hasattr(self, name):
            raise ValueError(f"a buffer cannot be called {name!r}, which is no name or taken; choose another")
        setattr(self, name, array)

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        """(name, owner, attribute) of every parameter and state array, outermost first."""
        for name, value in vars(self).items():
            if isinstance(value, (Parameter, np.ndarray)) or on_gpu(value):
                yield prefix + name, self, name
        for name, child in self.children().items():
            yield from child.named_arrays(f"{prefix}{name}.")

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Every module inside with its dotted name, outermost first."""
        for name, child in self.children().items():
            yield prefix + name, child
            yield from child.named_modules(f"{prefix}{name}.")

    def tied_parameters(self) -> list[list[str]]:
        """The names of each parameter or state array that has several."""
        names: dict[int, list[str]] = {}
        for name, owner, attribute in self.named_arrays():
            names.setdefault(id(getattr(owner, attribute)), []).append(name)
        return [several for several in names.values() if len(several) > 1]

    def named_parameters(self) -> NamedParameters:
        """Every parameter by its dotted name; one that is used twice stands under its first name.

        It is a mapping, and a loop over it is one over pairs of name and parameter.
        """
        first: dict[int, tuple[str, Parameter]] = {}
        for name, owner, attribute in self.named_arrays():
            value = getattr(owner, attribute)
            if isinstance(value, Parameter):
                first.setdefault(id(value), (name, value))
        return NamedParameters(first.values())

    def parameters(self) -> list[Parameter]:
        """Every parameter once."""
        return list(self.named_parameters().values())

    def zero_grad(self) -> None:
        """Forget all gradients, so that the next backward starts afresh."""
        for parameter in self.parameters():
            parameter.grad = None

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies, on the host, of all parameters and state arrays by dotted name.

        Raises RuntimeError where other ranks hold a part of the model.
        """
        if not all(module.is_whole for module in self.modules()):
            raise RuntimeError(
                "this rank holds only a part of the model; take backend.state.full_parameters(model) | "
                "backend.state.full_state(model) on every rank, the state of the whole model, or wait for "
                "backend.finalize(model) where that makes the model whole (sharded weights)"
            )
        values = ((name, getattr(owner, attribute)) for name, owner, attribute in self.named_arrays())
        return {name: to_host(v.data if isinstance(v, Parameter) else v).copy() for name, v in values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy ``state`` into the parameters and state arrays, in place; of several names the first will do.

        Its values may be tensors of PyTorch on the CPU; the ``num_batches_tracked`` of PyTorch's batch-norms
        is left out. Raises KeyError where names are missing or unknown, ValueError where a shape differs, a
        value is no number of that kind (text, or complex for real) or too large, or an array cannot be
        written because weights are sharded. The model is then unchanged.
        """
        here = {name: getattr(owner, attribute) for name, owner, attribute in self.named_arrays()}
        ties = {name: first for first, *others in self.tied_parameters() for name in others}
        state = {name: state[first] for name, first in ties.items() if first in state} | {**state}
        if missing := sorted(here.keys() - state.keys()):
            raise KeyError(f"the state lacks {', '.join(missing)}; it was saved from a different model")
        unknown = sorted(n for n in state.keys() - here.keys() if n.split(".")[-1] != "num_batches_tracked")
        if unknown:
            raise KeyError(
                f"the model has no {', '.join(unknown)}; the state was saved from a different model"
            )
        arrays = {name: v.data if isinstance(v, Parameter) else v for name, v in here.items()}
        values = {name: array_like(name, state[name], array) for name, array in arrays.items()}
        for name, array in arrays.items():
            array[...] = values[name]

    def save(self, file: str | Path, **notes: str) -> None:
        """Write all parameters and state arrays to a safetensors file, with ``notes`` about them.

        Raises OSError where the file cannot be written; it is then as it was. Otherwise as ``state_dict``.
        """
        ModelFile(self.state_dict(), notes).write(Path(file))

    def load(self, file: str | Path) -> Self:
        """Copy the arrays of a file that ``save`` wrote into this model, in place.

        Raises OSError or ValueError where the file cannot be read; otherwise as ``load_state_dict``.
        """
        self.load_state_dict(read_model(Path(file)).arrays)
        return self

    def to(self, *, dtype: Any = None, device: str | None = None) -> Module:
        """Convert floating parameters and state arrays to ``dtype`` and move them to ``device``, in place.

        State that is no parameter, such as running statistics, has at least 32 bits: small steps would be
        lost in 16. The dtype "bfloat16" is float32 memory with rounded parameters: see ``bfloat16``.
        """
        for _, owner, attribute in list(self.named_arrays()):
            value = getattr(owner, attribute)
            array = value.data if isinstance(value, Parameter) else value
            if dtype is not None and array.dtype.kind == "f":
                array = converted(array, dtype, isinstance(value, Parameter))
            if device is not None:
                array = to_device(array, device)
            if isinstance(value, Parameter):
                value.data, value.grad = array, None
            else:
                setattr(owner, attribute, array)
        return self

    def __repr__(self) -> str:
        """A layer in one line; a model with a line for each layer, the shapes of its parameters and a count.

        >>> from minigrad import nn
        >>> rng = np.random.default_rng(0)
        >>> nn.Sequential(nn.Flatten(), nn.Linear(784, 10, rng=rng))
        Sequential(
          (0): Flatten()
          (1): Linear(784, 10)  # weight (10, 784), bias (10,)
        )  # 7,850 parameters
        """
        if not self.children():
            return self.in_one_line()
        lines = [f"{type(self).__name__}({self.shapes()}"]
        for name, child in self.children().items():
            shapes = "" if child.children() else child.shapes()
            lines.append(f"  ({name}): {child!r}{shapes}".replace("\n", "\n  "))
        return "\n".join([*lines, f")  # {sum(p.size for p in self.parameters()):,} parameters"])

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: the layers, and their parameters with shapes and counts."""
        from .pictures.model_picture import model_picture

        return model_picture(self)

    def shapes(self) -> str:
        """The shapes of the parameters that are attributes of this module, as a comment."""
        own = {name: value.shape for name, value in vars(self).items() if isinstance(value, Parameter)}
        return "  # " + ", ".join(f"{name} {shape}" for name, shape in own.items()) if own else ""

    def in_one_line(self) -> str:
        """The class and its settings, as error messages name it."""
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """The settings, as they stand between the parentheses of ``in_one_line``."""
        return ", ".join(f"{name}={child.in_one_line()}" for name, child in self.children().items())


class NamedParameters(dict[str, Parameter]):
    """A dict of parameters by their dotted names, whose iterator gives pairs of name and parameter.

    So ``for name, p in model.named_parameters():`` is right, as in PyTorch; the names alone are ``keys()``.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())


@contextmanager
def evaluation_mode(*models: Module) -> Iterator[None]:
    """Inside the ``with`` the models are in eval mode; afterwards every module has the mode that it had."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes:  # outermost first, so that the last word is a module's own
            module.train(mode)


def array_like(name: str, value: Any, like: Array) -> Array:
    """A copy of ``value`` in the dtype of ``like``; raises ValueError where it cannot stand in its place."""
    xp = array_module(like)
    try:
        array = as_array(value)
    except (TypeError, ValueError, RuntimeError) as error:  # the last is PyTorch's
        raise ValueError(f"{name} is no array of numbers in the state: {error}") from None
    if array.shape != like.shape:
        raise ValueError(f"{name} has shape {like.shape}, the state {array.shape}; build the same model")
    if not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise ValueError(f"{name} has dtype {like.dtype}, the state {array.dtype}; convert it first")
    if xp is np and not like.flags.writeable:
        raise ValueError(
            f"{name} cannot be written: this rank does not hold it; load it before backend.place(model)"
        )
    try:
        with np.errstate(over="raise"):
            return xp.array(array, dtype=like.dtype)
    except FloatingPointError:
        raise ValueError(f"{name} has dtype {like.dtype}, which cannot hold the state's values") from None


def converted(array: Array, dtype: Any, is_parameter: bool) -> Array:
    """A copy of a parameter in ``dtype``, or of a state array, which has 32 bits or more."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return rounded(array.astype(np.float32)) if is_parameter else array.astype(np.float32)
    return array.astype(dtype if is_parameter else np.result_type(dtype, np.float32))


def contents(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The modules and Parameters in ``value``, with their names where it is called ``name``."""
    if isinstance(value, (Module, Parameter)):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, Module):
                yield f"{name}.{key}", item
            elif isinstance(item, CONTAINERS):
                yield from contents(f"{name}.{key}", item)
    elif isinstance(value, (set, frozenset)) and any(isinstance(x, (Module, Parameter)) for x in value):
        raise TypeError(f"{name} is a set, whose order differs between ranks; make it a list")


def with_replacement(name: str, value: Any, child: str, module: Module) -> Any:
    """``value``, called ``name``, with ``module`` in the place of ``child``; lists and dicts are changed."""
    if name == child:
        return module
    if isinstance(value, list):
        value[:] = [with_replacement(f"{name}.{i}", item, child, module) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        value.update({k: with_replacement(f"{name}.{k}", item, child, module) for k, item in value.items()})
    elif isinstance(value, tuple):
        items = [with_replacement(f"{name}.{i}", item, child, module) for i, item in enumerate(value)]
        return tuple(items) if type(value) is tuple else type(value)(*items)  # a named one
    return value


def way_to_layers(value: Any) -> str:
    """What stands in the place of a layer, and what to write instead."""
    if isinstance(value, list | tuple):
        return f"got a {type(value).__name__}; write Sequential(*layers)"
    if isinstance(value, type) and issubclass(value, Module):
        return f"got the class {value.__name__}; make a layer of it, {value.__name__}(...)"
    return f"got {type(value).__name__}; put it into the forward method of a Module"


def checked_modules(modules: Iterable[Any], rule: str) -> list[Module]:
    """A list of ``modules``; raises TypeError, which says the ``rule``, for what is none."""
    modules = list(modules)
    for module in modules:
        if not isinstance(module, Module):
            raise TypeError(f"{rule}, {way_to_layers(module)}")
    return modules


CONTAINERS = (Module, Parameter, list, tuple, dict, set, frozenset)


class ModuleList(Module):
    """Modules in a list that is a module, too; it computes nothing itself, and a forward calls them.

    ``self.blocks = nn.ModuleList(Block(rng) for _ in range(4))`` has parameters "blocks.0.weight" and so on,
    as PyTorch's. It has indices, slices, which are lists of modules again, ``append``, ``extend``, ``len``
    and loops. Raises TypeError for what is no module.
    """

    token_wise = True

    def __init__(self, modules: Iterable[Module] = ()):
        self.layers = []
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Put ``module`` at the end."""
        return self.extend([module])

    def extend(self, modules: Iterable[Module]) -> Self:
        """Put ``modules`` at the end, in their order."""
        self.layers += checked_modules(modules, "a list of modules has an item that is none")
        return self

    def children(self) -> dict[str, Module]:
        return {name.removeprefix("layers."): child for name, child in super().children().items()}

    def replace(self, child: str, module: Module) -> None:
        super().replace(f"layers.{child}", module)

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        raise NotImplementedError(
            f"a {type(self).__name__} computes nothing; call its modules in a forward, or take a Sequential"
        )

    def __getitem__(self, i: int | slice) -> Any:
        return self.of_slice(self.layers[i]) if isinstance(i, slice) else self.layers[i]

    def of_slice(self, layers: list[Module]) -> Module:
        """What a slice with these ``layers`` is."""
        return ModuleList(layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def describe(self) -> str:
        return ", ".join(layer.in_one_line() for layer in self.layers)


class Sequential(ModuleList):
    """Layers applied in order; ``model[2]`` is the third. Parameters are named by position: "2.weight".

    Neighbours that can compute together do so where it pays (``in_one_pass``), unless a segment or stage ends
    between them: the results are those of the layers one by one, up to rounding. Raises TypeError for what is
    no layer, such as a list of layers.
    """

    token_wise = True

    def __init__(self, *layers: Module):
        self.layers = checked_modules(layers, "a Sequential takes layers one by one")

    def of_slice(self, layers: list[Module]) -> Module:
        return Sequential(*layers)

    def forward(self, x: Any) -> Tensor:
        return self.forward_range(x, 0, len(self.layers))

    def forward_range(self, x: Any, start: int, stop: int) -> Any:
        """``x`` after layers ``start`` to ``stop - 1``."""
        path, i, alone = current_path(), start, current_observer() is not None
        while i < stop:
            layer, following = self.layers[i], self.layers[i + 1 : i + 1 if alone else stop]
            path.append(i)
            try:
                x, more = layer.forward_in_sequence(x, following)
            except (ValueError, TypeError) as error:
                error.args = (f"layer {i}, {error}",)
                raise
            finally:
                path.pop()
            i += 1 + more
        return x

    def in_order(self) -> bool:
        """Whether it applies its layers in order and does nothing else, unlike a subclass with a forward."""
        return self.computes_as(Sequential)

    def end_of_pass(self, bound: int) -> int:
        """``bound``, or, where it stands among layers that are computed ``in_one_pass``, their end."""
        i = 0
        while i < bound:
            i += 1 + self.layers[i].in_one_pass(self.layers[i + 1 :])
        return i


def is_sequential(model: Module) -> TypeGuard[Sequential]:
    """Whether the layers of a model can be run one by one in its place."""
    return isinstance(model, Sequential) and model.in_order()
