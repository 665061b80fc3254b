"""The experiments of the lecture and of its sources, on real MPI processes: ``minigrad experiment``."""
