"""Runs every recipe and every moment here and at another commit, and says which are not equal and what differs first.

    python tests/golden.py HEAD                                     what is changed and not committed
    python tests/golden.py v1.2 --only systems/d "two processes"  cases whose name holds one of these texts
    python tests/golden.py ../other/checkout --jobs 1               any folder with src/podsrl

Each case is a small run: three steps, then a resume from the checkpoint of step 2 up to step 4. Metrics but for seconds
and memory, recorded groups, tensors and states of all checkpoints must be equal bit for bit, and so must each recipe's
whole config. Both sides run on this machine, since another processor rounds otherwise, and by the same commands; a name
that has changed stands in `RENAMED`. A case that fails on both sides, or trains without a gradient, shows nothing and
counts as different. What a commit gave is kept in ~/.cache/podsrl/golden. The exit code is 0 where all are equal, else
1. This is no test of its own and pytest does not collect it; test_golden.py plants a change that it must find.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.kills.compare import OF_THE_CLOCK  # noqa: E402
from benchmarks.kills.schedules import MIXED, SCHEDULES  # noqa: E402

RENAMED: Mapping[str, str | None] = MappingProxyType({})
"""Name of an option, metric or entry of a state -> its name at the other commit; None: there was none.

An option with a value, as the cases write it, stands for others with their own values; a name that holds another one,
as "options.NAME.x" and "NAME/x" do, has that one's. Empty it once no commit is compared that has the old names."""
REFORMED: tuple[str, ...] = ()
"""Begins of names of tensors whose form is another. Empty it once no commit is compared that has the old form."""
GONE = frozenset({"matmul"})
"""Entries of a state that only older commits have."""
RECIPES = "src/podsrl/config/recipes"
EVERY = {"stop.steps": "3", "checkpoint.every_steps": "2", "record.groups_every_steps": "1", "model.matmul": "onednn"}
RESUMED = ("--resume", "run", "--stop.steps=4", "--plain")
NO_SUMS = {key: value for key, value in MIXED.items() if key != "task.digits"}
CHAT = {
    **NO_SUMS,
    "model.path": "../../../chat",
    "task.system_prompt": ".",
    "rollouts.max_prompt_tokens": "64",
    "task.reward_workers": "1",
}
"""For recipes of instruct models: the small model with a chat template."""
PAPER = {**CHAT, "lora.rank": "4", "model.load_in_4bit": "false", "optim.name": "adamw"}
CHUNKS = {"optim.warmup_steps": "1", "optim.schedule_steps": "9", "rollouts.num_prompts": "1"}
KEPT_ALL = {**CHUNKS, "rollouts.num_rollouts": "32", "select.num_kept": "32"}
KEPT_FEW = {**CHUNKS, "rollouts.num_rollouts": "32", "select.num_kept": "8"}
SMALL = {
    **dict.fromkeys(("gsm8k", "math", "smol", "code"), CHAT),
    "steps": {**NO_SUMS, "rollouts.max_new_tokens": "320"},
}
ANY = {"task.rewards": "{any_correct = 1.0, math_correct = 1.0, answer_format = 0.2}"}
OWN: Mapping[str, Mapping[str, str]] = {
    "columns": SCHEDULES["answers of several turns"][1],
    "systems/gigpo": {**SCHEDULES["answers of several turns"][1], "select.num_kept": "6"},
    "systems/areal": {"scale.generators": "0", "order.rest": "put_off"},  # clocks decide nothing
    "systems/poise": {"select.num_kept": "6", "options.poise.at": "[4, 8]"},
    **dict.fromkeys(("gsm8k", "math", "smol"), ANY),
    "code": {**ANY, "task.name": "gsm8k", "task.correct": "math_correct"},  # not everybody has a sandbox
    "systems/sapo": {"options.sapo.num": "3"},
    **{f"paper/{setting}-grpo_ga": KEPT_ALL for setting in "de"},
    **{f"paper/{setting}-pods": KEPT_FEW for setting in "de"},
}
"""Of recipes, by how their names begin; the first that fits counts."""
MOMENTS: Mapping[str, tuple[int, str, Mapping[str, str]]] = {
    "two processes": (2, "pods", {**SCHEDULES["adapters, KL penalty"][1], "lora.dropout": "0"}),
    "two processes, one step ahead": (
        2,
        "mixed",
        {**MIXED, "order.ahead": "1", "scale.generators": "2", "scale.strategy": "fsdp2"},
    ),
}
"""Beside the schedules: name -> number of processes, recipe, and what replaces its options."""
FORM = 1
"""Of what is kept of a case; raise it when `facts_of` or `make_inputs` changes."""
LIMIT_SECONDS = 600.0
"""Of one command."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Commands that run one after the other in a folder of their own."""

    name: str
    commands: tuple[tuple[str, ...], ...]


# --- cases ---


def cases(folder: Path) -> Iterator[Case]:
    """All of them: the schedules that are killed in benchmarks/, further moments, and the recipes of a checkout."""
    for name, (recipe, options) in SCHEDULES.items():
        yield Case(name=name, commands=_run(recipe, options))
    for name, (processes, recipe, options) in MOMENTS.items():
        yield Case(name=name, commands=_run(recipe, options, processes=processes))
    evaluation = ("eval", "mixed", "--num-questions", "6", "--samples", "4", "--out", "answers.jsonl")
    yield Case(name="evaluation", commands=(evaluation,))
    done = {recipe for recipe, _ in SCHEDULES.values() if recipe.startswith("systems/")}
    done |= {f"paper/{setting}" for setting in "abcde"}  # each is the same text as its "-pods"
    for file in sorted((folder / RECIPES).rglob("*.toml")):
        recipe, text = file.relative_to(folder / RECIPES).with_suffix("").as_posix(), file.read_text()
        is_comparison = "[arms" in text  # of arms that are recipes
        shown = ("config", "--resolved", "--json", recipe, "--of", "compare" if is_comparison else "train")
        run: tuple[tuple[str, ...], ...] = ()
        if not is_comparison and recipe not in done:
            small = PAPER if recipe.startswith("paper/") else SMALL.get(recipe, MIXED)
            kept = {"select.num_kept": "4"} if "[select]" in text and "keep_all" not in text else {}
            own = next((own for start, own in OWN.items() if recipe.startswith(start)), {})
            run = _run(recipe, {**small, **kept, **own})
        yield Case(name=recipe, commands=(shown, *run))


def _run(recipe: str, options: Mapping[str, str], *, processes: int = 1) -> tuple[tuple[str, ...], ...]:
    start = ("train",) if processes == 1 else ("launch", "--processes", str(processes))
    is_swarm = recipe in ("systems/sapo", "systems/ftis")
    options = {**options, **EVERY, **({"options.sapo.folder": "swarm"} if is_swarm else {})}
    words = (*start, recipe, "--plain", *(f"--{key}={value}" for key, value in options.items()))
    others = [(*words, "--seed=1", "--out", "other")] if is_swarm else []
    return (*others, (*words, "--out", "run"), (*start, *RESUMED))


def make_inputs(folder: Path) -> None:
    """A model that takes chats and answers sums, and sums in the columns of GSM8K and MATH."""
    chat = folder / "chat"
    shutil.copytree(ROOT / "src/podsrl/models/arithmetic-mixed", chat)
    tokenizer = json.loads((chat / "tokenizer_config.json").read_text())
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ '\\n' if add_generation_prompt }}"
    (chat / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": template}))
    sums = [(a, b) for a in range(2, 9) for b in range(3, 8)]
    for name in ("gsm8k", "math"):
        (folder / "data" / name).mkdir(parents=True)
        for split, part in (("train", sums[6:]), ("test", sums[:6])):
            lines = [json.dumps(_row(name, f"What is {a} + {b}?", a + b)) for a, b in part]
            (folder / "data" / name / f"{split}.jsonl").write_text("\n".join(lines))


def _row(name: str, question: str, answer: int) -> Json:
    if name == "gsm8k":
        return {"question": question, "answer": f"#### {answer}"}
    return {"problem": question, "solution": f"$\\boxed{{{answer}}}$", "level": "Level 1", "type": "Prealgebra"}


# --- runs ---


class Failed(Exception):
    """A command that did not end as it should, with its last words."""


class Side:
    """The package of one commit, and where its runs lie. With `kept`, what its cases gave is written there and read."""

    def __init__(self, folder: Path, *, is_other: bool, kept: Path | None = None) -> None:
        self.folder, self._is_other, self._kept = folder, is_other, kept
        (folder / "runs").mkdir()
        self.pods("-c", "import podsrl; assert __import__('sys').argv[1] in podsrl.__file__", str(folder), cwd=folder)

    def facts(self, case: Case) -> Json:
        """What a case gives. Failed: a command fails."""
        key = hashlib.sha256(repr((FORM, case)).encode()).hexdigest()[:16]
        kept = self._kept / f"{key}.json" if self._kept else None
        if kept is None or not kept.exists():
            found = self._new_facts(case, self.folder / "runs" / key)
            if kept is None:
                return found
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
        return json.loads(kept.read_text())  # type: ignore[no-any-return]

    def _new_facts(self, case: Case, folder: Path) -> Json:
        folder.mkdir()
        found: Json = {}
        for words in case.commands:
            if "--resume" in words:
                shutil.rmtree(max((folder / "run/checkpoints").glob("step-*")))
                (folder / "run/finished.json").unlink()
            own = translated(words) if self._is_other else words
            said = self.pods("-m", "podsrl.cli", *own, cwd=folder)
            stage = "resumed" if "--resume" in words else words[0]
            found[stage] = {"config": json.loads(said)} if words[0] == "config" else facts_of(folder)
        shutil.rmtree(folder)
        lines = found.get("resumed", {}).get("run/metrics.jsonl", [])
        if lines and not any(line.get("grad_norm") for line in lines):
            raise Failed("no step had a gradient, so that equal weights would show nothing")
        return found

    def pods(self, *words: str, cwd: Path) -> str:
        """What a command of this side's package prints. Failed: it fails, or takes too long."""
        import children

        own = {
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": str(self.folder / "src"),
            "PODS_DATA": str(self.folder.parent / "data"),
        }
        asked: Any = {"cwd": cwd, "env": os.environ | own, "timeout": LIMIT_SECONDS}
        try:
            done = children.run([sys.executable, *words], capture_output=True, text=True, **asked)
        except children.TimeoutExpired as error:
            raise Failed(f"pods {' '.join(words[2:4])}: has not ended after {LIMIT_SECONDS:g} s") from error
        if done.returncode:
            last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
            raise Failed(f"pods {' '.join(words[2:4])}: ended with {done.returncode}: {last}")
        return str(done.stdout)


def facts_of(folder: Path) -> Json:
    """Of all runs below a folder: lines of logs, states and digests of tensors, without what the clock says."""
    found: Json = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.suffix == ".jsonl" and file.name != "starts.jsonl":
            found[name] = [_timeless(json.loads(line)) for line in file.read_text().splitlines()]
        elif file.name == "state.json":
            state = json.loads(file.read_text())
            found[name] = {key: value for key, value in state.items() if key not in OF_THE_CLOCK | GONE | {"config"}}
        elif file.suffix == ".safetensors":
            found[name] = _tensors(file.read_bytes())
    order = ("metrics.jsonl", "groups.jsonl", ".jsonl", ".safetensors", "state.json")
    return dict(sorted(found.items(), key=lambda item: next(i for i, end in enumerate(order) if item[0].endswith(end))))


def _timeless(line: Json) -> Json:
    return {key: value for key, value in line.items() if not key.startswith(("seconds/", "memory/"))}


def _tensors(data: bytes) -> Json:
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            digest = hashlib.sha256(data[start + begin : start + end]).hexdigest()[:12]
            found[name] = f"{entry['dtype']} {entry['shape']} {digest}"
    return found


# --- comparison ---


def translated(words: Sequence[str]) -> Iterator[str]:
    """A command of the newer side, by the names of the other."""
    for word in words:
        key, _, value = word.removeprefix("--").partition("=")
        name = RENAMED.get(f"{key}={value}", _renamed(key) if word.startswith("--") else key)
        if name is not None:
            yield from (
                [word]
                if name == key
                else [f"--{each}" if "=" in each else f"--{each}={value}" for each in name.split()]
            )


def _renamed(name: str) -> str | None:
    """A name, or the one that it holds, at the other commit."""
    if name in RENAMED:
        return RENAMED[name]
    for mark in ("/", "."):
        parts = name.split(mark)
        name = mark.join(str(RENAMED.get(part) or part) for part in parts)
    return name


def renamed(value: Any) -> Any:
    """What the newer side gave, by the names of the other."""
    if isinstance(value, Mapping):
        names = {key: _renamed(key) for key in value}
        return {name: renamed(value[key]) for key, name in names.items() if name is not None}
    return [renamed(item) for item in value] if isinstance(value, list) else value


def first_difference(old: Any, new: Any, where: str = "") -> str | None:
    """Where two values first differ, and how; of configs, which get new options, only what both have is compared."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if (key in old and key in new) or "config" not in where]
        keys = [key for key in keys if not str(key).startswith(REFORMED)]
        pairs = [(old.get(key, ...), new.get(key, ...), f"{where}, {key}") for key in keys]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(old[i], new[i], f"{where}, {_place(i, old[i])}") for i in range(len(old))]
    else:
        return None if repr(old) == repr(new) else f"{where.removeprefix(', ')}: {_short(old)} -> {_short(new)}"
    return next((found for pair in pairs if (found := first_difference(*pair))), None)


def _place(index: int, item: Any) -> str:
    return f"step {item['step']}" if isinstance(item, dict) and "step" in item else str(index)


def _short(value: Any) -> str:
    text = "nothing" if value is ... else f"{len(value)} entries" if isinstance(value, list) else json.dumps(value)
    return text if len(text) < 100 else f"{text[:97]}..."


def compared(case: Case, old: Side, new: Side) -> str | None:
    """What differs first, if anything does; a failure of either side is a difference."""
    found: list[Any] = []
    for name, side in (("there", old), ("here", new)):
        try:
            found.append(side.facts(case))
        except Failed as failure:
            return f"{name}: {failure}"
    return first_difference(found[0], renamed(found[1]))


def check_out(commit: str, folder: Path) -> str | None:
    """Copy src/podsrl of a commit, or of a folder, to `folder`; the commit's full name, None for a folder."""
    if (Path(commit) / "src/podsrl").is_dir():
        shutil.copytree(Path(commit) / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        return None
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--verify", f"{commit}^{{commit}}"], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{commit!r}: wanted a commit of {ROOT}, or a folder with src/podsrl")
    packed = subprocess.run([*git, "archive", found.stdout.strip(), "src"], check=True, capture_output=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return found.stdout.strip()


def compare(commit: str, only: Sequence[str], jobs: int) -> list[str]:
    """Names of the cases that differ; each is printed with its first difference."""
    with tempfile.TemporaryDirectory(prefix="podsrl-golden-") as scratch:
        there, here = Path(scratch, "there"), Path(scratch, "here")
        full = check_out(commit, there)
        check_out(str(ROOT), here)
        make_inputs(Path(scratch))
        machine = (platform.node(), platform.processor(), metadata.version("torch"), metadata.version("transformers"))
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "podsrl/golden")
        kept = caches / f"{full}-{hashlib.sha256(repr(machine).encode()).hexdigest()[:8]}" if full else None
        old, new = Side(there, is_other=True, kept=kept), Side(here, is_other=False)
        every = {case.name: case for folder in (there, here) for case in cases(folder)}
        chosen = [case for case in every.values() if not only or any(text in case.name for text in only)]
        if not chosen:
            raise SystemExit(f"--only {' '.join(only)}: no such case; there are {', '.join(every)}")
        chosen.sort(key=lambda case: "process" not in case.name)  # what takes longest comes first
        begun, different = time.monotonic(), []
        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(compared, case, old, new): case for case in chosen}
            for done, future in enumerate(as_completed(running), 1):
                left, name = (time.monotonic() - begun) / done * (len(chosen) - done), running[future].name
                if (found := future.result()) is not None:
                    different.append(name)
                print(f"[{done}/{len(chosen)}, {left:.0f} s left] {name}: {found or 'equal'}", flush=True)
    print(f"{len(chosen) - len(different)} of {len(chosen)} cases equal to {commit}", flush=True)
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="or a folder with src/podsrl")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="cases whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time, each of one thread")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    different = compare(options.commit, options.only, options.jobs)
    if different:
        raise SystemExit(f"{len(different)} cases are not equal to {options.commit}: {', '.join(different)}")


if __name__ == "__main__":
    main()
