"""The stages of a training step, and the fates of the tokens that it generated, told once for all that shows them."""

STAGES = ("generate", "score", "select", "update", "sync", "record")
"""In their order: the names of `seconds/STAGE` in `metrics.jsonl`. Every step has these."""
EXCHANGE = "exchange"
"""A stage between "score" and "select" where several processes share a run: the groups of each go to all."""
SHOWN_STAGES = STAGES[:-1]
"""Whose seconds are shown one by one; the rest of a step, recording and exchange among it, is `OTHER`."""
OTHER = "other"
FATES = ("trained", "discarded", "skipped", "pruned", "postponed")
"""The names of `tokens/FATE`, which add up to `tokens/generated`, `tokens/shared` and what earlier steps generated."""
UNACCOUNTED = "unaccounted"
"""What a log has under no fate."""
