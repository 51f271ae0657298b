"""Generators elsewhere: the worker (`worker.py`), the process it lives in (`process.py`), pools of them (`pool.py`)."""
