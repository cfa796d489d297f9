"""The configuration as data: each key with its default and what explains it, a comment in a file or a docstring."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hgpo_gym.config.choices import (
    FOLDER,
    REGISTRIES,
    choice_settings,
    env_section,
    has_file,
    name_key,
    section_meanings,
)
from hgpo_gym.envs import ENVIRONMENTS

GLOBAL = "# @package _global_"


class Key(NamedTuple):
    """A key of a file.

    Attributes:
        path: as on the command line, `trainer.learning_rate`.
        default: its value as the file writes it.
        comment: directly above it; empty if there is none.
        title: above the section or file whose first key this is; empty elsewhere.
        joined: it follows the key before it without a comment or a blank line, so that one comment may be for both.
    """

    path: str
    default: str
    comment: str
    title: str
    joined: bool


@dataclass(frozen=True)
class ConfigFile:
    """A file below `configs`, or what stands for one: a registered choice, whose settings are those of its signature.

    Attributes:
        name: its path there without `.yaml`: `env/alfworld`.
        about: the comment at its beginning.
        builds_on: names of the files that it takes other values from, nearest first.
        keys: all that it sets, in order.
    """

    name: str
    about: str
    builds_on: tuple[str, ...]
    keys: tuple[Key, ...]

    @property
    def group(self) -> str:
        """The group that it is a choice of; empty for the file of a command."""
        return self.name.rpartition("/")[0].partition("/")[0]


@cache
def config_files() -> dict[str, ConfigFile]:
    """All files and registered choices, by name. A choice with a file has the keys of both."""
    files = {file.name: file for file in map(_read, FOLDER.rglob("*.yaml"))}
    for made in _made_files():
        file = files.setdefault(made.name, made)
        paths = {key.path for key in file.keys}
        files[made.name] = replace(file, keys=file.keys + tuple(key for key in made.keys if key.path not in paths))
    return dict(sorted(files.items()))


def explanation(file: ConfigFile, key: Key) -> str:
    """Return the comment of a key: its own, else that of the same key elsewhere, else one for several keys.

    A file that sets a key of another group may say why; that comes after what the key is.
    """
    by_group = sorted(config_files().values(), key=lambda other: other.group != key.path.partition(".")[0])
    others = (other for other in (*_below(file), *by_group) if other.name != file.name)
    there = [(other, same) for other in others for same in other.keys if same.path == key.path]
    meant = [_comment(*pair) for pair in there] + [_title(*pair) for pair in there]
    own = _comment(file, key) or _title(file, key)
    elsewhere = next(filter(None, meant), "")
    if key.path.partition(".")[0] not in (file.group, key.path) and (key.comment or key.title) and elsewhere:
        return f"{elsewhere} Here: {key.comment or key.title}"
    return key.comment or next(filter(None, meant[: len(there)]), "") or own or elsewhere


def _below(file: ConfigFile) -> Iterator[ConfigFile]:
    for name in file.builds_on:
        if built_on := config_files().get(name):  # the environment of an example may not be installed
            yield built_on
            yield from _below(built_on)


def _comment(file: ConfigFile, key: Key) -> str:
    """The comment above a key, or above those before it that it stands together with."""
    return key.comment or (_comment(file, _before(file, key)) if key.joined else "")


def _title(file: ConfigFile, key: Key) -> str:
    """The comment above the section that a key stands at the beginning of."""
    return _title(file, _before(file, key)) if key.joined else key.title


def _before(file: ConfigFile, key: Key) -> Key:
    return file.keys[file.keys.index(key) - 1]


def _made_files() -> Iterator[ConfigFile]:
    """The settings of registered choices and of environments, which signatures have and docstrings explain."""
    for group, registry in REGISTRIES.items():
        for name in registry:
            if registry[name].__module__.startswith("hgpo_gym."):
                yield _made(group, name, choice_settings(registry, name))
    for record in ENVIRONMENTS.values():
        if record.id.startswith("hgpo_gym/") and has_file("env", record.name):
            yield _made("env", record.name, env_section(record))


def _made(group: str, name: str, section: Mapping[str, Any]) -> ConfigFile:
    first, meanings = name_key(group), section_meanings(group, section)
    about = meanings.pop(first, "")
    keys = (
        Key(
            f"{group}.{key}",
            _as_yaml(value),
            meanings.get(key, "")[:1].upper() + meanings.get(key, "")[1:],
            about if key == first else "",
            joined=False,
        )
        for key, value in _options(section)
    )
    return ConfigFile(f"{group}/{name}", about, (), tuple(keys))


def _options(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _options(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_yaml(value: object) -> str:
    """A value in one line of YAML."""
    dumped = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return dumped.removesuffix("...\n").strip()


def _read(path: Path) -> ConfigFile:
    text = path.read_text()
    name = path.relative_to(FOLDER).with_suffix("").as_posix()
    lines = text.splitlines()
    of_file = 0
    while lines[of_file].startswith("#"):
        of_file += 1
    about = [line for line in lines[:of_file] if line != GLOBAL]
    group = "" if lines[0] == GLOBAL or "/" not in name else name.partition("/")[0]
    values = yaml.safe_load(text)
    title = _words(about) if lines[of_file].strip() else ""
    document = yaml.compose(text)
    assert isinstance(document, yaml.MappingNode)
    keys = tuple(_keys(document, lines, of_file, f"{group}." if group else "", title))
    return ConfigFile(name, _words(about), tuple(_builds_on(name, values.get("defaults", []))), keys)


def _keys(node: yaml.MappingNode, lines: list[str], first: int, prefix: str, title: str) -> Iterator[Key]:
    """The keys of a section. `title` is the comment above it, which its first key takes if it has none of its own."""
    last = -1
    for key, value in node.value:
        line = key.start_mark.line
        top = line
        while top - 1 >= first and lines[top - 1].lstrip().startswith("#"):
            top -= 1
        comment = _words(lines[top:line])
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _keys(value, lines, first, f"{prefix}{key.value}.", comment or title)
        elif key.value != "defaults":
            yield Key(prefix + key.value, _source(value), comment, title, joined=line == last + 1)
        last = _last_line(value) if key.value != "defaults" else -1
        title = ""


def _source(value: yaml.Node) -> str:
    """A value as it stands in the file; a list over several lines in one."""
    if isinstance(value, yaml.SequenceNode) and not value.flow_style:
        listed = yaml.SafeLoader("").construct_object(value, deep=True)
        return yaml.safe_dump(listed, default_flow_style=True, sort_keys=False, width=10_000).strip()
    text = (value.start_mark.buffer or "")[value.start_mark.index : value.end_mark.index].strip()
    # The line break at the end of a block such as `notes_line: |` is a part of its value.
    is_block = isinstance(value, yaml.ScalarNode) and value.style in ("|", ">")
    return f"{text}\n" if is_block and value.value.endswith("\n") else text


def _last_line(value: yaml.Node) -> int:
    """The last line of a value; the mark behind a block is at the beginning of the next line."""
    end = value.end_mark
    return end.line - (end.column == 0)


def _builds_on(name: str, defaults: list[str | dict[str, str]]) -> Iterator[str]:
    """The files that a list of defaults names, the last first: `- base`, `- /model/shared/language_model@model`,
    `- override /env: alfworld`."""
    for entry in reversed(defaults):
        if isinstance(entry, str):
            file = entry.partition("@")[0]  # without the package that its values go to
            if entry != "_self_":
                yield file[1:] if file.startswith("/") else "/".join([*name.split("/")[:-1], file])
        else:
            yield from (f"{group.split()[-1].lstrip('/')}/{choice}" for group, choice in entry.items() if choice)


def _words(comment: list[str]) -> str:
    return " ".join(line.strip().lstrip("#").strip() for line in comment)
