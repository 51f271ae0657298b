"""Selection in other trainers, and runs in trackers. Nothing but the command line imports this folder."""
