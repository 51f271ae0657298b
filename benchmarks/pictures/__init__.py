"""PODS in ten pictures: a recorded group of answers, what is drawn of it, and what docs/pictures.md says of it."""
