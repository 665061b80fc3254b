"""All seeded bugs, by the part of the project that they are in."""

from tests.bugs import (
    in_checkpoints,
    in_compression,
    in_data_parallel,
    in_engine,
    in_hybrid,
    in_memory_checkpoints,
    in_messages,
    in_model_parallel,
    in_pipelines,
    in_resuming,
    in_servers,
)

PARTS = {
    "engine": in_engine.BUGS,
    "messages": in_messages.BUGS,
    "data parallel": in_data_parallel.BUGS,
    "model parallel": in_model_parallel.BUGS,
    "pipeline": in_pipelines.BUGS,
    "layers, grid, stack": in_hybrid.BUGS,
    "servers": in_servers.BUGS,
    "compression": in_compression.BUGS,
    "resuming": in_resuming.BUGS,
    "checkpoints": in_checkpoints.BUGS,
    "checkpoints in memory": in_memory_checkpoints.BUGS,
}
