"""Pipelines in which something is wrong, for the laws to catch."""

from backends.pipeline.pipeline import Pipeline
from tests.bugs.mutant import mutant

PARTS = {"engine": "Engine", "p2p": "PipelineComm", "stages": "StageMap"}


def broken(*changes: tuple[str, str, str]) -> type[Pipeline]:
    """Pipeline out of sources in which (file, right, wrong) are changed."""
    texts = {
        where: [change[1:] for change in changes if change[0] == where] for where in ("pipeline", *PARTS)
    }
    made = mutant("backends.pipeline.pipeline", *texts["pipeline"])
    for where, name in PARTS.items():
        setattr(made, name, getattr(mutant(f"backends.pipeline.{where}", *texts[where]), name))
    return made.Pipeline
