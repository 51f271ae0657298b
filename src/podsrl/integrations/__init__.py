"""Doors to other tools: selection in other trainers, their task sets, runs in trackers. Each imports its tool alone."""
