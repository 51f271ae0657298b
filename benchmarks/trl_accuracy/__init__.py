"""Training seconds to an accuracy, beside TRL's GRPOTrainer: `python -m benchmarks trl-accuracy`."""
