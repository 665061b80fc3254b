"""Pipelines: every rank holds consecutive layers, and works on one micro-batch while others do on others."""
