"""Every rank holds the whole model, or a part of its state, and a share of the batch."""

from .averaging import ElasticAveraging, LocalSGD, ParallelSGD
from .bucketed import Bucketed
from .compression import Compressed
from .naive import NaiveDataParallel
from .parameter_server import ParameterServer
from .replicated import DataParallel
from .sharded import Sharded
from .shared_memory import SharedMemoryDataParallel
from .stragglers import BackupWorkers, Proportional

__all__ = [
    "BackupWorkers",
    "Bucketed",
    "Compressed",
    "DataParallel",
    "ElasticAveraging",
    "LocalSGD",
    "NaiveDataParallel",
    "SharedMemoryDataParallel",
    "ParallelSGD",
    "ParameterServer",
    "Proportional",
    "Sharded",
]
