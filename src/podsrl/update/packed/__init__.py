"""Micro-batches without padding: rows lie one behind the other, and prompts may be shared."""
