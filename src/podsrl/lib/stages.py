"""The stages of a training step, in their order: the names of `seconds/STAGE` in `metrics.jsonl`."""

STAGES = ("generate", "score", "select", "update", "sync", "record")
"""Every step has these; more (such as "exchange", with several processes) may come on top."""
