"""The settings that a training and a proof share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from minigrad.device import check_device

from .net_settings import NetSettings
from .options import DTYPES, checked_by, choice
from .parallel import ParallelConfig
from .precision import NAMES, Precision, checked_precision, loss_scale_of
from .strategy_flags import option


@dataclass(frozen=True)
class RunSettings(NetSettings):
    """The net, how ranks share it, and the numbers that they compute with; every rank holds the same."""

    parallel: ParallelConfig = field(default_factory=lambda: ParallelConfig("serial"))
    transport: str = "threads"
    device: str = option(
        "numpy", "numpy or cupy", envvar="MINIGRAD_DEVICE", callback=checked_by(check_device)
    )
    dtype: str = choice("float32", "--dtype", DTYPES, is_eager=True)  # --precision asks whether it was passed
    precision: str = option(
        "float32",
        f"numbers of the model, one of {', '.join(NAMES)}; those of 16 bits have float32 masters",
        callback=checked_precision,
    )
    loss_scale: str | None = option(
        None,
        "factor of the loss: dynamic, or a number (default: dynamic with float16, 1 with bfloat16)",
        metavar="SCALE",
        callback=checked_by(loss_scale_of),
    )
    exact: bool = option(
        False,
        "no Winograd convolutions: in float32 their errors are up to ten times those of plain sums",
        "--exact",
    )
    seed: int = option(0, "random seed for weights and sample order", min=0)

    @property
    def numbers(self) -> Precision:
        """The numbers of samples, parameters and activations."""
        return Precision(self.dtype if self.precision == "float32" else self.precision, self.loss_scale)

    def config(self) -> dict[str, Any]:
        """All settings by name, those of ``parallel`` among them, as metrics.json has them."""
        settings = asdict(self)
        text = None if self.text is None else str(self.text)
        return settings.pop("parallel") | settings | {"text": text}
