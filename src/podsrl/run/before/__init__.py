"""What is found and checked before the weights are read."""
