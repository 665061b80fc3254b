"""Storms: a training on a simulated cluster whose hosts, links and disk fail, drawn from a seed."""

from .fault import Fault
from .storm import Report, Storm

__all__ = ["Fault", "Report", "Storm"]
