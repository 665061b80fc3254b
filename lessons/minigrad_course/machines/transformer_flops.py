"""The operations of a training step of a transformer, and what share of a machine's peak they use.

Lecture section: what a cluster would do. Lesson: 15_scale. Narayanan et al. 2021 (Megatron-LM), arXiv
2104.04473, equation 3; Chowdhery et al. 2022 (PaLM), arXiv 2204.02311, for the utilization of model FLOPs.
An addition and a multiplication are two operations. Norms, biases, activations and softmax are not counted.
"""

from __future__ import annotations

from typing import NamedTuple


class TransformerFlops(NamedTuple):
    """The operations of one forward of a batch: of linear layers, of attention's core, of the scores.

    Backward takes twice as many.
    """

    products: int
    core: int
    scores: int

    @property
    def model(self) -> int:
        """The operations that training needs: forward once, and twice as many backward."""
        return 3 * (self.products + self.core + self.scores)

    @property
    def recomputed(self) -> int:
        """The operations of a step that computes the forward of all blocks again in backward."""
        return self.model + self.products + self.core


def transformer_flops(
    layers: int, width: int, rows: int, symbols: int = 51_200, length: int = 2048
) -> TransformerFlops:
    """One forward of ``rows`` rows of ``length`` tokens, with 4 ``width`` neurons in each feed-forward.

    A block has 12 h^2 weights, h = ``width``, each of which is used once for each token: 24 B S h^2
    operations. The core of attention, the products of queries, keys and values, takes 4 B S^2 h: every token
    is counted with every other, also where a causal mask leaves out half of the pairs, as the paper does.
    """
    tokens = rows * length
    return TransformerFlops(
        products=24 * tokens * layers * width**2,
        core=4 * tokens * length * layers * width,
        scores=2 * tokens * width * symbols,
    )


def utilization(flops: float, seconds: float, ranks: int, peak: float) -> float:
    """The share that ``flops`` in ``seconds`` are of what ``ranks`` of ``peak`` operations a second could do.

    With the operations of the model it is the MFU (model FLOPs utilization), with all that were executed, the
    recomputed ones too, the HFU (hardware FLOPs utilization).
    """
    return flops / (seconds * ranks * peak)
