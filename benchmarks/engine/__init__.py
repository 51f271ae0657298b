"""Tokens per second of our engine and of others."""
