"""`pods`, whose process group gets a signal at a place of the run: python -m signalled PLACE NUMBER train …"""

from __future__ import annotations

import os
import sys
from functools import wraps
from importlib import import_module
from operator import attrgetter
from typing import Any

PLACES = {
    "loading": ("podsrl.run.step.trainer", "", "new_learner", 1),  # generators in processes of their own load too
    "generating": ("podsrl.generate.checked", "", "_fault", 30),  # 8 completions of an evaluation, 16 of step 1
    "updating": ("podsrl.run.step.learn", "Learner", "optim_step", 2),
    "saving": ("podsrl.run.saving.checkpoint", "", "save_file", 2),  # after step 2
}
"""Place -> the module, the class in it if any, the function, and the number of the call that the signal comes in."""


def signal_at(place: str, number: int) -> None:
    module, inside, name, left = PLACES[place]
    import_module("transformers.modeling_utils")
    found: Any = import_module(module)
    owner = attrgetter(inside)(found) if inside else found
    function = getattr(owner, name)

    @wraps(function)
    def signalled(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.killpg(0, number)
        return function(*arguments, **options)

    setattr(owner, name, signalled)


if __name__ == "__main__":
    from podsrl.lib.signals import leave_on_signal

    leave_on_signal()
    signal_at(sys.argv[1], int(sys.argv[2]))
    sys.argv[1:3] = []
    from podsrl.cli.__main__ import main

    main()
