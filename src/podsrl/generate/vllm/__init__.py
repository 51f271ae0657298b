"""vLLM as the generator, in this process (`generator.py`) and on servers (`server.py`)."""
