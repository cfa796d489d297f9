"""Cards of the methods that are chosen by name: formula, sentence, source, needs and options, from their docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from docs_site.config_files import config_files, explanation
from docs_site.markdown import code, prose, settings, table
from hgpo_gym.advantages import ESTIMATORS, needed_by
from hgpo_gym.advantages.columns import COLUMNS
from hgpo_gym.rollouts.samplers import SAMPLERS
from hgpo_gym.rollouts.shaping import SHAPERS
from hgpo_gym.rollouts.teams import TEAMS
from hgpo_gym.trainers.update.objectives import OBJECTIVES, preferred_aggregation

PAGES = {
    "grpo": "grpo.md",
    "gigpo": "gigpo.md",
    "hgpo": "hgpo.md",
    "hgpo_gae": "ours.md#hgpo_gae",
    "nested_bellman": "ours.md#nested_bellman",
}
"""Estimators with a page beside their card."""
KINDS: Mapping[str, tuple[str, Mapping[str, Callable[..., Any]]]] = {
    "estimators": ("algo", ESTIMATORS),
    "objectives": ("objective", OBJECTIVES),
    "samplers": ("sampler", SAMPLERS),
    "shapings": ("shaping", SHAPERS),
    "teams": ("team", TEAMS),
}
"""The config group and the registry of each kind of card."""
RECORDED = {"group", "trajectory", "step", "reward", "context_keys", "penalty"}
"""The columns that every batch has."""
FAMILY = re.compile(r"Family: ([^.]+)\. ?")
"""What an estimator compares, in its docstring."""
SECTIONS = re.compile(r"^(Args|Returns|Raises|Warns|Attributes):?(\s|$)")


def cards(kind: str) -> str:
    """A card for every choice of a kind that comes with this package, in alphabetical order."""
    return "\n\n".join(card(KINDS[kind][0], name, entry) for name, entry in sorted(built_in(kind)))


def built_in(kind: str) -> list[tuple[str, Callable[..., Any]]]:
    """The choices of a kind that come with this package, in the order of their registry."""
    registry = KINDS[kind][1]
    return [(name, registry[name]) for name in registry if registry[name].__module__.startswith("hgpo_gym.")]


def card(group: str, name: str, entry: Callable[..., Any]) -> str:
    """The card of one choice."""
    text, source = _body(inspect.getdoc(entry) or "")
    # The names of other estimators lead to their cards.
    others = "|".join(other for other, _ in built_in("estimators") if group == "algo" and other != name)
    text = re.sub(f"<code>({others})</code>", r"[`\1`](#\1)", text) if others else text
    facts = [("needs", needs)] if group == "algo" and (needs := _needs(entry)) else []
    facts += [("default mean", code(preferred_aggregation(name)))] if group == "objective" else []
    facts += [("formula from", _linked(source))] if source else []
    facts += [("its page", f"[{name}]({PAGES[name]})")] if group == "algo" and name in PAGES else []
    parts = [f"### {name} {{#{name}}}", text, table(("set", code(f"{group}={name}")), facts)]
    rows = list(_options(group, name))
    return "\n\n".join([*parts, settings(("option", "default", "what it does"), rows)] if rows else parts)


def families(_: str = "") -> str:
    """The estimators of this package by family, from their docstrings."""
    family = {
        name: FAMILY.search(" ".join((estimator.__doc__ or "").split())) for name, estimator in built_in("estimators")
    }
    members: dict[str, list[str]] = {}
    for name, named in family.items():
        if named:
            members.setdefault(named[1], []).append(f"[{name}](#{name})")
    return table(("compares", "estimators"), [(named, ", ".join(names)) for named, names in members.items()])


def columns(_: str = "") -> str:
    """The columns that some estimators need beside those of every batch."""
    rows = [
        (code(name), prose(f"{column.about[:1].upper()}{column.about[1:]}."))
        for name, column in COLUMNS.items()
        if name not in RECORDED
    ]
    return table(("column", "what it holds, and who records it"), rows)


def _needs(estimator: Callable[..., Any]) -> str:
    return ", ".join(f"[{code(column)}](#columns)" for column in needed_by(estimator))


def _options(group: str, name: str) -> Iterator[tuple[str, str, str]]:
    file = config_files()[f"{group}/{name}"]
    for key in file.keys:
        if key.path.startswith(f"{group}.") and key.path != f"{group}.name":
            yield code(key.path), code(key.default), prose(explanation(file, key))


def _body(docstring: str) -> tuple[str, str]:
    """A docstring as Markdown, without its sections, and what it says of its source."""
    parts, source = [], ""
    for block in re.split(r"\n\s*\n", docstring):
        if SECTIONS.match(block):
            continue
        if block.startswith("    "):
            parts.append(f"~~~~text\n{inspect.cleandoc(block)}\n~~~~")
            continue
        text, _, named = FAMILY.sub("", " ".join(block.split())).partition("Source: ")
        source = named.rstrip(".") or source
        if text:
            parts.append(_linked(text.strip()))
    return "\n\n".join(parts), source


def _linked(text: str) -> str:
    return re.sub(r"arXiv[: ](\d{4}\.\d{5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", prose(text))
