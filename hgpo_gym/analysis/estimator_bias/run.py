"""`hgpo-gym estimator-bias`: every configured estimator, group size and stage of training, measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from hgpo_gym.advantages import ESTIMATORS, needed_with, with_bases
from hgpo_gym.analysis.estimator_bias import continuations, exact_stages
from hgpo_gym.analysis.estimator_bias.comparison import BiasComparison, Stage
from hgpo_gym.analysis.estimator_bias.report import Finding, draw, show, write_csv
from hgpo_gym.creditbench.decision_process import Dynamics, KnownRules
from hgpo_gym.creditbench.measure import measure
from hgpo_gym.envs.base import TextEnv
from hgpo_gym.envs.registration import make
from hgpo_gym.memory.forms.window import Window
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.samplers import tasks_in_order
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.settings import PlaySettings

MOST_IMPROVED_ON = 100
"""With more tasks in the split, the policy is improved on the measured ones alone."""
TRUE_BASELINE = "true_baseline"
"""The label of G_t - V(h_t) with the exact V, the best possible baseline."""


def _each_once(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("a value stands there twice: name each once.")
    return values


class BiasSettings(SettingsSection):
    """See `configs/estimator-bias.yaml`."""

    estimators: dict[str, dict[str, Any]]
    gamma: Annotated[float, Field(ge=0, le=1)]
    norm: Literal["mean_std_norm", "mean_norm"]
    group_sizes: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1), AfterValidator(_each_once)]
    tasks: PositiveInt
    episodes: Annotated[int, Field(ge=2)]
    improvements: Annotated[list[NonNegativeInt], Field(min_length=1), AfterValidator(_each_once)]
    random_actions: Annotated[
        list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1), AfterValidator(_each_once)
    ]
    probes: PositiveInt
    continuations: Annotated[int, Field(ge=2)]
    groups: Annotated[int, Field(ge=2)] | None


@dataclass(frozen=True)
class BiasResult:
    """An estimator with all its options, and the number of restarts that sample its values (0 if it needs none)."""

    name: str
    options: Mapping[str, Any]
    restarts: int = 0

    @classmethod
    def of(cls, label: str, entry: Mapping[str, Any], settings: BiasSettings) -> "BiasResult":
        """Return an entry of the configuration with the common options. Raises ValueError if the entry is invalid."""
        if "estimator" not in entry:
            raise ValueError(f"bias.estimators.{label} needs estimator=..., one of {', '.join(ESTIMATORS)}.")
        name = entry["estimator"]
        entry_options = {option: value for option, value in entry.items() if option not in ("estimator", "restarts")}
        ESTIMATORS.check_options(name, entry_options)
        restarts = entry.get("restarts", 0)
        if not isinstance(restarts, int) or restarts < 0:
            raise ValueError(f"bias.estimators.{label}.restarts={restarts}: choose a whole number, 0 or more.")
        if restarts and "value" not in needed_with(name, entry_options):
            raise ValueError(f"bias.estimators.{label}.restarts={restarts}: {name} reads no column 'value'.")
        return cls(name, _with_common(name, entry_options, {"gamma": settings.gamma, "norm": settings.norm}), restarts)

    @property
    def without_unit(self) -> bool:
        """True if the estimator may divide by a standard deviation: some `norm` says so, or none is an option."""
        norms = [each.options["norm"] for each in with_bases(self.name, self.options) if "norm" in each.options]
        return not norms or any(norm != "mean_norm" for norm in norms)


def measure_bias(run: PlaySettings, settings: BiasSettings, out: Path, progress: Progress) -> list[Finding]:
    """Measure, print the tables, write `findings.csv`, `context_bias.csv` and `errors.png` into `out`.

    Raises:
        ValueError: an unknown estimator or option, settings that do not fit together, or an environment whose true
            advantages cannot be known.
    """
    estimators = {label: BiasResult.of(label, entry, settings) for label, entry in settings.estimators.items()}
    stages = _stages(run, settings, progress, max((entry.restarts for entry in estimators.values()), default=0))
    findings: list[Finding] = []
    with progress.stage("Measuring") as report_progress:
        for stage in stages:
            for group_size in settings.group_sizes:
                findings += _measure(stage, group_size, estimators)
                total = len(stages) * len(settings.group_sizes)
                report_progress(len({(finding.stage, finding.group_size) for finding in findings}), total, stage.name)
    out.mkdir(parents=True, exist_ok=True)
    without_unit = {label for label, entry in estimators.items() if entry.without_unit}
    show(findings, stages, run.rollout.group_size, without_unit, progress.console)
    write_csv(findings, stages, out)
    draw(findings, stages, out / "errors.png", title=run.env_name)
    progress.line(f"All group sizes and parts of the episode: {out / 'findings.csv'}  Picture: {out / 'errors.png'}")
    return findings


def _with_common(name: str, options: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an estimator with the common ones added, if it accepts them and they are not given.

    The options of its base estimator are completed likewise.
    """
    accepted = ESTIMATORS.options(name)
    complete = {option: value for option, value in common.items() if option in accepted} | dict(options)
    if base := with_bases(name, options)[1:2]:
        complete["base_options"] = _with_common(base[0].name, options.get("base_options", {}), common)
    return complete


def _stages(run: PlaySettings, settings: BiasSettings, progress: Progress, restarts: int) -> list[Stage]:
    """Return exact stages if the environment's rules are known, else stages by continuations.

    Their batches have `restarts` restarts.
    """
    env = make(run.env.id, **run.env.options)
    assert env.spec is not None
    assert env.spec.max_episode_steps is not None
    horizon = env.spec.max_episode_steps
    text_env: TextEnv = env.unwrapped  # type: ignore[assignment]
    task_ids = tasks_in_order(text_env.task_ids, run.seed, 0, min(settings.tasks, len(text_env.task_ids)))
    common: dict[str, Any] = {
        "history_length": run.memory.history_length,
        "key": run.memory.key,
        "gamma": settings.gamma,
        "horizon": horizon,
        "episodes": settings.episodes,
        "groups_a_batch": run.rollout.num_tasks,
        "seed": run.seed,
        "restarts": restarts,
    }
    if isinstance(text_env, KnownRules) and (measured := _rules(text_env, task_ids)):
        memory = run.memory.make()
        if not isinstance(memory, Window):
            raise ValueError(
                f"memory={run.memory.name}: exact values need memory=window, the steps that a table reads."
            )
        exact_settings = exact_stages.ExactSettings(improvements=settings.improvements, window=memory.window, **common)
        has_many = len(text_env.task_ids) > MOST_IMPROVED_ON
        tasks = measured if has_many else _rules(text_env, text_env.task_ids)
        return exact_stages.exact_stages(tasks, measured, exact_settings)
    with_expert = make(run.env.id, **{**run.env.options, "expert": True})
    sampled_settings = continuations.SampledSettings(
        random_actions=settings.random_actions,
        probes=settings.probes,
        continuations=settings.continuations,
        groups=settings.groups or settings.continuations,
        **common,
    )
    with progress.stage("Finding true advantages") as report_progress:
        return continuations.sampled_stages(with_expert.unwrapped, task_ids, sampled_settings, report_progress)  # type: ignore[arg-type]


def _rules(env: KnownRules, task_ids: Sequence[str]) -> list[Dynamics]:
    """Return the rules of tasks; an empty list if those of one are not known."""
    rules = [env.dynamics(task_id) for task_id in task_ids]
    return [task for task in rules if task is not None] if None not in rules else []


def _measure(stage: Stage, group_size: int, estimators: Mapping[str, BiasResult]) -> list[Finding]:
    comparison = stage.compare(group_size)
    if comparison.truth.signal <= 0:
        raise ValueError(
            f"{stage.name}: the true advantages are lost in the noise of their estimates. Raise bias.probes and "
            "bias.continuations."
        )
    findings = []
    for label, estimator in estimators.items():
        estimates = comparison.estimates(estimator.name, restarts=estimator.restarts, **estimator.options)
        findings += _by_part(stage, group_size, label, estimates, comparison, estimator.without_unit)
    if comparison.truth.noise.any():
        estimates = comparison.truth.advantage + comparison.truth.noise
        findings += _by_part(stage, group_size, TRUE_BASELINE, estimates, comparison, fit_scale=False)
    return findings


def _by_part(
    stage: Stage, group_size: int, label: str, estimates: np.ndarray, comparison: BiasComparison, fit_scale: bool
) -> list[Finding]:
    """Return the errors over all steps, then by part of the episode: steps 0 to 1, 2 to 3, 4 to 7, 8 to 15, ..."""
    truth = comparison.truth
    part = np.floor(np.log2(np.maximum(truth.step, 1))).astype(np.int64)
    findings = [Finding(stage.name, group_size, "all", label, measure(estimates, truth, fit_scale=fit_scale))]
    for number in np.unique(part):
        rows = part == number
        steps = f"{2**number if number else 0} to {2 ** (number + 1) - 1}"
        errors = measure(estimates[rows], truth[rows], fit_scale=fit_scale)
        findings.append(Finding(stage.name, group_size, steps, label, errors))
    return findings
