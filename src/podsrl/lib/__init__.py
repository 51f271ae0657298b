"""What any stage may use. Imports `errors` and itself only."""
