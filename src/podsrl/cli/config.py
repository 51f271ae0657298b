"""`pods config`: every option, or some, or a whole config with its comments."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
import typer

from podsrl.cli.console import AsJson, output, print_paragraph, split_words
from podsrl.cli.systems import show_system
from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import apply_overrides, build, load_config, meant_by
from podsrl.config.options import (
    SCHEMAS,
    Chapter,
    OptionEntry,
    chapters_of,
    commented_toml,
    find_options,
    toml_value,
)
from podsrl.config.other_names import OtherName, answer_of, nearest_other_name
from podsrl.config.upgrade import old_key, upgraded
from podsrl.errors import UsageError, nearest
from podsrl.lib.moments import SYSTEMS

if TYPE_CHECKING:
    from pydantic import BaseModel


def show_config(
    context: typer.Context,
    what: Annotated[
        str | None, typer.Argument(help="A section, an option, or a word to look for; with --resolved a CONFIG.")
    ] = None,
    search: Annotated[str | None, typer.Option(help="Look for words in names and meanings.")] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print a whole config as TOML: defaults, then CONFIG, then flags.")
    ] = False,
    of: Annotated[str, typer.Option(help="The command whose options to list: train, compare or pretrain.")] = "train",
    upgrade: Annotated[
        Path | None, typer.Option(help="Print this older file in today's words, without its comments.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the options of a config: the values that each takes, its default and its meaning.

    [bold]Examples[/]

      pods config                                 every option of pods train
      pods config rollouts                        one section
      pods config select.rule                     one option and its known values
      pods config systems.dars                    one system and its options
      pods config num_generations                 what another library calls it
      pods config --search memory                 options that mention memory
      pods config --resolved pods > mine.toml     a whole config, to start from
      pods config --of compare                    the options of pods compare
      pods config --upgrade old.toml              an older config in today's words

    Every option is also a flag, such as pods train pods --select.num_kept=8.
    """
    word, overrides = split_words(what, context.args)
    if of not in SCHEMAS:
        raise UsageError(f"--of {of}: wanted train, compare or pretrain.{nearest(of, SCHEMAS)}")
    if overrides and not resolved:
        raise UsageError(f"{overrides[0]}: values are set with --resolved; `pods config KEY` describes an option")
    if sum((search is not None, upgrade is not None, resolved or word is not None)) > 1:
        raise UsageError("pods config wants one of: a word, --search WORDS, --resolved [CONFIG], --upgrade FILE")
    model = SCHEMAS[of]
    if upgrade is not None:
        _show_upgraded(upgrade, json)
    elif resolved:
        _show_resolved(word, overrides, model if of != "train" else None, json)
    elif search is not None:
        _show_found(model, search, json)
    elif word is None:
        _show_chapters(chapters_of(model), json)
    else:
        _show_word(model, word, json)


def _show_word(model: type[BaseModel], word: str, as_json: bool) -> None:
    """A section; else an option by its key, its last part or another library's name; else what speaks of the word."""
    chapters = chapters_of(model)
    if sections := [chapter for chapter in chapters if chapter.name == word]:
        return _show_chapters(sections, as_json)
    options = {option.key: option for chapter in chapters for option in chapter.options}
    section, _, name = word.partition(".")
    if section == "systems" and name in SYSTEMS:
        return show_system(name, as_json)
    if sentence := old_key(word):
        raise UsageError(sentence)
    exact = [option for key, option in options.items() if word in (key, key.rpartition(".")[2])]
    if not exact:
        cure, others = meant_by(model, word)
        exact = [options[key] for key in dict.fromkeys([cure, *(other.ours for other in others)]) if key in options]
        if others:
            return _show_elsewhere(exact, others, as_json)
    if len(exact) == 1:
        return _show_option(exact[0], as_json)
    if exact:
        return _show_options(exact, as_json)
    if word in recipe_names() or Path(word).is_file():
        raise UsageError(f"{word!r} is a config, not an option: pods config --resolved {word} prints it whole")
    return _show_found(model, word, as_json)


def _show_found(model: type[BaseModel], text: str, as_json: bool) -> None:
    if not (found := find_options(model, text)):
        raise UsageError(f"no option speaks of {text!r}; `pods config` lists all.{nearest_other_name(text)}")
    _show_options(found, as_json)


def _show_elsewhere(options: Sequence[OptionEntry], others: Sequence[OtherName], as_json: bool) -> None:
    """What names of other libraries mean here: options, flags, or why there is neither."""
    if as_json:
        return output.print_json(data=[asdict(other) for other in others])
    for option in options:
        _show_option(option, as_json)
        for other in others:
            if other.ours == option.key and (other.difference or len(options) > 1):
                print_paragraph(str(other), indent="    ")
    if not options:
        print_paragraph(answer_of(others))


def _show_chapters(chapters: Sequence[Chapter], as_json: bool) -> None:
    if as_json:
        return _show_options([option for chapter in chapters for option in chapter.options], as_json)
    for chapter in chapters:
        if chapter.name:
            print_paragraph(f"[{chapter.name}]  {chapter.meaning}", style="bold")
            output.print()
        _show_options(chapter.options, as_json)


def _show_options(options: Sequence[OptionEntry], as_json: bool) -> None:
    if as_json:
        return output.print_json(data=[asdict(option) for option in options])
    for option in options:
        output.print(f"{option.key} = {option.default}", style="cyan", markup=False, highlight=False, soft_wrap=True)
        takes = f" Takes {option.takes}." if option.takes != "text" else ""
        names = f" The names: pods config {option.key}" if option.table else ""
        print_paragraph(f"{option.meaning}{takes}{names}", indent="    ")
    output.print()


def _show_option(option: OptionEntry, as_json: bool) -> None:
    if as_json:
        return output.print_json(data={**asdict(option), "known": list(option.known)})
    section, _, name = option.key.rpartition(".")
    in_file = "…" if option.value is None else toml_value(option.value)
    in_shell = option.value if isinstance(option.value, str) else in_file
    facts = {"takes": option.takes, "default": option.default}
    facts["as a flag"] = f"--{option.key}={in_shell if option.value is None else shlex.quote(in_shell)}"
    facts["in a file"] = f"{name} = {in_file}" + (f"   under [{section}]" if section else "")
    if option.other_names:
        facts["elsewhere"] = option.other_names
    output.print(option.key, style="bold cyan", highlight=False)
    print_paragraph(option.meaning, indent="    ")
    output.print()
    for title, text in facts.items():
        print_paragraph(text, indent=" " * 18, start=f"    {title:14}")
    if option.table:
        of_one = "; the options of one: pods config systems.NAME" if option.key == "systems" else ""
        output.print(f"\nKnown names{of_one}", style="bold", highlight=False)
    for known in option.known:
        print_paragraph(f"{known:13} {option.summary(known)}", indent=" " * 18, start="    ")


def _show_upgraded(file: Path, as_json: bool) -> None:
    read_tree(file)  # which says what is wrong with it
    if not file.is_file():
        raise UsageError(f"--upgrade {file}: wanted a file; recipes of this package are up to date")
    tree = upgraded(tomllib.loads(file.read_text(encoding="utf-8")), file.parent)
    if as_json:
        output.print_json(data=tree)
    else:
        typer.echo(tomli_w.dumps(tree), nl=False)


def _show_resolved(name: str | None, overrides: list[str], model: type[BaseModel] | None, as_json: bool) -> None:
    tree: dict[str, Any] = read_tree(name) if name is not None else {}
    kind = model or SCHEMAS["compare" if "arms" in tree else "train"]
    if kind is SCHEMAS["train"]:
        config: BaseModel = load_config(name, overrides)
    else:
        config = build(kind, apply_overrides(tree, overrides), name or "defaults")
    if as_json:
        output.print_json(data=config.model_dump(mode="json"))
    else:
        typer.echo(commented_toml(config), nl=False)
