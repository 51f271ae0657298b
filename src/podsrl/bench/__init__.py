"""What a figure was measured on."""
