"""Reference pages: the configuration from its files, the commands from their parsers."""

import argparse
from collections.abc import Iterator

import yaml

from docs_site.config_files import ConfigFile, config_files, explanation
from docs_site.environments import option_meanings, own_environments
from docs_site.markdown import code, prose, settings, table
from hgpo_gym.cli.main import COMMANDS, EXAMPLES, make_parser
from hgpo_gym.config.choices import FOLDER, env_settings, has_file
from hgpo_gym.envs.registration import EnvRecord

GROUPS = {
    "env": "What is played.",
    "learner": "What an iteration does.",
    "algo": "How credit is assigned.",
    "correction": "What weighs tokens against the difference of engine and trainer.",
    "objective": "What the policy update maximises, or the loss that it minimises.",
    "league": "The environments that `hgpo-gym league` plays.",
    "launcher": "Where the runs of `hgpo-gym compare` and `league` are started.",
    "sampler": "Which tasks are played, and which of their episodes and steps are learned from.",
    "shaping": "Which rewards credit assignment sees.",
    "team": "Who answers, and which answer is the action.",
    "recipe": "A published method: algorithm, objective, sampler and shaping together.",
    "prompt": "How a step is put to the model.",
    "engine": "What generates the responses.",
    "trainer": "The policy update.",
    "model": "What is trained. `tiny` and `pretrained` have the keys of `shared/language_model`, too.",
    "experiment": "Values for several groups at once. A file below `published` is what presets have in common.",
}
COLUMNS = ("key", "default", "what it does")


def configuration(group: str = "") -> str:
    """Every key of the files of a group of `hgpo_gym/configs`, with its default and what it does.

    Without a group: those of all commands and of single ones, and where the groups are.
    """
    files = config_files()
    if not group:
        rows = [
            (f"[{code(name)}](configuration/{name}.md)", code(_defaults().get(name, "")), prose(about))
            for name, about in GROUPS.items()
        ]
        return "\n\n".join(
            [
                f"## Groups {{#groups}}\n\n{table(('group', 'default', 'what it chooses'), rows)}",
                _file_section("All commands", "config", files["config"], level=2),
                *(
                    _file_section(f"Only hgpo-gym {command}", command, files[command], level=2)
                    for command in sorted(files.keys() & COMMANDS.keys())
                ),
            ]
        )
    chosen = _defaults().get(group)
    parts = [prose(GROUPS[group]) + (f" Default: `{group}={chosen}`." if chosen else "")]
    for file in files.values():
        if file.group == group:
            choice = file.name.removeprefix(f"{group}/")
            title = choice if "/" in choice else f"{group}={choice}"
            parts.append(_file_section(title, file.name.replace("/", "-"), file, level=2))
    if group == "env":
        parts += [_made_section(record) for record in own_environments() if not has_file("env", record.name)]
    return "\n\n".join(parts)


def commands(_: str = "") -> str:
    """Every command with its arguments and examples."""
    return "\n\n".join(_command_section(name, parser) for name, parser in _parsers().items())


def _file_section(title: str, anchor: str, file: ConfigFile, level: int) -> str:
    # Keys that the signature adds stand beside the file's keys of their section.
    sections = list(dict.fromkeys(key.path.partition(".")[0] for key in file.keys))
    keys = sorted(file.keys, key=lambda key: sections.index(key.path.partition(".")[0]))
    rows = [(code(key.path), code(_value(key.default)), prose(explanation(file, key))) for key in keys]
    return f"{'#' * level} {title} {{#{anchor}}}\n\n{prose(file.about)}\n\n{settings(COLUMNS, rows)}"


def _made_section(record: EnvRecord) -> str:
    """The settings of an environment without a file: the options of its class."""
    meanings = option_meanings(record.id) | {"id": "For gymnasium.make.", "max_episode_steps": "Its step limit."}
    rows = [
        (code(f"env.{key}"), code(yaml.safe_dump(value).removesuffix("...\n").strip()), prose(meanings[key]))
        for key, value in env_settings(record)["env"].items()
    ]
    return f"## env={record.name} {{#env-{record.name}}}\n\n{prose(record.description)}\n\n{settings(COLUMNS, rows)}"


def _defaults() -> dict[str, str]:
    """The choice of each group where the command line names none."""
    listed = yaml.safe_load((FOLDER / "config.yaml").read_text())["defaults"]
    return {group: choice for entry in listed if isinstance(entry, dict) for group, choice in entry.items()}


def _value(source: str) -> str:
    """A value as the file writes it; a text of several lines without the indicator and the indentation of YAML."""
    return yaml.safe_load(source) if source.startswith("|") else source


def _parsers() -> dict[str, argparse.ArgumentParser]:
    [subparsers] = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return subparsers.choices


def _command_section(name: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"## hgpo-gym {name} {{#{name}}}\n\n{prose(parser.description or '')}"]
    if any(action.dest == "overrides" for action in parser._actions):
        parts[0] += " It takes [settings](configuration.md), `key=value`; `--show-config` prints them and stops."
    if rows := list(_arguments(parser)):
        parts.append(table(("argument", "what it does"), rows))
    if EXAMPLES.get(name):
        parts.append("```sh\n" + "\n".join(EXAMPLES[name]) + "\n```")
    return "\n\n".join(parts)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The arguments that are not those of every command with settings."""
    for action in parser._actions:
        if action.dest in ("help", "overrides", "show_config"):
            continue
        value = str(action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper()))
        flag = ", ".join(action.option_strings)
        shown = f"{flag} {value}" if flag and action.nargs != 0 else flag or value
        text = (action.help or "") % {"default": action.default}
        yield code(shown), prose(f"{text[:1].upper()}{text[1:]}")
