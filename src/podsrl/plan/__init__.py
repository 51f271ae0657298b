"""Suggest n, m and the micro-batch for a model on a machine: measure, predict, compare (docs/planner.md)."""
