"""Model families: which ones run, and how exactly."""
