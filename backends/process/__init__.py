"""A rank as a process: its number, its signals, its notes for the launcher, and how it ends."""
