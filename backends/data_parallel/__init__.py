"""Every rank holds the whole model, or a part of its state, and a share of the batch."""

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
