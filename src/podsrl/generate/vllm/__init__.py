"""vLLM as the generator: what all ways of running it share (`sampling.py`, `order.py`), and in this process."""
