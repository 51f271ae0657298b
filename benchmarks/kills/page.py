"""What is shown of the kills."""
