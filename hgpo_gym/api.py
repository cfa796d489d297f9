"""Train, evaluate and compare from Python, as the command line does, with results as objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from hgpo_gym.analysis.report import write_report
from hgpo_gym.cli.one_run import train_one_of_many
from hgpo_gym.config.compose import load_config, parse_run
from hgpo_gym.config.compose import load_run as load_settings
from hgpo_gym.config.of_run import default_settings, load_evaluation
from hgpo_gym.experiments.compare import run_comparison
from hgpo_gym.experiments.evaluation import evaluate_policy, evaluated_policy
from hgpo_gym.experiments.plan import written
from hgpo_gym.policies.base import MeteredPolicy, Policy
from hgpo_gym.progress import Progress, ProgressCallback, progress_for
from hgpo_gym.rollouts.evaluation import Evaluation
from hgpo_gym.runs import directory
from hgpo_gym.runs.checkpoints import Checkpoints
from hgpo_gym.section import check_read
from hgpo_gym.trainers.environments import make_evaluation_env
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.run import Run, processes_of


@dataclass(frozen=True)
class TrainedRun:
    """A run directory, whose files are read on access.

    Attributes:
        path: the run directory.
    """

    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved settings."""
        return directory.read_config(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row for each iteration; `hgpo_gym.runs.metric_table` explains each metric."""
        return directory.read_metrics(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the whole run. Raises FileNotFoundError if the run is not finished."""
        return directory.read_summary(self.path)

    @property
    def best_checkpoint(self) -> Path:
        """The checkpoint of the best evaluation."""
        return Checkpoints(self.path / "checkpoints").choose("best", lambda _: None)

    @cached_property
    def policy(self) -> Policy:
        """The policy of the best checkpoint, ready to `generate`."""
        config = load_evaluation([f"run={_quoted(self.path)}", "iteration=best"])
        return evaluated_policy(config, Progress(Console(quiet=True)))[0]

    def report(self) -> Path:
        """Write `report.html` into the run directory. Returns its path."""
        return write_report([self.path], self.path, console=Console(quiet=True))


@dataclass(frozen=True)
class Compared:
    """The runs of a comparison.

    Attributes:
        path: the folder of the comparison.
        runs: one for each algorithm and seed.
        report: the page with curves, tables and intervals.
    """

    path: Path
    runs: tuple[TrainedRun, ...]
    report: Path


def train(
    env: str | None = None,
    algo: str | None = None,
    model: str | None = None,
    *,
    iterations: int | None = None,
    seed: int | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    overrides: Sequence[str] = (),
    progress: bool | ProgressCallback = True,
) -> TrainedRun:
    """Train a run, as `hgpo-gym train` does.

    Args:
        env: an environment, by its short name (`alfworld`) or its id (`me/Echo-v0`).
        algo: an estimator.
        model: a model group (`tabular`, `features`, `tiny`, `pretrained`).
        iterations: `trainer.iterations`.
        seed: the training seed.
        run_dir: the run directory; None takes a new one in `runs/`.
        resume: True resumes from the newest checkpoint in `run_dir`, if one exists.
        overrides: any other settings, as on the command line: `["trainer.learning_rate=1e-4"]`.
        progress: True shows a bar in notebooks and terminals, and lines elsewhere; False shows nothing. A function is
            called with (iterations done, all iterations, a short text).

    Raises:
        ValueError: unknown settings, or settings that do not go together.
        FileExistsError: `run_dir` holds a run, and `resume` is False.
    """
    values = {"env": env, "algo": algo, "model": model, "trainer.iterations": iterations, "seed": seed}
    values |= {"run_dir": None if run_dir is None else _quoted(run_dir), "resume": "auto" if resume else None}
    all_overrides = [*_overrides(values), *overrides]
    settings = load_settings(all_overrides)
    check_read(all_overrides, settings.unread)
    # The default directory may hold the run of an earlier call.
    if run_dir is None and not resume and not any(item.startswith(("run_dir=", "resume=")) for item in overrides):
        settings = load_settings([*all_overrides, f"run_dir={_quoted(_new_folder(settings.run_dir))}"])
    quiet_libraries(settings.model.threads)
    with Run(settings, progress_for(progress), processes_of(settings), default_settings) as run:
        run.train()
    return TrainedRun(settings.run_dir)


def evaluate(
    run: "TrainedRun | str | Path | None" = None,
    *,
    policy: str = "model",
    iteration: int | str = "newest",
    overrides: Sequence[str] = (),
    progress: bool | ProgressCallback = True,
) -> Evaluation:
    """Play every task of a split with every decoding seed, as `hgpo-gym eval` does.

    Args:
        run: the run whose checkpoint plays, with its settings; None takes the settings from `overrides` alone.
        policy: `model`, `expert`, `random` or `openai`.
        iteration: the checkpoint's iteration: a number, `newest` or `best`.
        overrides: any other settings, as on the command line: `["env=alfworld", "evaluation.split=valid_seen"]`.
        progress: see `train`.

    Raises:
        ValueError: unknown settings, or settings that do not go together.
        FileNotFoundError: the run or the checkpoint does not exist.
    """
    values: dict[str, Any] = {"policy": policy, "iteration": iteration}
    if run is not None:
        values["run"] = _quoted(run.path if isinstance(run, TrainedRun) else run)
    config = load_evaluation([*_overrides(values), *overrides])
    settings, reporter = parse_run(config), progress_for(progress)
    quiet_libraries(settings.model.threads)
    evaluated, _ = evaluated_policy(config, reporter)
    env_options: dict[str, Any] = {"expert": True} if policy == "expert" else {}
    env = make_evaluation_env(settings.environments, settings.evaluation, **env_options)
    try:
        result = evaluate_policy(
            env,
            evaluated,
            settings.evaluation,
            settings.rollout,
            settings.team,
            reporter,
            f"{policy} on {settings.env.id}",
            keep=None,
        )
    finally:
        env.close()
    if isinstance(evaluated, MeteredPolicy):
        evaluated.forget()
    return result


def compare(
    algos: Iterable[str | Mapping[str, Any]],
    seeds: int | Sequence[int] = 3,
    *,
    env: str | None = None,
    model: str | None = None,
    out: str | Path,
    jobs: int | None = None,
    overrides: Sequence[str] = (),
    progress: bool | ProgressCallback = True,
) -> Compared:
    """Train every algorithm with every seed and report on all, as `hgpo-gym compare` does.

    Args:
        algos: names, or mappings with `name` and options.
        seeds: the number of seeds, or a list of them.
        env: see `train`.
        model: see `train`.
        out: the folder of the runs and of the report. Finished runs in it are kept, others resume.
        jobs: the number of runs at a time; None takes as many as fit.
        overrides: settings of all runs.
        progress: see `train`.

    Raises:
        ValueError: unknown settings, or runs that cannot be compared.
        RunFailedError: runs failed; the others are complete.
    """
    values: dict[str, Any] = {"env": env, "model": model, "algos": written(list(algos)), "seeds": written(seeds)}
    values |= {"out": _quoted(out), "jobs": jobs}
    all_overrides = [*_overrides(values), *overrides]
    config, folder = load_config("compare", all_overrides), Path(out)
    quiet_libraries(parse_run(config).model.threads)
    run_comparison(config, all_overrides, train_one_of_many, progress_for(progress))
    runs = tuple(TrainedRun(path.parent) for path in sorted(folder.glob("*/config.yaml")))
    return Compared(folder, runs, folder / "report.html")


def load_run(path: str | Path) -> TrainedRun:
    """Return the run in a directory. Raises FileNotFoundError if it holds none."""
    run = TrainedRun(Path(path))
    # Raises FileNotFoundError now instead of at the first access.
    directory.read_config(run.path)
    return run


def _overrides(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _quoted(path: str | Path) -> str:
    return written(str(path))


def _new_folder(folder: Path) -> Path:
    """Return the folder or, if it exists, the first of `folder-2`, `folder-3`, ... that does not."""
    names = (folder if number == 1 else folder.with_name(f"{folder.name}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())
