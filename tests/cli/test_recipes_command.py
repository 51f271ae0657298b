"""`pods recipes`, and what a shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from podsrl.config.files import read_tree, recipe_names

Pods = Callable[..., tuple[int, str, str]]


def test_every_recipe_has_an_idea_and_a_command(pods: Pods) -> None:
    code, said, _ = pods("recipes", "--json")
    found = {each["name"]: each for each in json.loads(said)}
    assert code == 0 and list(found) == [name for name in recipe_names() if "/" not in name]
    for name, each in found.items():
        verb = "compare" if "arms" in read_tree(name) else "train"
        assert each["command"] == f"pods {verb} {name}" and 20 < len(each["idea"]) < 200 and each["idea"][-1] == "."
    table = pods("recipes")[1]
    assert all(each["command"] in table for each in found.values()) and "systems/…" in table and "paper/…" in table


def test_a_shell_completes_commands_and_recipes() -> None:
    for words, place, wanted in (("pods rec", 1, {"recipes"}), ("pods train smo", 2, {"smol", "smol-arms"})):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(place), "_PODS_COMPLETE": "complete_bash"}
        command = [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['pods']; from podsrl.cli.__main__ import main; main()",
        ]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **asked})
        assert set(done.stdout.split()) == wanted, done.stderr
