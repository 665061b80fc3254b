"""Which layers are right where ranks share the tokens of a row: those that act on each token alone.

Lecture section: sequence parallelism. Lesson: 17_sequences, by ``sequence_parallel.py``.
"""

from __future__ import annotations

from minigrad.module import Module


def refuse_mixed_tokens(model: Module) -> None:
    """Raise ValueError for a layer that may mix the tokens of a row, of which a rank has only some."""
    for layer in model.modules():
        if not layer.token_wise or layer.unchanged_type() is None:
            name = type(layer).__name__
            raise ValueError(
                f"{name} may mix the tokens of a row, which --sequence shares among ranks; if it acts on "
                f"each token (B, S, ...) alone, say so: token_wise = True in class {name}"
            )
