"""A training step beside TRL's GRPOTrainer."""
