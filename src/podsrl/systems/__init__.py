"""Published systems, one module each, under their papers' names: the parts that each of them fills its slots with.

A system is a recipe (`config/recipes/systems/NAME.toml`) that names these parts, and parts of the stages, in slots. The
table of parts names them as texts (`lib/parts.py`).
"""
