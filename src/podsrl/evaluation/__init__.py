"""Evaluates a model without a trainer: a run, a config, or a folder with weights."""
