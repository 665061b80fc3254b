"""What a player is told when it is started; there is no secret in it."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """A process's bounds, modules to import beforehand, and records: classes as ``module:name``."""

    mebibytes: int
    seconds: float
    modules: list[str]
    records: list[str]

    def write(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Settings:
        return cls(**json.loads(text))

    def classes(self) -> dict[str, type[Any]]:
        """The records' classes by their names."""
        pairs = (record.split(":") for record in self.records)
        return {name: getattr(importlib.import_module(module), name) for module, name in pairs}
