"""Layers: modules that apply one op each. Randomness is always the explicit ``rng=``: one generator for
all layers of a net, or a seed for one layer (two layers of one seed draw the same numbers).

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""  # isort: skip_file

from ..module import Module, ModuleList, Sequential, evaluation_mode
from ..tensor import Parameter
from . import init
from .activation import (
    ELU, GELU, Flatten, Hardswish, Identity, LeakyReLU, LogSigmoid, ReLU, Sigmoid, SiLU, Softmax, Softplus,
    Tanh,
)  # fmt: skip
from .attention import Attention, AttentionCore
from .conv import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from .dropout import Dropout
from .experts import Experts
from .linear import Embedding, Linear
from .loss import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss
from .norm import BatchNorm, GhostBatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from .pool import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, Upsample
from .token_embedding import TokenEmbedding, Unembedding
from .transformer_block import TransformerBlock

__all__ = [
    "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "Attention", "AttentionCore", "AvgPool1d", "AvgPool2d",
    "BCEWithLogitsLoss", "BatchNorm", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d",
    "CrossEntropyLoss", "Dropout", "ELU", "Embedding", "Experts", "Flatten", "GELU", "GhostBatchNorm",
    "GroupNorm", "Hardswish", "HuberLoss", "Identity", "InstanceNorm", "L1Loss", "LayerNorm", "LeakyReLU",
    "Linear", "LogSigmoid", "MSELoss", "MaxPool1d", "MaxPool2d", "Module", "ModuleList", "NLLLoss",
    "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid", "SmoothL1Loss", "Softmax", "Softplus",
    "Tanh", "TokenEmbedding", "TransformerBlock", "Unembedding", "Upsample", "evaluation_mode", "init",
]  # fmt: skip
