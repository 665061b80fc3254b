"""Storms: a training on a simulated cluster whose hosts, links and disk fail, drawn from a seed."""
