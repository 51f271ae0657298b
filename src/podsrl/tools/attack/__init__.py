"""Reward hacks: texts that do not answer a question, tried on reward functions to see which of them pay.

`target` says what a question's answer is and what is near it; `forms` how an answer is written; `families` reads
hacks.toml and makes its hacks with `words` and `computed`, and those of `programs`; `verdict` says what paying means;
`attack` runs it all.

Nothing here asks the rewards' own reading of an answer: what is attacked must not say what counts as an attack.
"""
