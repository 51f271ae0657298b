"""Send new weights to the generator, and check that it holds them."""

from podsrl.sync.digest import weights_digest
from podsrl.sync.in_process import SyncError, sync_weights
from podsrl.sync.proof import prove_arrival

__all__ = ["SyncError", "prove_arrival", "sync_weights", "weights_digest"]
