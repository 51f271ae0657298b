"""One token per row: the key-value memory, reading prompts, and the forward of a decode step."""
