"""CPU seconds of training to fixed accuracies, PODS, GRPO and GRPO-GA: `python -m benchmarks when-pods-helps`."""
