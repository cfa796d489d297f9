"""Start a training by verl 0.9.1: its configuration with ours on top, Ray, and a run directory."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from hgpo_gym.adapters.verl.limits import check_mini_batches
from hgpo_gym.adapters.verl.run_settings import Scale, verl_settings
from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.extras import install_command
from hgpo_gym.files import write_whole
from hgpo_gym.runs.directory import RunDirectory
from hgpo_gym.runs.run_files import read_json
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.columns import recorded_columns
from hgpo_gym.trainers.environments import Tasks, make_evaluation_env, try_environment
from hgpo_gym.trainers.open_run import check_same_tasks, open_run
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.template_date import date_of

STOP_FILE = "stop"
"""A file of this name beside the checkpoints: the trainer saves a checkpoint and stops before its next step."""
RESOLVED_FILE = "verl.yaml"
"""All settings of verl, in the run directory."""
TASKS_FILE = "tasks.json"
"""The tasks of a run, in its directory."""


class StoppedError(RuntimeError):
    """The trainer was asked to stop, and has saved a checkpoint."""


def as_yaml(settings: Mapping[str, Any]) -> str:
    """Return settings by dotted key as YAML, nested."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        section = nested
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    return yaml.safe_dump(nested, sort_keys=False, allow_unicode=True, width=120)


def compose_verl(settings: Mapping[str, Any], overrides: Sequence[str]) -> Any:
    """Return verl's configuration, a DictConfig.

    Args:
        settings: ours, by key.
        overrides: for verl, in Hydra's grammar; they come last. Choices of groups come first.

    Raises:
        ValueError: an override that cannot be read, or a key that verl does not have.
    """
    from hydra import compose, initialize_config_module
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        # A choice of a group has no dot, or a slash: model_engine=megatron.
        groups = [str(item.input_line) for item in parsed if "." not in item.key_or_group or "/" in item.key_or_group]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=groups)
        with open_dict(config):
            for key, value in settings.items():
                OmegaConf.update(config, key, value, merge=False, force_add=True)
        for item in parsed:
            if str(item.input_line) in groups:
                continue
            key = item.key_or_group
            section_name, _, name = key.rpartition(".")
            section = OmegaConf.select(config, section_name) if section_name else config
            if name not in (section or ()) and not (item.is_add() or item.is_force_add()):
                valid = [f"{section_name}.{other!s}" for other in section or ()]
                raise ValueError(unknown_name("setting of verl", key, valid))
            OmegaConf.update(config, key, item.value(), merge=True, force_add=True)
    except (HydraException, OmegaConfBaseException) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"The settings of verl, {' '.join(overrides)}: {reason}") from error
    return config


def check_separate(config: Any) -> None:
    """Raise ValueError if verl's settings of `separate_async` do not fit each other, or the estimator."""
    if not config.trainer.v1.trainer_mode.endswith("separate_async"):
        return
    steps, actor = config.trainer.v1.separate_async.parameter_sync_step, config.actor_rollout_ref.actor
    if config.data.train_batch_size != steps * actor.ppo_mini_batch_size:
        raise ValueError(
            f"trainer.v1.separate_async.parameter_sync_step={steps}: verl wants data.train_batch_size="
            f"{config.data.train_batch_size} to be that many times actor_rollout_ref.actor.ppo_mini_batch_size="
            f"{actor.ppo_mini_batch_size}."
        )
    name = config.algorithm.adv_estimator.removeprefix("hgpo_gym.")
    if steps > 1 and name in ESTIMATORS:
        check_mini_batches(name)


def launch(run: RunSettings, scale: Scale, overrides: Sequence[str]) -> Path:
    """Train, and return the run directory.

    Ctrl-C and SIGTERM stop the training after its present step, with a checkpoint.

    Args:
        run: the settings.
        scale: GPUs, machines and mode.
        overrides: settings of verl.

    Raises:
        ValueError: a setting that verl refuses.
        FileExistsError, FileNotFoundError: of the run directory, see `open_run`.
        ModuleNotFoundError: verl is not installed.
        KeyboardInterrupt: the training was stopped.
    """
    verl_settings(run, scale)  # refuses what verl cannot do before anything is loaded
    tasks = _tasks(run)
    if find_spec("verl") is None:
        raise ModuleNotFoundError(f"hgpo-gym verl needs verl: {install_command('verl')}")
    run = run.at_date(date_of(run.engine, run.run_dir, run.model))  # prompts show the same day in a resumed run
    directory = _open(run, tasks)
    config = compose_verl(verl_settings(run, scale), overrides)
    check_separate(config)
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    import ray

    directory.begin(run.resolved, packages=("verl", "ray"))
    write_whole(directory.path / TASKS_FILE, json.dumps(tasks))
    write_whole(directory.path / RESOLVED_FILE, _resolved(config))
    checkpoints = Path(config.trainer.default_local_dir)
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / STOP_FILE).unlink(missing_ok=True)
    # Of verl's logger `file`; Ray's processes inherit it.
    os.environ.setdefault("VERL_FILE_LOGGER_PATH", str(directory.path.absolute() / "verl_metrics.jsonl"))
    try:
        with _stopping(checkpoints / STOP_FILE) as install:
            run_ppo(config, task_runner_class=_Runner(TaskRunnerV1, install))
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, StoppedError):
            raise
        print(f"{error.cause} With resume=auto the same command continues from there.", file=sys.stderr)
        raise KeyboardInterrupt from None
    finally:
        ray.shutdown()
        directory.close()
    return directory.path


def _tasks(run: RunSettings) -> dict[str, Any]:
    """Return the tasks of training and evaluation as summary.json has them. Raises ValueError for a wrong option."""
    training = try_environment(run.env, run.seed, recorded_columns(run.algo, run.shaping, run.rollout.record))
    env = make_evaluation_env(run.environments, run.evaluation.model_copy(update={"num_envs": 1}))
    try:
        return {"training": training.describe(), "evaluation": Tasks.of(env).describe()}
    finally:
        env.close()


def _open(run: RunSettings, tasks: Mapping[str, Any]) -> RunDirectory:
    newest = run.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    if run.resume == "must" and not newest.exists():
        raise FileNotFoundError(f"resume=must, but there is no checkpoint of verl: expected {newest}.")
    # verl's checkpoints have other names than ours.
    resume = "auto" if run.resume == "must" else run.resume
    directory = open_run(run.run_dir, resume, run.resolved, run.trainer.iterations)
    if (before := directory.path / TASKS_FILE).exists():
        check_same_tasks(read_json(before), tasks, directory.path)
    return directory


def _resolved(config: Any) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(config, resolve=True)


class _Runner:
    """verl's task runner, with a call before it starts: Ray is there then, and has installed signal handlers."""

    def __init__(self, runner: Any, before_start: Callable[[], None]):
        self._runner, self._before_start = runner, before_start

    def options(self, **options: Any) -> "_Runner":
        return _Runner(self._runner.options(**options), self._before_start)

    def remote(self) -> Any:
        self._before_start()
        return self._runner.remote()


@contextmanager
def _stopping(file: Path) -> Iterator[Callable[[], None]]:
    """Give a function after whose call Ctrl-C and SIGTERM make the file that stops the trainer. A second one ends the
    process at once. Ray 2.60 installs a handler in C++ that aborts the process 3 seconds after a SIGTERM: the function
    replaces it.
    """

    def stop(number: int, _frame: Any) -> None:
        file.touch()
        signal.signal(number, before[number])

    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def install() -> None:
        for number in before:
            signal.signal(number, stop)

    try:
        yield install
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
