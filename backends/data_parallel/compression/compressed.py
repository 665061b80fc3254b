"""Every rank sends a compressed gradient, and adds what was lost to the gradient of the next step.

Lecture section: gradient compression; handling momentum. Lesson: 10_gradient_compression. Synchronous data
parallelism with a lossy sum, which error feedback corrects (Seide et al. 2014; Karimireddy et al. 2019).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from minigrad.declaration import Flag, check_options, settings_of
from minigrad.device import Array, array_module
from minigrad.lookup import choices, lookup
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import PlacedState
from minigrad.strategy import Strategy
from minigrad.traits import Traits

from ...comm.collectives import Allreduce, allreduce
from ...comm.communicator import Communicator
from ...consistency import refuse_half
from ..allreduce_choice import AllreduceChoice
from ..bucket import Bucket
from ..data_parallel import DataParallel
from ..flat import FlatLayout
from .compressor import Compressor

COMPRESSOR = "top-k"  # the default
GROUP = "minigrad.compressors"  # the entry points that declare compressors, ours and those of other packages


def compressor_names() -> list[str]:
    """The names that ``find_compressor`` takes; nothing is imported for them."""
    return choices({}, GROUP)


class CompressedState(PlacedState):
    """The state of a training whose ranks have residuals and a compressor."""

    backend: Compressed

    def own_values(self) -> dict[str, Any]:
        own = self.backend.compressor.own_values()
        return super().own_values() | {f"compressor {name}": value for name, value in own.items()}

    def set_own_values(self, values: dict[str, Any]) -> None:
        super().set_own_values(values)
        names = self.backend.compressor.own_state
        self.backend.compressor.set_own_values({name: values[f"compressor {name}"] for name in names})


class CompressedDeclaration(AllreduceChoice):
    """Options that are not the strategy's are the compressor's settings."""

    def check_options(self, ranks: int, options: Mapping[str, Any]) -> None:
        own = {*settings_of(Compressed), *self.flags} - {"density"}
        settings = {name: value for name, value in options.items() if name not in own}
        find_compressor(options.get("compress", COMPRESSOR), settings)

    def settings(self, backend: Compressed) -> dict[str, Any]:
        return super().settings(backend) | backend.compressor_settings


class Compressed(DataParallel):
    """Data parallelism that sends C(v) of v = e + g, for a rank's part g of the gradient; then e = v - C(v).

    ``compress`` is the name of the compressor C, or a Compressor; further keywords are its settings.
    ``feedback`` False sets e to 0; the default is the compressor's own, False for unbiased ones. The gradient
    for the optimizer is the sum over ranks of C(v), the same bits on all ranks. By mathematics not equal to
    ``Serial``, unless the compressor is lossless. Parameters must have one dtype.

    A parameter that no rank's loss reached has the gradient None, unless its residual was sent. A checkpoint
    holds ``error`` (e) of every rank, and what the compressor must remember.
    """

    state_class, own_state = CompressedState, ("error",)
    traits = Traits(same_layout_only=True, outermost_only=True)
    declaration = CompressedDeclaration(
        {
            "compress": Flag(str, f"the compressor (default: {COMPRESSOR})", "NAME", compressor_names),
            "density": Flag(
                float,
                "fraction of the gradient's entries that is sent (default: the compressor's own)",
                "FRACTION",
            ),
        }
    )

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        compress: str | Compressor = COMPRESSOR,
        feedback: bool | None = None,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
        **settings: Any,
    ):
        super().__init__(comm, allreduce, micro_batches=micro_batches, batch_norm=batch_norm)
        self.compressor = find_compressor(compress, settings)
        self.feedback = self.compressor.feedback if feedback is None else feedback
        lossless, momentum = self.compressor.lossless, bool(self.compressor.momentum)
        self.traits = replace(self.traits, equals_serial=lossless, applies_momentum=momentum)
        self.compress = compress if isinstance(compress, str) else type(compress).__name__
        self.compressor_settings = dict(vars(self.compressor))
        self.error: Array = None  # None without feedback

    def place(self, model: Module) -> Module:
        """Place with residuals of 0; raises ValueError as ``DataParallel``, and for several dtypes.

        It also refuses float16, in which residuals would lose what is not sent. Rank 0 warns of parameters
        that are sent uncompressed.
        """
        refuse_half(model, self)
        model = super().place(model)
        self.layout = FlatLayout(self.summary.parameters)
        self.bucket = Bucket(self.summary.parameters, self.layout.zeros())
        self.error = self.layout.zeros() if self.feedback else None
        self.compressor.start(self.layout, self.rank, self.size)
        whole = self.compressor.uncompressed_parameters()
        if whole and self.rank == 0:
            warnings.warn(
                f"compress={self.compress} sends {len(whole)} of {len(self.layout.parameters)} parameters as "
                f"they are, {sum(p.size for p in whole):,} of {self.layout.size:,} numbers; no matrices: "
                f"{', '.join(self.names[p] for p in whole)}",
                stacklevel=2,
            )
        return model

    def finish(self, model: Module, loss: float) -> float:
        """Sum the compressed gradients of all ranks, and store the residual.

        Raises FloatingPointError on every rank, naming rank and parameter, where a gradient is not finite,
        before a residual changes.
        """
        self.bucket.fill(self.bucket.views)
        summary = self.summary.pack(loss)
        v = self.compressor.apply_feedback(self.error, self.bucket.message)
        flags = self.not_finite(v)
        if flags.any():
            v = array_module(v).zeros_like(v)
        figures = array_module(v).concatenate([summary, flags])
        total, own, figures = self.compressor.exchange(self.comm, v, figures, self.allreduce)
        self.refuse(figures[len(summary) :])
        loss, reached = self.summary.unpack(figures[: len(summary)])
        self.compressor.commit()
        if self.error is not None:
            self.error = v - own
        views = self.layout.views(total)
        for parameter, g, flag in zip(self.summary.parameters, views, reached, strict=True):
            parameter.grad = g if flag or g.any() else None
        return loss

    def not_finite(self, v: Array) -> Array:
        """This rank's element is 1 + the number of its first parameter that is not finite, or 0."""
        xp = array_module(v)
        flags = xp.zeros(self.size, v.dtype)
        if not xp.isfinite(v).all():
            finite = [bool(xp.isfinite(x).all()) for x in self.layout.views(v)]
            flags[self.rank] = 1 + finite.index(False)
        return flags

    def refuse(self, flags: Array) -> None:
        """Raise FloatingPointError, on every rank, if a rank's gradient is not finite."""
        for rank, flag in enumerate(flags.tolist()):
            if flag:
                name = self.names[self.summary.parameters[round(flag) - 1]]
                raise FloatingPointError(
                    f"rank {rank} has a gradient of {name} that is not finite; "
                    "no residual was changed, try a smaller learning rate"
                )

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Raise ValueError for an optimizer with momentum if the compressor has momentum too."""
        groups = optimizer.group_of_each()
        own = next(filter(None, (getattr(g, "momentum", 0.0) or getattr(g, "betas", 0.0) for g in groups)), 0)
        if self.compressor.momentum and own:
            raise ValueError(
                f"{type(self.compressor).__name__} applies momentum {self.compressor.momentum} before the "
                f"exchange, and {type(optimizer).__name__} would add {own}; use SGD with momentum 0"
            )
        super().update(model, optimizer)

    def refusal(self, inner: Strategy) -> str | None:
        if not self.traits.equals_serial and inner.traits.splits_layers and inner.size > 1:
            return (
                "Compressed drops other entries on each of the ranks that share layers, so parameters that "
                "all of them hold would differ; choose another strategy for the data axis, or a pipeline"
            )
        return None


def find_compressor(compress: str | Compressor, settings: dict[str, Any]) -> Compressor:
    """The compressor of that name. Raises ValueError, with the choices, for an unknown name or setting."""
    if isinstance(compress, Compressor):
        if settings:
            raise ValueError(f"{', '.join(settings)}: give the settings to {type(compress).__name__} itself")
        return compress
    kind = lookup("compressor", compress, {}, GROUP)
    check_options(f"strategy 'compressed, compress={compress}'", settings_of(kind.__init__), settings)
    return kind(**settings)
