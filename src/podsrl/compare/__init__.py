"""Runs against each other: how much sooner one way of training reaches an accuracy than another."""

from podsrl.compare.speedups import speedup, time_to_accuracy

__all__ = ["speedup", "time_to_accuracy"]
