"""Published systems, one module each, under their papers' names: the parts that each is made of.

A config names systems in `systems`, and a recipe of a system (`config/recipes/systems/NAME.toml`) sets what else its
paper sets. The table of them has their places as texts (`podsrl.lib.moments.SYSTEMS`).
"""
