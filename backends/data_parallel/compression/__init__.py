"""Gradients are made small before they are sent, and what was left out is sent later.

Lecture section: gradient compression; handling momentum. Lesson: 10_gradient_compression.
"""

from .compressed import COMPRESSORS, Compressed
from .compressor import Compressor, Gathered, Identity
from .low_rank import PowerSGD
from .momentum import DeepGradientCompression
from .quantised import QSGD, OneBit, ScaledSign, TernGrad
from .selecting import RandomK, Selecting, Threshold, TopK

__all__ = [
    "COMPRESSORS",
    "Compressed",
    "Compressor",
    "DeepGradientCompression",
    "Gathered",
    "Identity",
    "OneBit",
    "PowerSGD",
    "QSGD",
    "RandomK",
    "ScaledSign",
    "Selecting",
    "TernGrad",
    "Threshold",
    "TopK",
]
