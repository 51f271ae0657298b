"""Tools beside a run: rewards tried on stored completions, attacks on rewards, a small base model."""
