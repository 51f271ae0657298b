"""What is shown of a soak."""
