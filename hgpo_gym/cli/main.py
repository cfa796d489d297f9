"""The command hgpo-gym."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo_gym.cli import data
from hgpo_gym.cli import new_env as scaffold
from hgpo_gym.config.choices import choices
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.server import serve as serving

if TYPE_CHECKING:
    from omegaconf import DictConfig

COMMANDS = {
    "train": "train an agent with one algorithm",
    "compare": "train with several algorithms and seeds, everything else equal; a report",
    "eval": "evaluate a model, an endpoint, the expert or random actions on every task of a split",
    "warmstart": "make a model that imitates episodes, and save it",
    "diagnose": "measure bias and variance of the advantage estimators where true advantages can be known",
    "play": "act in an environment by hand and see the context keys",
    "report": "compare finished runs: a page of curves, tables and how sure they are",
    "inspect": "look at one group of episodes that a run trained on, and at what each estimator makes of it",
    "export": "write a run's model as a plain Hugging Face folder, an adapter merged into it",
    "envs": "list the environments",
    "new-env": "write a package with an environment of your own, ready to install, test and train on",
    "serve": "let agents in other processes or languages play environments over HTTP",
    "data": "say what an environment's data lacks, and get it",
}

EXAMPLES = {
    "train": [
        "hgpo-gym train",
        "hgpo-gym train algo=gigpo seed=1 trainer.iterations=60",
        "hgpo-gym train env=alfworld env.data=/data/alfworld model=tiny algo=hgpo",
        "hgpo-gym train model=pretrained model.path=Qwen/Qwen2.5-1.5B-Instruct prompt=instruct trainer=pretrained "
        "engine.constrain=none warmstart.source=none",
        "torchrun --nproc_per_node 8 -m hgpo_gym train distributed=fsdp2 model=pretrained model.path=...",
    ],
    "compare": [
        "hgpo-gym compare experiment=demo",
        "hgpo-gym compare 'seeds=[0,1,2,3,4]' 'algos=[gigpo,hgpo]'",
        "hgpo-gym compare model=tabular seeds=50",
    ],
    "eval": [
        "hgpo-gym eval run=runs/signpost_maze-hgpo-seed0",
        "hgpo-gym eval policy=random env=signpost_maze",
        "hgpo-gym eval policy=openai openai.base_url=http://localhost:8000/v1 openai.model=Qwen/Qwen2.5-7B-Instruct "
        "prompt=instruct engine.constrain=none env=alfworld rollout.max_new_tokens=512",
        "hgpo-gym eval policy=expert env=alfworld env.data=/data/alfworld evaluation.split=valid_seen",
    ],
    "warmstart": ["hgpo-gym warmstart env=signpost_maze warmstart.source=expert out=models/signpost"],
    "diagnose": [
        "hgpo-gym diagnose",
        "hgpo-gym diagnose env.plates=true env.max_episode_steps=200",
        "hgpo-gym diagnose env=alfworld env.split=generated 'diagnose.group_sizes=[4,8,16]' diagnose.episodes=256",
    ],
    "report": ["hgpo-gym report runs/compare-signpost_maze", "hgpo-gym report runs/first runs/second --out runs/both"],
    "inspect": [
        "hgpo-gym inspect runs/signpost_maze-hgpo-seed0",
        "hgpo-gym inspect runs/signpost_maze-hgpo-seed0 --iteration 3 --task 2 --step 1.4 --html group.html",
    ],
    "export": [
        "hgpo-gym export runs/signpost_maze-hgpo-seed0 --to models/maze",
        "hgpo-gym export runs/signpost_maze-hgpo-seed0 --to models/start --iteration 0",
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


class CommandFailed(SystemExit):
    """The command ends with this message and exit status."""

    def __init__(self, message: str, status: int):
        super().__init__(status)
        of_several = f" (process {os.environ['RANK']})" if "RANK" in os.environ else ""
        print(f"hgpo-gym{of_several}: {message}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with 2 on a user's mistake, 1 where training broke off, 130 on Ctrl-C."""
    parser = make_parser()
    parsed = parser.parse_args(arguments)
    if parsed.command == "envs":
        list_environments()
        return
    if parsed.command in OWN_ARGUMENTS:
        _, act = OWN_ARGUMENTS[parsed.command]
        act(parsed)
        return
    with _mistakes_explained():
        from hgpo_gym.config.compose import load_config
        from hgpo_gym.trainers.processes import launched

        if parsed.command != "train" and launched() > 1:
            raise ValueError(
                f"{launched()} processes were launched, but {parsed.command} runs in one; train in several."
            )

        primary = "config" if parsed.command == "train" else parsed.command
        config = load_config(primary, parsed.overrides)
    if parsed.show_config:
        from omegaconf import OmegaConf

        print(OmegaConf.to_yaml(config), end="")
        return
    if parsed.command not in ("play", "diagnose"):
        _quiet_libraries(config.model.threads)
    try:
        if parsed.command == "compare":
            compare(config, parsed.overrides)
        elif parsed.command == "play":
            play(config, parsed.port if parsed.web else None)
        else:
            {"train": train, "eval": evaluate, "warmstart": warmstart, "diagnose": diagnose}[parsed.command](config)
    except KeyboardInterrupt:
        raise CommandFailed("interrupted.", 130) from None


def list_environments() -> None:
    """`hgpo-gym envs`"""
    records = ENVIRONMENTS.values()
    widths = max(len(record.id) for record in records), max(len(f"env={record.name}") for record in records)
    for record in records:
        names = f"{record.id:<{widths[0]}}  {f'env={record.name}':<{widths[1]}}"
        print(f"{names}  {record.description} (at most {record.max_episode_steps} steps)")


def new_env(parsed: argparse.Namespace) -> None:
    """`hgpo-gym new-env`"""
    with _mistakes_explained():
        scaffold.new_env(parsed)


def get_data(parsed: argparse.Namespace) -> None:
    """`hgpo-gym data`. Exits with 1 where something is missing or not sound."""
    with _mistakes_explained():
        from hgpo_gym.progress import Progress

        try:
            sound = data.get_data(parsed, Progress())
        except KeyboardInterrupt:
            raise CommandFailed("interrupted. The same command goes on from there.", 130) from None
    if not sound:
        raise SystemExit(1)


def serve(parsed: argparse.Namespace) -> None:
    """`hgpo-gym serve`"""
    with _mistakes_explained():
        try:
            serving.serve(parsed)
        except KeyboardInterrupt:
            raise CommandFailed("interrupted before anything was served.", 130) from None


def train(config: "DictConfig") -> None:
    """`hgpo-gym train`"""
    from hgpo_gym.analysis.report import write_report

    reports = _train(config)
    if reports and config.trainer.iterations:
        run_dir = Path(config.run_dir)
        with _mistakes_explained():
            print(f"Report: {write_report([run_dir], run_dir)}")


def _train(config: "DictConfig") -> bool:
    """Train a run. Returns whether this process is the one that reports on it."""
    from rich.console import Console

    from hgpo_gym.files import NotWrittenError
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.baselines import make_trainer
    from hgpo_gym.trainers.checkpoint import CheckpointNotSavedError
    from hgpo_gym.trainers.policies.tabular import TableFullError
    from hgpo_gym.trainers.processes import join_processes
    from hgpo_gym.trainers.run_directory import open_run
    from hgpo_gym.trainers.update.policy_update import NonFiniteError

    with _mistakes_explained():
        processes = join_processes(config)
        progress = Progress(Console(quiet=not processes.main))
        run = open_run(config)
        processes.wait()  # until all have looked, before one writes in it
        trainer = make_trainer(config, run, progress, processes)
    try:
        summary = trainer.train()
    except NonFiniteError as error:
        raise CommandFailed(
            f"iteration {trainer.iteration + 1}: {error} Stopped. The last good checkpoint is "
            f"{trainer.checkpoints.newest()}; a smaller trainer.learning_rate may help.",
            1,
        ) from None
    except (CheckpointNotSavedError, NotWrittenError) as error:
        raise CommandFailed(
            f"iteration {trainer.iteration}: {error} Stopped. With room on the disk the same command with resume=auto "
            f"goes on from {trainer.checkpoints.newest()}.",
            1,
        ) from None
    except TableFullError as error:
        raise CommandFailed(str(error), 2) from None
    except KeyboardInterrupt:
        raise CommandFailed(
            f"interrupted after iteration {trainer.iteration}; {trainer.checkpoints.newest()} is saved. "
            "The same command with resume=auto goes on from there.",
            130,
        ) from None
    finally:
        trainer.close()
    progress.line(
        f"Success {summary['success_before']:.1%} before, {summary['success_after']:.1%} after "
        f"{summary['iterations']} iterations ({summary['evaluations'][-1]['split']}); best "
        f"{summary['best']['success']:.1%} after iteration {summary['best']['iteration']}."
    )
    processes.close()
    return processes.main


def compare(config: "DictConfig", overrides: Sequence[str]) -> None:
    """`hgpo-gym compare`"""
    from rich.console import Console

    from hgpo_gym.experiments.compare import RunFailedError, run_comparison
    from hgpo_gym.progress import Progress

    progress = Progress(Console(stderr=config.jobs == 0))  # then the commands alone are for the pipe
    with _mistakes_explained():
        try:
            run_comparison(config, overrides, _train_one_of_many, progress)
        except RunFailedError as error:
            raise CommandFailed(str(error), 1) from None
        except KeyboardInterrupt:
            raise CommandFailed("interrupted. The same command goes on where it stopped.", 130) from None


def _train_one_of_many(config: "DictConfig") -> None:
    """A run of `compare`, in a worker process."""
    _quiet_libraries(config.model.threads)
    _train(config)


def evaluate(config: "DictConfig") -> None:
    """`hgpo-gym eval`"""
    from hgpo_gym.config.compose import plain
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.assemble import make_evaluated_policy, make_evaluation_env
    from hgpo_gym.trainers.evaluation import evaluate
    from hgpo_gym.trainers.policies.base import MeteredPolicy, NoAnswerError
    from hgpo_gym.trainers.settings import EvaluationSettings

    progress = Progress()
    with _mistakes_explained():
        policy = make_evaluated_policy(config, progress)
        settings = EvaluationSettings(**plain(config.evaluation))
        own: dict[str, Any] = {"expert": True} if config.policy == "expert" else {}
        env = make_evaluation_env(config, **own)
        sampling = settings.sampling(config.rollout.max_new_tokens)
    metered = policy if isinstance(policy, MeteredPolicy) else None
    try:
        with metered or nullcontext(), progress.stage(f"{config.policy} on {settings.split or 'all tasks'}") as tick:
            result = evaluate(
                env, policy, sampling, range(settings.decoding_seeds), lambda done, total: tick(done, total, "episodes")
            )
    except NoAnswerError as error:
        raise CommandFailed(str(error), 1) from None
    except KeyboardInterrupt:
        if not metered:
            raise
        raise CommandFailed("interrupted. The same command goes on with the answers so far.", 130) from None
    finally:
        env.close()
        if metered:
            progress.line(metered.describe_usage())
    text = json.dumps(result.summary() | ({"usage": metered.usage()} if metered else {}), indent=2)
    print(text)
    if config.out:
        Path(config.out).write_text(text + "\n")


def warmstart(config: "DictConfig") -> None:
    """`hgpo-gym warmstart`"""
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.assemble import initial_weights
    from hgpo_gym.trainers.policies.models import load_model, save_model

    progress = Progress()
    with _mistakes_explained():
        save_model(*load_model(initial_weights(config, progress), device="cpu"), Path(config.out))
    progress.line(f"Saved in {config.out}. Train it by: hgpo-gym train model.path={config.out} warmstart.source=none")


def diagnose(config: "DictConfig") -> None:
    """`hgpo-gym diagnose`"""
    with _mistakes_explained():
        from hgpo_gym.analysis.estimator_bias.run import run_diagnosis
        from hgpo_gym.progress import Progress

        run_diagnosis(config, Progress())


def play(config: "DictConfig", port: int | None) -> None:
    """`hgpo-gym play`, in the terminal, or in a browser if there is a port."""
    from hgpo_gym.cli.play import play_in_browser, play_in_terminal

    with _mistakes_explained():
        if port is None:
            play_in_terminal(config)
        else:
            play_in_browser(config, port)


def report(parsed: argparse.Namespace) -> None:
    """`hgpo-gym report`"""
    with _mistakes_explained():
        from rich.console import Console

        from hgpo_gym.analysis.report import write_report

        several = len(parsed.directories) > 1
        out = parsed.out or (Path("report") if several else parsed.directories[0])
        page = write_report(parsed.directories, out, threshold=parsed.threshold, console=Console())
    print(f"Report: {page}")


def inspect(parsed: argparse.Namespace) -> None:
    """`hgpo-gym inspect`"""
    with _mistakes_explained():
        from rich.console import Console

        from hgpo_gym.analysis.inspection import inspect_run

        inspect_run(
            parsed.run,
            iteration=parsed.iteration,
            task=parsed.task,
            step=parsed.step,
            html=parsed.html,
            console=Console(),
        )


def export(parsed: argparse.Namespace) -> None:
    """`hgpo-gym export`"""
    _quiet_libraries(threads=None)
    with _mistakes_explained():
        from hgpo_gym.trainers.export import export as write

        checkpoint = write(parsed.run, parsed.to, parsed.iteration)
    print(f"{checkpoint.name} of {parsed.run} is in {parsed.to}: model.path={parsed.to} loads it.")


@contextmanager
def _mistakes_explained() -> Iterator[None]:
    """Turn errors that a user can mend into one message and exit status 2; HGPO_GYM_DEBUG=1 keeps the traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        if _debugging():
            raise
        remedy = "" if "pip install" in str(error) else ". Install what is missing: pip install 'hgpo_gym[train]'"
        raise CommandFailed(f"{error}{remedy}", 2) from None
    except (ValueError, OSError, ImportError) as error:
        if _debugging():
            raise
        raise CommandFailed(str(error), 2) from None


def _quiet_libraries(threads: int | None) -> None:
    """Set torch's CPU threads, and keep transformers' bars and tokenizers' warnings out of ours."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with _mistakes_explained():
        import torch
        import transformers

    transformers.utils.logging.disable_progress_bar()
    if threads is not None:
        torch.set_num_threads(threads)


def _debugging() -> bool:
    return os.environ.get("HGPO_GYM_DEBUG", "") not in ("", "0")


def _report_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="a run, or a folder of runs")
    command.add_argument(
        "--out", type=Path, help="folder for report.html, report.md, tables/, figures/ (the DIR; of several: report)"
    )
    command.add_argument("--threshold", type=float, default=0.8, help="the success whose first time is reported (0.8)")


def _inspect_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN", help="the directory of a run, finished or not")
    command.add_argument("--iteration", type=int, help="as in metrics.jsonl (the last one kept)")
    command.add_argument(
        "--task", help="a group's number, a task id or a part of one; without it, a list of the groups"
    )
    command.add_argument("--step", help="episode.step, both from 1 (the step on which the estimators differ most)")
    command.add_argument("--html", type=Path, metavar="FILE", help="write the same as a page, with the graph drawn")


def _export_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN", help="the directory of a run, finished or not")
    command.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    command.add_argument("--iteration", type=int, help="of the checkpoint (the newest)")


OWN_ARGUMENTS: dict[str, tuple[Callable[..., None], Callable[[argparse.Namespace], None]]] = {
    "report": (_report_arguments, report),
    "inspect": (_inspect_arguments, inspect),
    "export": (_export_arguments, export),
    "data": (data.add_arguments, get_data),
    "new-env": (scaffold.add_arguments, new_env),
    "serve": (serving.add_arguments, serve),
}
"""Commands with arguments of their own instead of key=value: what defines them, and what acts on them."""


def make_parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    parser = argparse.ArgumentParser(
        prog="hgpo-gym", description="Text environments for agents, and GRPO, GiGPO and HGPO side by side on them."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, description in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=description,
            description=f"{description[0].upper()}{description[1:]}.",
            epilog=_epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in OWN_ARGUMENTS:
            define, _ = OWN_ARGUMENTS[name]
            define(command)
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
    if command in OWN_ARGUMENTS:
        return "\n".join(examples)
    lines = ["choices (group=choice):"]
    lines += [f"  {group + '=':<12}{' | '.join(names)}" for group, names in choices().items()]
    lines += ["", "settings that people change (key=value); all of them, with their values, by --show-config:"]
    lines += [f"  {key:<28}{meaning}" for key, meaning in COMMON_SETTINGS]
    lines += ["", *examples]
    return "\n".join(lines)


COMMON_SETTINGS = [
    ("seed=0", "training seed"),
    ("run_dir=runs/mine", "where the run is kept; resume=auto goes on with it"),
    ("env.split=train", "the tasks to train on; evaluation.split=test those to evaluate on"),
    ("rollout.num_tasks=8", "task groups an iteration, each of rollout.group_size=8 episodes"),
    ("rollout.workers=2", "processes for slow environments"),
    ("memory.window=2", "past steps in the prompt; memory.history_length=2 is K of the context keys"),
    ("trainer.iterations=40", "rounds of rollout and update; trainer.learning_rate=2e-3"),
    ("model.path=FOLDER", "a local or hub model instead of a new one"),
    ("warmstart.source=expert", "imitate the expert first, or random (form only), or none"),
]
