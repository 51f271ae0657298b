"""Which modules get a LoRA adapter: one rule for the model itself and for its sizes alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from podsrl.errors import UsageError, nearest

ALL_LINEAR = "all-linear"


def choose_targets(
    targets: Sequence[str], linears: Collection[str], modules: Mapping[str, str], *, head: str, is_tied: bool
) -> list[str]:
    """Full names of the modules that get an adapter, in the model's order.

    `targets` are ends of names, at a dot, or "all-linear" alone: all `linears` but the output `head` ("": there is
    none). `modules` are full names of any modules with their types. UsageError: a target that ends no module's name
    (the message says the nearest), or names a module that is not linear, or a head whose weight is the embedding's.

    Example:
        >>> linears = ["layers.0.q_proj", "layers.0.mlp.up_proj", "lm_head"]
        >>> choose_targets(["all-linear"], linears, {}, head="lm_head", is_tied=True)
        ['layers.0.q_proj', 'layers.0.mlp.up_proj']
        >>> choose_targets(["q_proj"], linears, {}, head="lm_head", is_tied=True)
        ['layers.0.q_proj']
    """
    if tuple(targets) == (ALL_LINEAR,):
        return [name for name in linears if name != head]
    known, found = set(linears), set[str]()
    for target in targets:
        if target == ALL_LINEAR:
            raise UsageError(f"lora.targets: {ALL_LINEAR!r} stands for all of them, so it stands alone")
        hint = nearest(target, {name.rpartition(".")[2] for name in linears})
        matched = [name for name in (*linears, *modules) if f".{name}".endswith(f".{target}")]
        if not matched:
            raise UsageError(f"lora.targets: {target!r} matches no module of this model.{hint}")
        for name in matched:
            if name not in known:
                raise UsageError(
                    f"lora.targets: {target!r} matches {name}, a {modules[name]}; wanted linear layers.{hint}"
                )
        found.update(matched)
    if is_tied and head in found:
        raise UsageError(
            "lora.targets names the output head, but this model's head is its embedding: an adapter there would untie "
            "them; leave it out"
        )
    return [name for name in linears if name in found]
