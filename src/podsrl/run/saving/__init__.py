"""What a run leaves on the disk: its folder, its checkpoints, and what a resume reads of them."""
