"""All that a worker process holds beside the submission, the standard library and NumPy.

A worker is an interpreter of its own in which no other file of the project can be read or imported, so a
submission that gets past the static check, and past all that is here, still finds no answer.
"""
