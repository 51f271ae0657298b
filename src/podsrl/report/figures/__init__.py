"""Figures of runs, comparisons and plans: each a matplotlib `Figure` without a window or global state."""
