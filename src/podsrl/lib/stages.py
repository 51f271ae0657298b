"""The stages of a training step, in their order: the names of `seconds/STAGE` in `metrics.jsonl`."""

STAGES = ("generate", "score", "select", "update", "sync", "record")
"""Every step has these."""
EXCHANGE = "exchange"
"""Between scoring and selection, with several processes: the groups of each go to all."""
