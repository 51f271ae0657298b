"""Engines beside each other: tokens per second."""
