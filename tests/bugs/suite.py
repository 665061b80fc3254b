"""All seeded bugs, by the part of the project that they are in."""

from tests.bugs import (
    in_checkpoints,
    in_compression,
    in_data_parallel,
    in_draining,
    in_elastic,
    in_engine,
    in_hybrid,
    in_logs,
    in_masks,
    in_messages,
    in_model_parallel,
    in_pipelines,
    in_resuming,
    in_servers,
    in_stopping,
    in_storms,
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
    "elastic": in_elastic.BUGS,
    "resuming": in_resuming.BUGS,
    "masks": in_masks.BUGS,
    "draining": in_draining.BUGS,
    "checkpoints": in_checkpoints.BUGS,
    "storms": in_storms.BUGS,
    "stopping": in_stopping.BUGS,
    "logs": in_logs.BUGS,
}
