"""Several processes share one run: launching, collectives, and sharded weights and gradients."""
