"""The experiments by name."""

from __future__ import annotations

from .article import Article
from .experiment import Experiment
from .slow_link import SlowLink
from .speedup import Speedup
from .to_target import ToTarget

EXPERIMENTS: dict[str, type[Experiment]] = {one.name: one for one in (Speedup, ToTarget, Article, SlowLink)}
