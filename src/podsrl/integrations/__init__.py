"""Doors to other tools: selection in other trainers, and runs in other trackers. Nothing else imports what they need."""
