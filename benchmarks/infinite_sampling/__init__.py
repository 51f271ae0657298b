"""Schedules of Infinite Sampling: simulated on recorded lengths, and timed in the engine."""
