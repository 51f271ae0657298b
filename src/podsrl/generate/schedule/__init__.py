"""Which rollouts run in which step, from lengths alone: pure Python, no torch."""
