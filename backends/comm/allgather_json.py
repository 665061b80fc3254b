"""Facts of all ranks on every rank: texts, numbers, lists and dicts, as JSON can hold them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .collectives import allgather
from .communicator import Communicator


def allgather_json(comm: Communicator, value: Any) -> list[Any]:
    """Each rank's value, in the order of the ranks; tuples become lists."""
    texts = allgather(comm, np.frombuffer(json.dumps(value).encode(), np.uint8))
    return [json.loads(bytes(text)) for text in texts]
