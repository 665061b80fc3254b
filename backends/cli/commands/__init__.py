"""A module for each command of ``minigrad``, with ``app``, which is it."""
