"""How many training seconds PODS, GRPO and GRPO-GA need to fixed accuracies: `python -m benchmarks when-pods-helps`."""
