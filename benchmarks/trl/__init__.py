"""A training step compared with TRL's GRPOTrainer."""
