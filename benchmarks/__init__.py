"""Measurements behind the figures of the docs; `python -m benchmarks --help` lists them."""
