"""Selection in other trainers, task sets of other tools, and runs in trackers: one module or folder per tool."""
