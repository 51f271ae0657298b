"""What a GPU is for first: its tests, comparisons of training with real models, and speed."""
