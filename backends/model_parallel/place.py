"""Which layer is split how: a plan that a person can read, and the model that comes of it.

Lecture section: model parallelism. Lesson: 11_model_parallel. A plan gives kinds by layer name,
``{"1": "column", "3": "row"}``; layers it does not name stay whole, on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.backend import Backend, Loss, Values, at_least_one
from minigrad.module import Module, Sequential, evaluation_mode
from minigrad.tensor import Parameter, Tensor

from ..comm.collectives import allreduce
from ..comm.protocol import Comm
from ..data_parallel.consistency import broadcast_model, check_same_on_all_ranks
from ..data_parallel.flat import FlatLayout
from .activation import Activation, Cut
from .chain import Chain
from .classes import ClassLinear, over_classes
from .dropout import share_state
from .kinds import ELEMENTWISE, KINDS, UNNAMED, entry
from .layer import SplitLayer, Whole, cut_of, owned
from .plan import Plan, check_plan, default_plan, modules, no_samples
from .spatial import SPATIAL, Tiling, tiling_of


class ModelParallel(Backend):
    """Every rank sees the whole batch and holds a part of the model, as the plan says; trains like serial.

    ``plan`` gives kinds by layer name; None takes the default one for ``batch_size`` samples (see
    ``plan.py``), and then ``self.plan`` is the one that was taken. In a Sequential, also inside another, what
    a layer gives goes on to the next as it is cut; in other models each layer that the plan names takes and
    gives the whole. With ``sample``, the shape of one input, layers know when they are placed what will come:
    a "row" layer then takes the features as a split Flatten leaves them.
    """

    splits_layers = True
    kinds, unnamed = KINDS, UNNAMED

    def __init__(
        self,
        comm: Comm,
        plan: Mapping[str, str] | None = None,
        *,
        sample: Sequence[int] | None = None,
        batch_size: int = 64,
        micro_batches: int = 1,
    ):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.given = None if plan is None else dict(plan)
        self.plan: Plan = self.given or {}
        self.sample = None if sample is None else tuple(sample)
        self.batch_size = at_least_one("batch_size", batch_size)
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.tilings: dict[str, Tiling | None] = {}
        self.partial: dict[Parameter, Comm] = {}

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``, with rank 0's parameters.

        Raises ValueError where ranks have different models or plans, and, naming the layers that can be
        split and how, for a plan that does not fit the model.
        """
        asked = {"plan": self.given, "sample": self.sample, "batch_size": self.batch_size}
        check_same_on_all_ranks(self.comm, model, {**asked, "micro_batches": self.micro_batches})
        if self.given is None:
            self.plan = default_plan(model, self.size, self.batch_size, self.sample)
        check_plan(self.plan, model, self.kinds_of)
        broadcast_model(self.comm, model)
        for _, layer in modules(model):
            if isinstance(layer, nn.Dropout):
                share_state(self.comm, layer.rng)
        if isinstance(model, Sequential):
            first = None if self.sample is None else Activation(no_samples([model], self.sample))
            model = self.chain(model, first)
        else:
            self.replace_inside(model)
        self.partial = partial_gradients(model)
        return model

    def chosen(self) -> dict[str, Any]:
        return {"plan": self.plan}

    def chain(
        self, model: Sequential, a: Activation | None = None, into: Cut | None = None, prefix: str = ""
    ) -> Chain:
        """The layers of a Sequential, behind a layer whose features are cut as ``into``.

        ``a``, where it is known, is what comes in, and is followed through the layers.
        """
        layers: list[SplitLayer] = []
        for i, layer in enumerate(model.layers):
            name = f"{prefix}{i}"
            with named_in_errors(i):
                if isinstance(layer, Sequential):
                    layers.append(self.chain(layer, a, into, f"{name}."))
                else:
                    layers.append(self.split(name, layer, into))
                with evaluation_mode(layers[-1]):
                    a = None if a is None else layers[-1].split_forward(a)
            into = layers[-1].out if a is None else a.along(1)
        return Chain(layers)

    def split(self, name: str, layer: Module, into: Cut | None = None) -> SplitLayer:
        """The layer called ``name``, behind one whose features are cut as ``into``."""
        kind = self.plan.get(name)
        tiling = None if kind is None else self.tiling(kind)
        if kind is None or (tiling is not None and isinstance(layer, (*ELEMENTWISE, nn.Dropout))):
            self.replace_inside(layer, f"{name}.")
            return entry(self.unnamed, layer, Whole)(layer, self.comm, into)
        if tiling is not None:
            return entry(SPATIAL, layer, Whole)(layer, tiling)
        return entry(self.kinds, layer, {})[kind](layer, self.comm, into)

    def replace_inside(self, model: Module, prefix: str = "") -> None:
        """Put split layers, whole in and whole out, into the places of those that the plan names."""
        for child, layer in model.children().items():
            name = prefix + child
            planned = [other for other in self.plan if f"{other}.".startswith(f"{name}.")]
            if planned and isinstance(layer, Sequential):
                model.replace(child, self.chain(layer, prefix=f"{name}."))
            elif name in planned:
                with named_in_errors(name):
                    model.replace(child, self.split(name, layer))
            elif planned:
                self.replace_inside(layer, f"{name}.")

    @classmethod
    def kinds_of(cls, layer: Module) -> list[str]:
        """The kinds that a layer can be split by."""
        tiles = ("rows", "tiles") if isinstance(layer, (*SPATIAL, *ELEMENTWISE, nn.Dropout)) else ()
        return [*entry(cls.kinds, layer, {}), *tiles]

    def tiling(self, kind: str) -> Tiling | None:
        """The tiles that a kind means, the same for all layers of that kind; None where it means none."""
        if kind not in self.tilings:
            self.tilings[kind] = tiling_of(kind, self.comm)
        return self.tilings[kind]

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """Where each rank has some of the classes, ``loss_fn`` without gathering them."""
        classes = next(
            (layer.cut for _, layer in modules(model) if isinstance(layer, ClassLinear) and layer.training),
            None,
        )
        return loss_fn if classes is None else over_classes(loss_fn, classes)

    def on_grad(self, parameter: Tensor) -> bool:
        return parameter not in self.partial

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients of whole parameters of which each rank found a part; the loss all ranks have.

        One all-reduce for those that the same ranks share and that have the same dtype.
        """
        together: dict[tuple[Comm, Any], list[Parameter]] = {}
        for parameter, comm in partial_gradients(model).items():
            if parameter.grad is not None:
                together.setdefault((comm, parameter.dtype), []).append(parameter)
        for (comm, _), parameters in together.items():
            flat = FlatLayout(parameters)
            total = allreduce(comm, flat.packed([parameter.grad for parameter in parameters]))
            for parameter, g in zip(parameters, flat.views(total), strict=True):
                parameter.grad = g
        return loss

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Sums over the ranks, in which what several hold counts once."""
        cuts = [cut_of(owner, attribute) for _, owner, attribute in owned(model)]
        once = [cut.comm.size / self.size if cut else float(self.rank == 0) for cut in cuts]
        return allreduce(self.comm, squares * np.array(once)[:, None])

    def close(self) -> None:
        """Leave the groups of ranks to the layers, which need them to compute, and go with them."""
        self.tilings, self.partial = {}, {}

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The whole arrays, by name, made of the parts of all ranks; None stays None."""
        values = dict(values)
        for name, owner, attribute in model.named_arrays():
            cut = cut_of(owner, attribute)
            if cut is not None and values.get(name) is not None:
                values[name] = cut.whole_of(values[name])
        return values

    def refusal(self, inner: Backend) -> str:
        splits = "ModelParallel splits layers, so nothing can stand inside of it; put it innermost"
        return super().refusal(inner) or splits


def partial_gradients(model: Module) -> dict[Parameter, Comm]:
    """Whole parameters of which each rank finds a part of the gradient, and the ranks that find it all."""
    layers = [layer for _, layer in modules(model) if isinstance(layer, SplitLayer)]
    return {vars(layer)[name]: comm for layer in layers for name, comm in layer.partial.items()}


@contextmanager
def named_in_errors(layer: int | str) -> Iterator[None]:
    """Errors that come out of this say first which layer they are about, as a Sequential's do."""
    try:
        yield
    except (ValueError, TypeError) as error:
        error.args = (f"layer {layer}, {error}",)
        raise


def check_plan_for(plan: Plan, model: Module) -> None:
    """Raise ValueError, naming the layers that can be split, for a plan that does not fit the model."""
    check_plan(plan, model, ModelParallel.kinds_of)
