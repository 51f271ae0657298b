"""Several processes share one run: who they are, what they exchange, and how weights and gradients are laid out."""
