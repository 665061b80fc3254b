"""Every rank sends a little of its gradient, and remembers the rest for the next step.

Lecture section: gradient compression; handling momentum. Lesson: 10_gradient_compression. Synchronous data
parallelism whose sum is lossy; error feedback (Seide et al. 2014; Karimireddy et al. 2019) makes up for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from minigrad.backend import Backend, SquareNorms
from minigrad.declaration import Flag, check_options, settings_of
from minigrad.device import Array, array_module
from minigrad.lookup import choices, lookup
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.tensor import Parameter

from ...comm.collectives import allreduce
from ...comm.communicator import Communicator
from ..flat import FlatLayout
from ..replicated import DataParallel
from .compressor import Compressor, Identity
from .low_rank import PowerSGD
from .momentum import DeepGradientCompression
from .quantised import QSGD, OneBit, ScaledSign, TernGrad
from .selecting import RandomK, Threshold, TopK

COMPRESSORS: dict[str, type[Compressor]] = {
    "identity": Identity,
    "threshold": Threshold,
    "top-k": TopK,
    "random-k": RandomK,
    "dgc": DeepGradientCompression,
    "one-bit": OneBit,
    "scaled-sign": ScaledSign,
    "qsgd": QSGD,
    "terngrad": TernGrad,
    "power-sgd": PowerSGD,
}
COMPRESSOR = "top-k"  # where none is named
GROUP = "minigrad.compressors"  # the entry points by which other packages add theirs


def compressor_names() -> list[str]:
    """The names that ``find_compressor`` takes; nothing is imported for them."""
    return choices(COMPRESSORS, GROUP)


class Compressed(DataParallel):
    """Data parallelism that sends C(v) of v = e + g, g a rank's part of the gradient, and keeps e = v - C(v).

    ``compress`` names C, or is one; further keywords are its settings. ``feedback`` False forgets e; the
    default is the compressor's own, False for those whose mean is right. The gradient the optimizer sees is
    the sum over ranks of the C(v), the same bits on all ranks. By mathematics not equal to ``Serial``,
    unless nothing is lost. Parameters must have one dtype.

    A parameter that no rank's loss reached has the gradient None, unless there was something of it left.
    To go on later as if nothing had happened, a checkpoint needs of every rank, beside the model and the
    optimizer: ``error`` (e), and of the compressor ``velocity`` (u) and ``steps`` (DGC), ``q`` (PowerSGD), or
    ``generator`` (random-k, QSGD, TernGrad).
    """

    outermost_only = True
    flags = {
        **DataParallel.flags,
        "compress": Flag(str, f"the compressor (default: {COMPRESSOR})", "NAME", compressor_names),
        "density": Flag(
            float,
            "fraction of the gradient's entries that is sent (default: the compressor's own)",
            "FRACTION",
        ),
    }

    def __init__(
        self,
        comm: Communicator,
        allreduce: Callable[[Communicator, Array], Array] = allreduce,
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
        self.equals_serial = self.compressor.lossless
        self.applies_momentum = bool(self.compressor.momentum)
        name = compress if isinstance(compress, str) else type(compress).__name__
        self.described = {"compress": name, **vars(self.compressor), "feedback": self.feedback}
        self.error: Array = None  # None without feedback

    @classmethod
    def check_options(cls, ranks: int, options: Mapping[str, Any]) -> None:
        own = settings_of(cls)
        settings = {name: value for name, value in options.items() if name not in (*own, *cls.flags)}
        settings |= {"density": options["density"]} if "density" in options else {}
        find_compressor(options.get("compress", COMPRESSOR), settings)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self.described}

    def place(self, model: Module) -> Module:
        """The whole model, with rank 0's parameters and state arrays; residuals start at 0.

        Raises ValueError where ranks built different models or chose different settings, and for
        parameters of several dtypes. Rank 0 warns of parameters that are sent whole all the same.
        """
        model = super().place(model)
        self.layout = FlatLayout(self.summary.parameters)
        self.gradient = self.layout.zeros()
        self.places = self.layout.views(self.gradient)
        self.error = self.layout.zeros() if self.feedback else None
        self.compressor.start(self.layout, self.rank, self.size)
        self.names = {p: name for name, p in model.named_parameters().items()}
        if self.rank == 0:
            self.tell_of(self.compressor.sent_whole())
        return model

    def tell_of(self, whole: list[Parameter]) -> None:
        """Warn, where there are any, that these parameters are not compressed."""
        if whole:
            numbers = f"{sum(p.size for p in whole):,} of {self.layout.elements:,} numbers"
            warnings.warn(
                f"compress={self.described['compress']} sends {len(whole)} of {len(self.layout.parameters)} "
                f"parameters as they are, {numbers}; no matrices: {', '.join(self.names[p] for p in whole)}",
                stacklevel=3,
            )

    def finish(self, model: Module, loss: float) -> float:
        """Exchange what the compressor makes of this rank's gradients, and keep the rest.

        Raises FloatingPointError on every rank, naming rank and parameter, where a gradient is not finite,
        before it gets into a residual; RuntimeError where ranks ran backward a different number of times.
        """
        self.copy_gradients_in(self.places)
        summary = self.pack_summary(loss)
        v = self.compressor.accumulated(self.error, self.gradient)
        flags = self.not_finite(v)
        if flags.any():
            v = array_module(v).zeros_like(v)
        figures = array_module(v).concatenate([summary, flags])
        total, own, figures = self.compressor.exchange(self.comm, v, figures, self.allreduce)
        self.refuse(figures[len(summary) :])
        loss, reached = self.summary.unpack(figures[: len(summary)])
        self.compressor.accepted()
        if self.error is not None:
            self.error = v - own
        for parameter, g, found in zip(
            self.summary.parameters, self.layout.views(total), reached, strict=True
        ):
            parameter.grad = g if found or g.any() else None
        return loss

    def not_finite(self, v: Array) -> Array:
        """0, or 1 + the number of the first parameter that is not finite, at this rank's place."""
        xp = array_module(v)
        flags = xp.zeros(self.size, v.dtype)
        if not xp.isfinite(v).all():
            finite = [bool(xp.isfinite(x).all()) for x in self.layout.views(v)]
            flags[self.rank] = 1 + finite.index(False)
        return flags

    def refuse(self, flags: Array) -> None:
        """Raise FloatingPointError, on every rank, where one had something that is not finite."""
        for rank, flag in enumerate(flags.tolist()):
            if flag:
                name = self.names[self.summary.parameters[round(flag) - 1]]
                raise FloatingPointError(
                    f"rank {rank} has a gradient of {name} that is not finite; "
                    "no residual was changed, try a smaller learning rate"
                )

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        """Raises ValueError for an optimizer that would add momentum to the compressor's own."""
        own = getattr(optimizer, "momentum", 0.0) or getattr(optimizer, "betas", 0.0)
        if self.compressor.momentum and own:
            raise ValueError(
                f"{type(self.compressor).__name__} has momentum {self.compressor.momentum} in what it "
                f"exchanges, {type(optimizer).__name__} has {own} beside; use SGD with momentum 0"
            )
        super().update(model, optimizer, square_norms)

    def refusal(self, inner: Backend) -> str | None:
        if not self.equals_serial and inner.splits_layers and inner.size > 1:
            return (
                "Compressed leaves out something else on each of the ranks that share layers, so what all of "
                "these hold would not stay the same; choose another strategy for the data axis, or a pipeline"
            )
        return super().refusal(inner)


def find_compressor(compress: str | Compressor, settings: dict[str, Any]) -> Compressor:
    """The compressor of that name; raises ValueError, with the choices, for an unknown name or setting."""
    if isinstance(compress, Compressor):
        if settings:
            raise ValueError(f"{', '.join(settings)}: give the settings to {type(compress).__name__} itself")
        return compress
    kind = lookup("compressor", compress, COMPRESSORS, GROUP)
    check_options(f"strategy 'compressed, compress={compress}'", settings_of(kind.__init__), settings)
    return kind(**settings)
