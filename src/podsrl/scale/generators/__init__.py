"""Generators that live elsewhere: the worker (`worker.py`), the process it lives in (`process.py`), and pools of them."""
