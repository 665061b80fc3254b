"""The figures of ``engine.py`` on a GPU as cells of a table; it needs no PyTorch."""

from __future__ import annotations

GRAPHS = " as CUDA graphs"  # the end of the name of a peer whose steps are


def gpu_cells(times: dict[str, float]) -> list[str]:
    """minigrad's time, the better of PyTorch's layouts, and their ratio: op by op, then as CUDA graphs."""
    cells = []
    for kind in ("", GRAPHS):
        of_kind = {peer: ms for peer, ms in times.items() if peer.endswith(GRAPHS) == bool(kind)}
        own = of_kind.pop("minigrad" + kind, None)
        if own is not None:
            best = min(of_kind.values())
            cells += [f"{own:.2f}", f"{best:.2f}", f"{own / best:.2f}"]
    return cells
