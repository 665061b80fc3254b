"""Every rank holds consecutive layers, and works on one micro-batch while others work on others."""

from .layer_wise import LayerWise
from .pipeline import Pipeline
from .schedule import Schedule
from .schedules import SCHEDULES, find_schedule, schedule_names
from .simulation import Costs, Simulation, simulate
from .timetable import Backward, Forward, Instruction, Place, Timetable, Weight
from .validator import check_schedule, check_timetable

__all__ = [
    "SCHEDULES",
    "Backward",
    "Costs",
    "Forward",
    "Instruction",
    "LayerWise",
    "Pipeline",
    "Place",
    "Schedule",
    "Simulation",
    "Timetable",
    "Weight",
    "check_schedule",
    "check_timetable",
    "find_schedule",
    "schedule_names",
    "simulate",
]
