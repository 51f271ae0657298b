"""The built-in generator: continuous batching on one model in this process."""
