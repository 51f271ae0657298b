"""What `mkdocs build` makes of the repository (mkdocs.yml names this file as its hook).

Every page keeps its place in the repository, so its relative links hold in both. The site has what can be reached from
docs/index.md, its home: pages, pictures, and other linked files, of which Python becomes a page with its code. The
navigation is its table "All pages". The API reference has what `REFERENCE` names, from the docstrings of the source.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
HOME = "docs/index.md"
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)#\s]+)[^)\s]*\)")
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")

REFERENCE = {
    "podsrl": [
        *("podsrl.api.train", "podsrl.api.evaluate", "podsrl.api.Run", "podsrl.api.Interrupted"),
        *("podsrl.api.compare", "podsrl.api.plan", "podsrl.api.check_reward"),
        *("podsrl.config.load.load_config", "podsrl.config.load.with_values", "podsrl.run.loop.train"),
        *(
            "podsrl.run.step.step.training_step",
            "podsrl.run.step.trainer.Trainer",
            "podsrl.run.step.step_result.StepResult",
        ),
        *("podsrl.run.step.desk.Desk", "podsrl.run.step.learn.Learner", "podsrl.run.evaluate.evaluate"),
    ],
    "podsrl.types": ["podsrl.types"],
    "podsrl.errors": ["podsrl.errors"],
    "podsrl.policy": ["podsrl.policy"],
    "podsrl.tasks": ["podsrl.tasks"],
    "podsrl.control": ["podsrl.control"],
    "podsrl.control.fixed": ["podsrl.control.fixed"],
    "podsrl.systems": [
        *("podsrl.systems.dapo.DynamicSampling", "podsrl.systems.dars.Harder", "podsrl.systems.dots.Difficulty"),
        *(
            "podsrl.systems.dps.Dynamics",
            "podsrl.systems.gdro_rollouts.Bandit",
            "podsrl.systems.gdro_prompts.BinWeights",
        ),
        *("podsrl.systems.sgpo.Profile", "podsrl.systems.xrpo.Confidence", "podsrl.systems.xrpo.Examples"),
        *("podsrl.systems.xrpo.Novelty", "podsrl.systems.reinforce_ada.Seek", "podsrl.systems.reinforce_ada.PoolMean"),
        *("podsrl.systems.vigor.Varied", "podsrl.systems.duet.Neyman", "podsrl.systems.aero.drop_surplus"),
        *(
            "podsrl.systems.poise.States",
            "podsrl.systems.poise.Probe",
            "podsrl.systems.trace.Contrast",
            "podsrl.systems.sapo.Swarm",
        ),
    ],
    "podsrl.generate": ["podsrl.generate"],
    "podsrl.score": ["podsrl.score"],
    "podsrl.score.rewards": ["podsrl.score.rewards.answers", "podsrl.score.rewards.paper", "podsrl.score.rewards.tags"],
    "podsrl.select": ["podsrl.select"],
    "podsrl.update": ["podsrl.update"],
    "podsrl.sync": ["podsrl.sync"],
    "podsrl.records": ["podsrl.records"],
    "podsrl.compare": ["podsrl.compare"],
    "podsrl.report": ["podsrl.report.read", "podsrl.report.html"],
    "podsrl.integrations": [
        *("podsrl.integrations.trl", "podsrl.integrations.verl", "podsrl.integrations.art"),
        *("podsrl.integrations.verifiers", "podsrl.integrations.choice.Choice"),
    ],
}
"""Page -> what it documents: objects, or modules with their public names. The stages stand in the order of the data."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give every page its place in the repository, and set the navigation."""
    found = Files([file for file in files if not str(file.abs_src_path).startswith(config.docs_dir)])
    places = [HOME]
    for place in places:  # grows
        found.append(new_file(config, place))
        if place.endswith(".md"):
            text = BLOCK.sub("", (ROOT / place).read_text())
            linked = (normpath(PurePosixPath(place).parent / target) for _, target in LINK.findall(text))
            places += [other for other in dict.fromkeys(linked) if other not in places]
    found.append(new_file(config, "docs/site.css"))
    for page, names in REFERENCE.items():
        found.append(File.generated(config, f"reference/{page}.md", content=reference(page, names)))
    config.nav = navigation()
    return found


def new_file(config: MkDocsConfig, place: str) -> File:
    path = ROOT / place
    if place.endswith(".py"):
        code = f"# {path.name}\n\n```python\n{path.read_text()}```\n"
        return File.generated(config, place.replace(".py", ".md"), content=code)
    if place == HOME:
        return File.generated(config, "index.md", content=home())
    return File.generated(config, place, abs_src_path=str(path))


def home() -> str:
    """The home page as it stands at the site's root: its links begin with its own folder."""
    folder = PurePosixPath(HOME).parent
    return re.sub(r"(?<=\]\()(?!\w+:|#)[^)#\s]+", lambda link: normpath(folder / link[0]), (ROOT / HOME).read_text())


def reference(page: str, names: list[str]) -> str:
    if names == [page]:  # the page's own heading is that of the module
        return f"# {page}\n\n::: {page}\n    options: {{show_root_heading: false}}\n"
    return f"# {page}\n\n" + "\n\n".join(f"::: {name}" for name in names)


def navigation() -> list[Any]:
    """The rows of the home page's table, the examples, and the reference."""
    table = home().split("## All pages\n")[1]
    rows = re.findall(r"^\| ([^|]+) \| (.*\]\(.*) \|$", table, re.MULTILINE)
    groups = [{capital(name): [{capital(title): page} for title, page in LINK.findall(row)]} for name, row in rows]
    examples = ["examples/README.md", *(f"examples/{path.stem}.md" for path in sorted(ROOT.glob("examples/*.py")))]
    groups.append({"Examples": examples})
    return [{"Home": "index.md"}, *groups, {"API": [{page: f"reference/{page}.md"} for page in REFERENCE]}]


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to a Python file to the page with its code."""
    return re.sub(r"(\]\((?!\w+:)[^)\s]+)\.py\)", r"\1.md)", markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """PluginError: a browser would load something from elsewhere."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri}: a page loads nothing from elsewhere, but there is {found[0]}")
    return output


class Docstrings(griffe.Extension):
    """Docstrings as the site shows them: examples as code, and the pages that they name as links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = re.sub(r"^( *)Example:\n(?=\s+>>>)", r"\1Examples:\n", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"\bdocs/[\w-]+\.md\b", r"[\g<0>](../\g<0>)", text)
