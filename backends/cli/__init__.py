"""The ``minigrad`` command: its options, what they start, and what it prints."""
