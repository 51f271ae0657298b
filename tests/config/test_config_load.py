"""TOML, then flags, strictly: whatever is not known or not possible stops the run in one line that names the cure."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loops import each
from podsrl.compare.runs import plan
from podsrl.config.files import merge, read_tree, recipe_names
from podsrl.config.load import all_keys, apply_overrides, as_overrides, build, changed_keys, dump, load_config
from podsrl.config.pretrain import PretrainConfig
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError


def toml(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def message_of(*overrides: str, source: str | Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(source, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- order: defaults, file, flags ---


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = toml(tmp_path, "seed = 5\n[rollouts]\nnum_rollouts = 32\ntemperature = 0.5\n[select]\nnum_kept = 4\n")
    config = load_config(path, ["--rollouts.temperature=0.7", "select.rule=random"])
    assert (config.seed, config.rollouts.num_rollouts, config.rollouts.temperature) == (5, 32, 0.7)
    assert (config.select.rule, config.select.num_kept) == ("random", 4)
    assert config.rollouts.top_p == 1.0


def test_a_file_of_the_same_name_wins_over_a_recipe_but_a_folder_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pods").mkdir()
    assert load_config("pods") == load_config(str(Path(__file__).parents[2] / "src/podsrl/config/recipes/pods.toml"))
    (tmp_path / "grpo").write_text("seed = 77\n")
    assert load_config("grpo").seed == 77


@each(
    ("text", "value"),
    [
        ("seed=7", 7),
        ("seed=1_000", 1000),
        ("optim.lr=1e-5", 1e-5),
        ("optim.lr=1", 1.0),
        ("optim.betas=[0.8, 0.95]", (0.8, 0.95)),
        ("model.path=builtin:arithmetic", "builtin:arithmetic"),
        ("model.path=runs/a=b", "runs/a=b"),
        ('model.path="quoted folder"', "quoted folder"),
        ("model.path='2024'", "2024"),
        ("model.path=a # b", "a # b"),
        ("task.rewards={correct=2, format=0.5}", {"correct": 2.0, "format": 0.5}),
        ("task.path=", ""),
        ("model.path=größe", "größe"),
    ],
)
def test_values_are_toml_and_bare_words_are_text(text: str, value: Any) -> None:
    found: Any = load_config(None, [f"--{text}"])
    for part in text.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value and type(found) is type(value)


def test_a_key_of_a_table_of_free_names_is_set_beside_the_others(tmp_path: Path) -> None:
    path = toml(tmp_path, "[task.rewards]\ncorrect = 1.0\n")
    assert load_config(path, ["--task.rewards.format=0.2"]).task.rewards == {"correct": 1.0, "format": 0.2}


def test_neither_the_tree_nor_its_sections_are_written_into() -> None:
    tree = {"select": {"num_kept": 4}}
    apply_overrides(tree, ["--select.num_kept=8", "--optim.lr=1"])
    merge(tree, {"select": {"num_kept": 9}})
    assert tree == {"select": {"num_kept": 4}}


def test_merging_goes_down_into_sections_and_replaces_values() -> None:
    base = {"a": {"x": 1, "y": [1]}, "b": 2}
    assert merge(base, {"a": {"y": [2]}, "b": {"z": 3}, "c": 4}) == {"a": {"x": 1, "y": [2]}, "b": {"z": 3}, "c": 4}


# --- unknown and repeated keys ---


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("select.num_kep=4", "unknown key 'select.num_kep'. Did you mean 'select.num_kept'?"),
        ("selct.num_kept=4", "unknown key 'selct.num_kept'. Did you mean 'select.num_kept'?"),
        ("selct.kept=4", "unknown key 'selct'. Did you mean 'select'?"),
        ("sed=4", "unknown key 'sed'. Did you mean 'seed'?"),
        ("rollouts.num_kept=4", "unknown key 'rollouts.num_kept'. Did you mean 'select.num_kept'?"),
        ("select.num_rollouts=4", "unknown key 'select.num_rollouts'. Did you mean 'rollouts.num_rollouts'?"),
        ("num_prompts=4", "unknown key 'num_prompts'. Did you mean 'rollouts.num_prompts'?"),
        ("optim.kl_beta=0.1", "unknown key 'optim.kl_beta'. Did you mean 'loss.kl_beta'?"),
        ("eval.every_second=3", "unknown key 'eval.every_second'. Did you mean 'eval.every_seconds'?"),
        ("loss.algorithm=grpo", "unknown key 'loss.algorithm'. Did you mean 'loss.name'?"),
        ("select.name=max_variance", "unknown key 'select.name'. Did you mean 'select.rule'?"),
        ("loss=grpo", "wanted a section: set one of its keys, as --section.key=value. Did you mean 'loss.name'?"),
        ("model=Qwen/Qwen3-4B", "Did you mean 'model.path'?"),
        ("select.ties=shrot", "wanted 'position', 'short', 'likely' or 'unlikely'. Did you mean 'short'?"),
        ("optim.packing=maybe", "optim.packing = 'maybe': wanted 'auto', 'on' or 'off'"),
        ("select.zzz=4", "unknown key 'select.zzz'. Known: num_chunks, num_kept, options, rule, ties."),
    ],
)
def test_an_unknown_key_names_the_nearest_and_a_right_name_its_right_section(flag: str, hint: str) -> None:
    assert hint in message_of(f"--{flag}")


def test_an_unknown_key_in_a_file_names_the_file_and_all_problems_come_at_once(tmp_path: Path) -> None:
    path = toml(tmp_path, "[optim]\nlearning_rate = 1\n[select]\nnum_kept = 1\n[rollouts]\ntop_p = 2.0\n")
    message = message_of(source=path)
    assert str(path) in message
    for part in ("unknown key 'optim.learning_rate'", "select.num_kept = 1", "rollouts.top_p = 2.0"):
        assert part in message


@pytest.mark.parametrize("second", ["--select.num_kept=9", "select.num_kept=8"])
def test_the_same_flag_twice_is_refused_with_or_without_dashes(second: str) -> None:
    assert "--select.num_kept is given twice" in message_of("--select.num_kept=8", second)


@pytest.mark.parametrize(
    "flags", [("select={num_kept=8}", "select.num_kept=9"), ("select.num_kept=9", "select={num_kept=8}")]
)
def test_a_section_and_a_key_in_it_are_refused_together_in_either_order(flags: tuple[str, str]) -> None:
    assert "set the same values" in message_of(*flags)


def test_flags_whose_names_only_begin_alike_go_together() -> None:
    config = load_config(None, ["--optim.lr=1", "--eval.every_steps=2", "--eval.every_seconds=3", "--task.correct=x"])
    assert (config.eval.every_steps, config.eval.every_seconds) == (2, 3.0)


@pytest.mark.parametrize("flag", ["--select.num_kept", "--", "--=4", "word"])
def test_a_flag_without_key_or_value_says_what_was_wanted(flag: str) -> None:
    assert "wanted --section.key=value" in message_of(flag)


def test_a_key_below_a_value_is_refused(tmp_path: Path) -> None:
    assert "'seed' is a value, not a section" in message_of("--seed.x=1", source=toml(tmp_path, "seed = 4"))


# --- files ---


def test_a_missing_file_names_the_nearest_recipe() -> None:
    assert "no such file, and no such recipe. Did you mean 'pods'?" in message_of(source="podz")


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    assert "no such file" in message_of(source=tmp_path)


def test_broken_toml_names_the_file_and_the_line(tmp_path: Path) -> None:
    message = message_of(source=toml(tmp_path, "seed = 4\n[select\n"))
    assert "config.toml: not valid TOML" in message and "line 2" in message
    assert "not valid TOML" in message_of(source=toml(tmp_path, "seed = 1\nseed = 2\n"))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\xff\xfe\x00\x01")
    assert "not valid TOML" in message_of(source=tmp_path / "weights.bin")


# --- values ---


@each(
    "flag",
    [
        "rollouts.num_rollouts=1",
        "rollouts.num_rollouts=0",
        "rollouts.num_prompts=0",
        "rollouts.num_prompts=-3",
        "rollouts.num_prompts=2.5",
        "rollouts.num_prompts=many",
        "rollouts.max_new_tokens=0",
        "rollouts.max_prompt_tokens=0",
        "rollouts.temperature=0",
        "rollouts.temperature=-1",
        "rollouts.temperature=nan",
        "rollouts.temperature=inf",
        "rollouts.top_p=0",
        "rollouts.top_p=1.5",
        "rollouts.top_k=-1",
        "rollouts.min_p=1",
        "select.num_kept=1",
        "select.num_kept=0",
        "select.num_kept=-4",
        "optim.lr=0",
        "optim.lr=nan",
        "optim.lr=-inf",
        "optim.betas=[0.9]",
        "optim.betas=[0.9, 1.0]",
        "optim.num_epochs=0",
        "optim.micro_batch_tokens=0",
        "optim.max_grad_norm=0",
        "loss.kl_beta=-0.1",
        "loss.kl_beta=nan",
        "loss.ratio=word",
        "eval.every_seconds=-1",
        "eval.every_seconds=inf",
        "eval.num_samples=0",
        "stop.steps=-1",
        "stop.seconds=nan",
        "checkpoint.keep=1",
        "checkpoint.every_steps=-1",
        "task.digits=0",
        "task.digits=4",
        "task.digits=[]",
        "task.digits=[1, 4]",
        "task.digits=[2, 2]",
        "task.digits=true",
        "task.digits=two",
        "task.num_eval=-1",
        "task.rewards={correct=nan}",
        "task.rewards=3",
        "model.dtype=int8",
        "model.path=2024",
        "seed=-1",
        "seed=9223372036854775808",
        "threads=-1",
        "select=5",
    ],
)
def test_a_value_out_of_range_is_named_with_what_was_given(flag: str) -> None:
    message = message_of(f"--{flag}")
    assert message.startswith(f"config defaults: {flag.partition('=')[0]}")
    assert " = " in message.partition(": ")[2].partition(": ")[0]


def test_more_kept_than_generated_names_both_options_and_the_cure() -> None:
    message = message_of("--rollouts.num_rollouts=8", "--select.num_kept=9")
    assert "select.num_kept = 9 is more than rollouts.num_rollouts = 8" in message
    assert "lower select.num_kept or raise rollouts.num_rollouts" in message
    assert load_config(None, ["rollouts.num_rollouts=8", "select.num_kept=8"]).select.num_kept == 8


def test_a_run_that_would_never_end_is_refused() -> None:
    assert "would never end" in message_of("--stop.steps=0")
    assert load_config(None, ["--stop.steps=0", "--stop.seconds=1"]).stop.seconds == 1.0


# --- writing it down ---


EDITED = [
    "seed=9223372036854775807",
    "task.digits=[1, 2, 3]",
    "optim.lr=1e-30",
    "optim.betas=[0.1, 0.30000000000000004]",
    "task.rewards={'mod:f' = 0.1}",
    "task.path=a \\ \"b\" 'c' ü",
    "loss.clip_high=0.28",
]


@pytest.mark.parametrize(
    "config",
    [
        load_config(),
        load_config(None, EDITED),
        build(CompareConfig, read_tree("demo"), "demo"),
        PretrainConfig(digits={1: 0.5, 3: 0.25}, careful={1: 0.9, 3: 0.1}, start="builtin:arithmetic"),
    ],
    ids=["defaults", "edited", "comparison", "pretraining"],
)
def test_a_dumped_config_reads_back_equal(tmp_path: Path, config: Any) -> None:
    assert build(type(config), read_tree(toml(tmp_path, dump(config))), "copy") == config


def test_changed_keys_are_named_with_both_values() -> None:
    old, new = load_config(), load_config(None, ["--select.num_kept=8", "--seed=3", "--loss.clip_low=0.1"])
    lines = changed_keys(old.model_dump(mode="json"), new.model_dump(mode="json"))
    assert lines == ["loss.clip_low (None -> 0.1)", "seed (0 -> 3)", "select.num_kept (16 -> 8)"]
    assert changed_keys({"a": {"b": 1}}, {"a": 2, "c": 3}) == ["a ({'b': 1} -> 2)", "c (None -> 3)"]


def test_all_keys_are_dotted_and_each_default_passes_its_own_check() -> None:
    keys = all_keys(RunConfig)
    assert {"seed", "model.path", "select.num_kept", "task.rewards", "optim.betas"} <= set(keys)
    assert not {"model", "select", "task"} & set(keys)
    assert build(RunConfig, RunConfig().model_dump(), "defaults") == RunConfig()


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("--lora=5", "lora = 5: wanted a section"),
        ("--steps=10", "stop.steps"),
        ("--lora.targets=[]", "lora.targets = []: wanted at least one name"),
        ("--lora.targets=q_proj,", "lora.targets = 'q_proj,': wanted at least one name, and no empty ones"),
        ("--task.rewards=correct", "task.rewards = 'correct': wanted a table of names and values"),
        ("--rollouts.stop_strings=abc", "rollouts.stop_strings = 'abc': wanted a list"),
        ("--rollouts.kv_cache_bytes=5TB", "rollouts.kv_cache_bytes = '5TB': wanted a number of bytes"),
        ("--threads=2000", "threads = 2000"),
    ],
)
def test_a_bad_value_says_what_was_wanted(override: str, wanted: str) -> None:
    with pytest.raises(UsageError, match=re.escape(wanted)):
        load_config(None, [override])


# --- the configs that come with the package ---


@each("name", recipe_names(), few=17)
def test_every_recipe_parses(name: str) -> None:
    tree = read_tree(name)
    if "arms" not in tree:
        config = load_config(name)
        assert math.isfinite(config.stop.seconds) and config.select.num_kept <= config.rollouts.num_rollouts
        return
    comparison = build(CompareConfig, tree, name)
    assert {member.arm for member in plan(comparison, Path("nowhere"))} == comparison.arms.keys()


def test_a_comparison_wants_two_arms_and_its_baseline_among_them() -> None:
    arms: dict[str, Any] = {"a": {}, "b": {}}
    with pytest.raises(UsageError, match="wanted at least two"):
        build(CompareConfig, {"baseline": "a", "arms": {"a": {}}}, "x")
    with pytest.raises(UsageError, match="baseline = 'c' is none of the arms"):
        build(CompareConfig, {"baseline": "c", "arms": arms}, "x")
    with pytest.raises(UsageError, match=r"unknown key 'num_seed'\. Did you mean 'num_seeds'"):
        build(CompareConfig, {"baseline": "a", "arms": arms, "num_seed": 1}, "x")
    with pytest.raises(UsageError, match="baseline"):
        build(CompareConfig, {"arms": arms}, "x")


@pytest.mark.parametrize("text", ["q_proj,v_proj", "q_proj, v_proj", '["q_proj", "v_proj"]'])
def test_names_of_modules_are_a_list_or_words_with_commas(text: str) -> None:
    lora = load_config(None, [f"--lora.targets={text}"]).lora
    assert lora is not None and lora.targets == ("q_proj", "v_proj")


def test_chunks_must_divide_both_numbers_and_keep_two_each() -> None:
    assert load_config(None, ["--select.num_chunks=8"]).select.num_chunks == 8
    for chunks in (3, 16, 32):
        assert f"select.num_chunks = {chunks} does not divide" in message_of(f"--select.num_chunks={chunks}")


def test_four_bits_without_adapters_and_half_a_cosine_are_refused() -> None:
    assert "set lora.rank" in message_of("--model.load_in_4bit=true")
    assert "optim.schedule_steps = 0: 'cosine' wants" in message_of("--optim.schedule=cosine")
    assert ": optim.schedule_steps = 10 has no effect with optim.schedule = 'constant'" in message_of(
        "--optim.schedule_steps=10"
    )
    steps = ("--optim.schedule=cosine", "--optim.schedule_steps=5", "--optim.warmup_steps=5")
    assert "more than optim.warmup_steps = 5" in message_of(*steps)


@each(
    ("flag", "value"),
    [("select.options.margin=nan", "nan"), ("options.stale={age = [1, inf]}", "inf"), ("optim.lr=-inf", "-inf")],
)
def test_a_number_that_is_not_finite_is_refused_in_options_of_any_name_too(flag: str, value: str) -> None:
    key = "options.stale.age" if "age" in flag else flag.partition("=")[0]
    with pytest.raises(UsageError, match=f"{key} = {value}: wanted a finite number$"):
        load_config(None, [f"--{flag}"])


def test_options_of_a_rule_are_a_table_of_any_names(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[select]\nrule = "my_rules:f"\noptions = {share = 0.25, names = ["a"]}\n')
    config = load_config(path, ["--select.options.share=0.5", "--select.options.last=true"])
    assert config.select.options == {"share": 0.5, "names": ["a"], "last": True}
    again = tmp_path / "again.toml"
    again.write_text(dump(config))
    assert load_config(again) == config


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("a.= \"'é\n\x7f", min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["near", "far"]), st.dictionaries(st.just("x"), VALUES, min_size=1)))
def test_what_is_given_in_python_is_what_the_flags_say(options: dict[str, Any]) -> None:
    assert apply_overrides({}, as_overrides({"options": options, "select": {"options": options or {"y": 1}}})) == {
        "options": options,
        "select": {"options": options or {"y": 1}},
    }


def test_a_config_may_come_from_a_file_a_dict_or_a_config_and_sections_are_keywords() -> None:
    wanted = load_config("pods", ["select.num_kept=8", "seed=2", "task.digits=[1, 3]"])
    changes: dict[str, Any] = {"select": {"num_kept": 8}, "seed": 2, "task": {"digits": (1, 3)}}
    assert load_config("pods", changes) == load_config("pods", **changes) == wanted
    assert load_config(load_config("pods"), **changes) == wanted
    assert load_config(load_config("pods").model_dump(exclude_none=True), **changes) == wanted
    assert load_config(None, {"model": {"path": Path("a") / "b"}}).model.path == "a/b"


def named(task: Any, text: str) -> float:
    return 1.0


def test_rewards_are_functions_or_names_with_or_without_weights() -> None:
    name = f"{__name__}:named"
    for given_as, weights in (
        (named, {name: 1.0}),
        ("format", {"format": 1.0}),
        (["format", named], {"format": 1.0, name: 1.0}),
        ({"format": 0.5, named: 2}, {"format": 0.5, name: 2.0}),
    ):
        assert load_config("pods", rewards=given_as).task.rewards == weights
    assert load_config("pods", task={"rewards": [named]}).task.rewards == {name: 1.0}
    assert load_config("pods", select={"rule": named}).select.rule == name


@each(
    ("changes", "message"),
    [
        ({"reward": ["format"]}, "config pods: unknown key 'reward'. Did you mean 'task.rewards'?"),
        ({"select": {}}, "select = {}: sets nothing; wanted options of this section, or leave it out"),
        ({"lora": None}, "lora = None: leave it out"),
        ({"seed": {1}}, "seed = {1}: wanted a text, a number, true or false, a list, a dict or a function"),
        ({"rewards": ["format"], "task": {"rewards": named}}, "override --task.rewards is given twice: keep one"),
        (
            {"rewards": [named, named]},
            f"rewards = ['{__name__}:named', '{__name__}:named']: give each a name of its own",
        ),
    ],
)
def test_what_no_option_can_hold_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_config("pods", **changes)
    assert str(refused.value) == message


def test_mini_batches_have_whole_groups() -> None:
    with pytest.raises(UsageError, match=r"^.*optim.num_minibatches = 3 does not divide rollouts.num_prompts = 8"):
        load_config("pods", ["optim.num_minibatches=3"])
    assert load_config("pods", ["optim.num_minibatches=4", "optim.num_epochs=3"]).optim.num_updates == 12
