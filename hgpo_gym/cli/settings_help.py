"""The part of `--help` about settings: the choices of every group, and the common keys."""

import shutil
import textwrap
from collections.abc import Iterator

_INDENT = 14

COMMON_SETTINGS = {
    "seed=0": "training seed",
    "run_dir=runs/mine": "where the run is kept; resume=auto continues it",
    "env.split=train": "the tasks to train on; evaluation.split=test those to evaluate on",
    "rollout.num_tasks=8": "task groups an iteration, each of rollout.group_size=8 episodes",
    "rollout.workers=2": "processes for slow environments",
    "memory.window=2": "past steps in the prompt; memory.history_length=2 is K of the context keys",
    "trainer.iterations=40": "rounds of rollout and update; trainer.learning_rate=2e-3",
    "model.path=FOLDER": "a local or hub model instead of a new one, used as it is",
    "warmstart.source=expert": "clone the expert first; random (form only), none, or auto (new models only)",
}

_LAUNCHER = {
    "jobs=2": "runs at a time; 0 prints the commands of the runs instead, for a scheduler",
    "launcher=submitit": "runs are jobs of Slurm; launcher.parameters are submitit's",
    "launcher=ray": "runs are tasks of Ray, of a cluster or of this machine: launcher.address",
}
COMMAND_SETTINGS = {
    "compare": {
        "algos=[grpo,hgpo]": "the methods; with options: {name: hgpo, history_length: 1}, or {recipe: dapo}",
        "seeds=5": "training seeds: how many, or a list, seeds=[0,7]",
        "out=runs/mine": "the folder of all runs and their report; another one for other settings",
        **_LAUNCHER,
    },
    "league": {
        "environments=[{name: maze}]": "the environments, each with a name and settings: {name: maze, env.sections: 2}",
        "algos=[grpo,hgpo]": "the methods, as in compare",
        "seeds=5": "training seeds: how many, or a list; a seed ends in all environments before the next begins",
        "out=runs/mine": "the folder of all runs and their report",
        "only=[maze]": "some of the environments that the league lists",
        **_LAUNCHER,
    },
    "eval": {
        "policy=model": "who acts: model, expert, random, or openai (a model behind an endpoint)",
        "transcripts=FOLDER": "where to write prompts and raw responses, as transcripts.jsonl and as a page",
        "run=RUN": "the run whose checkpoint is evaluated, with the run's settings",
        "iteration=newest": "its checkpoint: newest, best, or a number",
        "out=FILE": "a JSON file for the result",
        "evaluation.split=test": "the tasks; evaluation.tasks=50 some of them, evaluation.decoding_seeds=4 times each",
        "openai.model=NAME": "of policy=openai, as the endpoint openai.base_url=URL names it",
    },
    "warmstart": {"out=FOLDER": "where the model is saved; required"},
    "estimator-bias": {
        "bias.group_sizes=[8]": "episodes in a group; bias.tasks=6, bias.episodes=2048 tasks and episodes in all",
        "bias.norm=mean_norm": "and bias.gamma=0.95, of the estimators",
        "out=FOLDER": "for findings.csv, context_bias.csv and errors.png",
    },
    "play": {"task_id=ID": "the task to begin with"},
}
"""Keys that not every command has, by command."""

SET_BY_COMMAND = {
    "compare": ("seed", "run_dir"),
    "league": ("seed", "run_dir"),
    "eval": ("seed", "run_dir", "env.split", "rollout.num_tasks", "trainer"),
    "play": ("run_dir", "rollout", "trainer", "model", "warmstart"),
}
"""Common keys or sections that a command sets or does not read, by command."""


def settings_help(command: str) -> str:
    """Return the choices and settings of a command, in lines that fit the terminal."""
    from hgpo_gym.config.choices import choices, groups_of

    command_groups, lines = groups_of("config" if command == "train" else command), ["choices (group=choice):"]
    for group, names in choices().items():
        if group in command_groups:
            lines += _wrapped(f"{group}=", " | ".join(names))
    lines += ["", "common settings (key=value); --show-config prints all of them with their values:"]
    for key, meaning in _settings(command).items():
        lines += _wrapped(key, meaning, 30)
    return "\n".join(lines)


def _settings(command: str) -> dict[str, str]:
    left_out = SET_BY_COMMAND.get(command, ())
    common = {key: meaning for key, meaning in COMMON_SETTINGS.items() if not key.startswith(left_out or " ")}
    return COMMAND_SETTINGS.get(command, {}) | common


def _wrapped(name: str, text: str, indent: int = _INDENT) -> Iterator[str]:
    """Yield lines with `name` and, from a fixed column on, the wrapped text."""
    width = max(shutil.get_terminal_size().columns - 2, 60)
    first = f"  {name:<{indent - 3}} "
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
