"""Every rank holds the whole model, or a part of its state, and a share of the batch.

>>> import numpy as np
>>> from backends.comm import run_ranks
>>> from minigrad import nn, ops
>>> from minigrad.data import Batch
>>> def loss(comm):
...     backend, batch = DataParallel(comm), Batch(np.ones((4, 1)), np.zeros((4, 1)))
...     model = backend.place(nn.Linear(1, 1, bias=False, rng=0))
...     return round(backend.step(model, batch, ops.mse) / model.weight.item() ** 2, 6)
>>> run_ranks(2, loss)  # the mean over four samples, the weight squared, on both ranks
[1.0, 1.0]
"""

from .averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from .backup_workers import BackupWorkers
from .bucketed import Bucketed
from .compression import Compressed
from .data_parallel import DataParallel
from .elastic import Elastic
from .naive import NaiveDataParallel
from .parameter_server import ParameterServer
from .proportional import ProportionalDataParallel
from .shared_memory import SharedMemoryDataParallel
from .zero import Sharded

__all__ = [
    "BackupWorkers",
    "Bucketed",
    "Compressed",
    "DataParallel",
    "DiLoCo",
    "Elastic",
    "ElasticAveraging",
    "LocalSGD",
    "NaiveDataParallel",
    "ParallelSGD",
    "ParameterServer",
    "ProportionalDataParallel",
    "Sharded",
    "SharedMemoryDataParallel",
]
