"""The library's own answers to assignment a7."""

from backends.pipeline import unidirectional
from backends.pipeline.zero_bubble import zb_h1, zb_h2


def gpipe(stage, stages, micros):
    return unidirectional.gpipe(stage, stages, micros, 1)


def one_f_one_b(stage, stages, micros):
    return unidirectional.one_f_one_b(stage, stages, micros, 1)


def my_schedule(stage, stages, micros):
    return zb_h1(stage, stages, micros, 1)


def zero_bubble(stage, stages, micros):
    return zb_h2(stage, stages, micros, 1)
