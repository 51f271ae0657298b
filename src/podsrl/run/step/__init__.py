"""One step: ask, generate, score, choose, update; and what holds it together."""
