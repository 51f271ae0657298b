"""A run as text for a terminal: `picture` fits its size, `standing` says how far the run is."""
