"""vLLM as the generator, in this process or its own (`generator.py`) and on servers (`server.py`)."""
