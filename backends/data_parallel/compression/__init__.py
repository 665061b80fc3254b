"""Gradients are compressed before they are sent, and what was lost is sent later.

Lecture section: gradient compression; handling momentum. Lesson: 10_gradient_compression.
"""

from .compressed import Compressed, compressor_names
from .compressor import AllGatherCompressor, Compressor, Identity
from .dgc import DeepGradientCompression
from .low_rank import PowerSGD
from .quantization import QSGD, OneBit, ScaledSign, TernGrad
from .sparsification import RandomK, Sparsifier, Threshold, TopK

__all__ = [
    "AllGatherCompressor",
    "Compressed",
    "Compressor",
    "DeepGradientCompression",
    "Identity",
    "OneBit",
    "PowerSGD",
    "QSGD",
    "RandomK",
    "ScaledSign",
    "Sparsifier",
    "TernGrad",
    "Threshold",
    "TopK",
    "compressor_names",
]
