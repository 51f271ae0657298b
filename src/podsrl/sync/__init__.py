"""New weights -> generator."""

from podsrl.sync.in_process import sync_weights

__all__ = ["sync_weights"]
