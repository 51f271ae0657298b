"""Measure all: every benchmark that saves a figure.

python -m benchmarks all
"""
