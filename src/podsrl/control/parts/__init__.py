"""The parts that fill the slots of `[budget]`, and what several of them share."""
