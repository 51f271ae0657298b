"""Doors to other tools: selection in other trainers, and runs in other trackers. Nothing else imports these tools."""
