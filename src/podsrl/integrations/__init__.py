"""Doors to other tools: selection in other trainers, runs in trackers. What a tool needs is imported here alone."""
