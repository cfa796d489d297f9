"""Signs that training goes wrong: what is seen in a run's metrics, its likely cause, and the setting to try.

The trainer says them while it trains; the report and `hgpo-gym health` say them afterwards. Limits were set so that the
healthy runs of docs/reading_a_run.md show none and the broken ones do.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.runs.metric_table import METRICS, SHARE

WINDOW = 5
"""Iterations that success is averaged over before it is compared with its best."""
LEAST_BEST = 0.1
"""The success that a run must have had before it can be said to have lost it."""
STANDARD_ERRORS = 4
"""A fall of success within so many standard errors of a difference may be chance."""
BY_CHANCE = 0.01
"""How often evaluations that differ by chance alone may be said to have fallen, at each of them."""


@dataclass(frozen=True)
class Check:
    """A metric, what is wrong with it when, and what then.

    Attributes:
        metric: its name in `METRICS`.
        kind: `above` or `below` the limit; `fallen` below that share of the best mean of `WINDOW` iterations.
        limit: see `kind`; times the setting `of`, where that is given.
        cause: the likely one.
        remedy: settings to try, `; ` between them; names of settings get the run's values beside them, and what a run
            has already is left out.
        in_a_row: iterations that it must hold for; those that have no value of the metric do not hold.
        while_success_below: it is no sign in a run that is as good as this.
        of: a setting.
        of_pairs: the limit is no lower than what chance makes of all pairs so far, in standard errors.
        unless: a setting; where that is anything but `none`, it is no sign.
    """

    metric: str
    kind: Literal["above", "below", "fallen"]
    limit: float
    cause: str
    remedy: str
    in_a_row: int = 1
    while_success_below: float = np.inf
    of: str = ""
    of_pairs: bool = False
    unless: str = ""


UNLEARNED = "an update went too far, or the policy was driven away from what it had learned"
LEARN_GENTLY = (
    "go on from the best checkpoint (hgpo-gym export --iteration, iteration=best of hgpo-gym eval) with a lower "
    "trainer.learning_rate; set trainer.zero_advantage=drop; set trainer.kl_coef above 0"
)

ENVIRONMENT_FAILS = "an environment raises errors, or takes longer than rollout.worker_timeout"
MEND_ENVIRONMENT = (
    "hgpo-gym inspect RUN --failures shows which and what was said; mend it, or raise rollout.worker_timeout"
)

CHECKS = (
    Check(
        "failed_episodes",
        "above",
        0,
        ENVIRONMENT_FAILS,
        MEND_ENVIRONMENT,
    ),
    Check(
        "kl_behaviour",
        "above",
        0.2,
        "the optimiser's steps are too long, and one update undoes what the policy knew",
        "lower trainer.learning_rate tenfold; raise trainer.warmup_steps; take trainer.update_epochs=1",
        while_success_below=0.95,  # in a solved task the few answers with an advantage move far and alone
    ),
    Check(
        "kl_reference",
        "above",
        3.0,
        "the policy has left the weights that it began with",
        "lower trainer.learning_rate; raise trainer.kl_coef",
        in_a_row=3,
    ),
    Check(
        "clip_fraction",
        "above",
        0.6,  # objective=gspo has a tight bound, and about 0.5 in runs that learn
        "updates go so far that the objective's bound leaves most tokens without a gradient",
        "lower trainer.learning_rate; take trainer.update_epochs=1; take a larger trainer.mini_batch_size",
        in_a_row=2,
    ),
    Check(
        "gradient_norm",
        "above",
        10.0,
        "rewards or advantages of very different size, or weights that an update has broken",
        "lower trainer.learning_rate; choose algo.norm=mean_std_norm; look at the answers by hgpo-gym inspect",
        in_a_row=2,
        of="trainer.max_grad_norm",
    ),
    Check(
        "zero_variance_groups",
        "above",
        0.9,
        "all episodes of a task end alike, mostly lost, so that there is nothing to compare",
        "start from warmstart.source=expert; raise rollout.group_size, env.max_episode_steps or "
        "rollout.temperature; play informative groups only (sampler=dynamic)",
        in_a_row=3,
        while_success_below=0.5,
    ),
    Check(
        "entropy",
        "below",
        0.02,
        "the policy has settled on one answer before it was a good one",
        "raise trainer.entropy_coef; raise trainer.clip_high; lower trainer.learning_rate",
        in_a_row=2,
        while_success_below=0.8,
    ),
    Check(
        "valid_action_rate",
        "below",
        0.5,
        "the model does not know the form of an answer, or its answers are cut off",
        "set engine.constrain=admissible; set prompt=instruct; set warmstart.source=random; raise "
        "rollout.max_new_tokens",
        in_a_row=3,
    ),
    Check(
        "truncated_fraction",
        "above",
        0.1,
        "answers are longer than they may be, and what is missing is their action",
        "raise rollout.max_new_tokens, or ask for less in the prompt; use shaping=overlong",
        in_a_row=2,
    ),
    Check(
        "prompt_cut_share",
        "above",
        0.1,
        "prompts are longer than the engine reads, and the policy does not see what it is meant to",
        "raise engine.max_prompt_tokens, or lower memory.window",
        in_a_row=2,
    ),
    Check(
        "mismatch_kl",
        "above",
        0.01,
        "the engine that draws the answers has other weights (rollout.staleness) or another number format than the "
        "trainer",
        "set the same precision in engine.precision and trainer.precision; set rollout.staleness=0; correct for it by "
        "trainer.importance_correction=token",
        in_a_row=2,
        unless="trainer.importance_correction",
    ),
    Check("success", "fallen", 0.5, UNLEARNED, LEARN_GENTLY),
    # What training success hides, whose tasks change.
    Check("evaluation_drop", "above", 3.0, UNLEARNED, LEARN_GENTLY, of_pairs=True),
    Check(
        "evaluation_failed",
        "above",
        0,
        f"{ENVIRONMENT_FAILS}; such episodes count as not won",
        MEND_ENVIRONMENT,
    ),
)
"""Of each metric one at most, the likeliest first causes before what follows from them."""


@dataclass(frozen=True)
class Diagnostic:
    """A check that held.

    Attributes:
        check: which.
        iterations: after which it held, in order.
        worst: the value farthest beyond the limit, in any of them.
        limit: of the check, in this run.
        settings: of the run, flat.
    """

    check: Check
    iterations: tuple[int, ...]
    worst: float
    limit: float
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.seen}. {self.cause} {self.remedy}"

    @property
    def seen(self) -> str:
        """`KL to behaviour 2.12 (above 0.2)`."""
        metric = METRICS[self.check.metric]
        relation = (
            f"below {self._written(self.limit)}, half of its best or less"
            if self.check.kind == "fallen"
            else f"{self.check.kind} {self._written(self.limit)}"
        )
        return f"{metric.title} {self._written(self.worst)} ({relation})"

    @property
    def when(self) -> str:
        """`after iteration 3`, `after 9 iterations from 4 to 12`."""
        first, last = self.iterations[0], self.iterations[-1]
        if first == last:
            return f"after iteration {first}"
        return f"after {len(self.iterations)} iterations from {first} to {last}"

    @property
    def cause(self) -> str:
        return f"Likely cause: {self.check.cause}."

    @property
    def remedy(self) -> str:
        """With the run's value beside each setting."""
        return f"Try: {_with_values(self.check.remedy, self.settings)}."

    def _written(self, value: float) -> str:
        return f"{value:.1%}" if METRICS[self.check.metric].unit == SHARE else f"{value or 0.0:.3g}"  # not -0


def diagnose(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Diagnostic]:
    """What is wrong with a run, in the order of `CHECKS`; empty where nothing is.

    Args:
        metrics: of its iterations, see metrics.jsonl.
        settings: of the run, flat: `trainer.learning_rate`.
    """
    found = []
    success = _values(metrics, "success")
    iterations = [int(line["iteration"]) for line in metrics]
    for check in CHECKS:
        if settings.get(check.unless, "none") != "none":
            continue
        values = _values(metrics, check.metric)
        limits = np.full(len(values), check.limit * float(settings.get(check.of, 1.0)))
        if check.kind == "fallen":
            values, limits = _after_the_best(values, check.limit, _episodes(metrics, settings))
        if check.of_pairs:
            limits = np.maximum(limits, _largest_by_chance(1 + np.cumsum(~np.isnan(values))))
        beyond = values > limits if check.kind == "above" else values < limits
        held = _in_a_row(beyond & (success < check.while_success_below), check.in_a_row)
        if held.any():
            worst = int(np.nanargmax(np.where(held, values if check.kind == "above" else -values, -np.inf)))
            when = tuple(number for number, holds in zip(iterations, held, strict=True) if holds)
            found.append(Diagnostic(check, when, float(values[worst]), float(limits[worst]), settings))
    return found


def check_numbers(settings: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError where a setting of a run that `diagnose` counts with is no number."""
    for name in ("rollout.num_tasks", "rollout.group_size", *(check.of for check in CHECKS)):
        float(settings.get(name, 1.0))


def _values(metrics: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """float64[iterations]: not a number where there is none, which is neither above nor below a limit."""
    return np.array([line.get(name, np.nan) for line in metrics], dtype=np.float64)


def _in_a_row(beyond: np.ndarray, count: int) -> np.ndarray:
    """bool[iterations]: where the last `count` are all true."""
    sums = np.cumsum(beyond)
    before = np.concatenate([np.zeros(count, dtype=np.int64), sums])[: len(sums)]
    return sums - before == count


def _episodes(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> np.ndarray:
    """float64[iterations]: that the success of each is a mean of; in older runs, which do not say so, by settings."""
    episodes = _values(metrics, "first_round_episodes")
    return np.where(np.isnan(episodes), settings["rollout.num_tasks"] * settings["rollout.group_size"], episodes)


def _after_the_best(success: np.ndarray, share: float, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of the last `WINDOW` iterations, and what they must not be below: a share of their best so far, less where
    the difference could be chance, and nothing before there was a best."""
    windows = [slice(max(0, end - WINDOW), end) for end in range(1, len(success) + 1)]
    means = np.array([success[window].mean() for window in windows])
    count = np.array([episodes[window].sum() for window in windows])
    best = np.maximum.accumulate(np.where(np.arange(len(means)) >= WINDOW - 1, means, 0.0))
    middle = np.clip((best + means) / 2, 0, 1)
    chance = STANDARD_ERRORS * np.sqrt(2 * middle * (1 - middle) / count)
    limits = np.minimum(share * best, best - chance)
    return means, np.where(best >= LEAST_BEST, limits, 0.0)


def _largest_by_chance(evaluations: np.ndarray) -> np.ndarray:
    """How many standard errors apart the farthest two of so many evaluations may be, where they differ by chance: by
    `BY_CHANCE` over the number of pairs (Bonferroni)."""
    return np.array([NormalDist().inv_cdf(1 - BY_CHANCE / (count * (count - 1))) for count in evaluations.clip(2)])


SB3_NAMES = {
    "trainer.learning_rate": "algo.learning_rate",
    "trainer.update_epochs": "algo.n_epochs",
    "trainer.mini_batch_size": "algo.batch_size",
    "trainer.entropy_coef": "algo.ent_coef",
    "trainer.clip_high": "algo.clip_range",
}
"""What algorithms of Stable-Baselines3 call a setting, where they have it."""
POLICY_GRADIENT_ALONE = re.compile(r"\b(?:trainer|warmstart|engine)\.|\b(?:sampler|prompt|shaping)=|\balgo\.norm\b")
"""Settings that another learner does not read."""


_ASSIGNMENT = re.compile(r"\b([a-z]+(?:\.[a-z_0-9]+)*)=(\w+)")


def _is_set(name: str, value: str, settings: Mapping[str, Any]) -> bool:
    """Whether a run has that value of a setting, or has chosen it of a group."""
    if name == "prompt":  # whose texts a run keeps, and not their name
        return bool(settings.get("prompt.first") == PromptTemplate.named(value).first)
    return str(settings.get(name, settings.get(f"{name}.name"))) == value


def _with_values(text: str, settings: Mapping[str, Any]) -> str:
    """The text, with the run's value after each setting that it names, without those that have the value already; for
    another objective or an algorithm with a learner of its own, with the names of their options, and without what they
    do not read."""
    if settings.get("objective.name", "ppo_clip") != "ppo_clip":
        if "objective.clip_high" in settings:
            text = text.replace("trainer.clip_high", "objective.clip_high")
        text = "; ".join(part for part in text.split("; ") if "trainer.clip_high" not in part)
    if settings.get("learner.name", "policy_gradient") != "policy_gradient":
        for ours, theirs in SB3_NAMES.items():
            if theirs in settings:
                text = text.replace(ours, theirs)
        kept = [part for part in text.split("; ") if not POLICY_GRADIENT_ALONE.search(part)]
        text = "; ".join(kept)
    has = {
        part for part in text.split("; ") for name, value in _ASSIGNMENT.findall(part) if _is_set(name, value, settings)
    }
    text = "; ".join(part for part in text.split("; ") if part not in has) or "other options of algo"
    return re.sub(
        r"\b[a-z]+(?:\.[a-z_0-9]+)+\b(?!=)",
        lambda name: f"{name[0]} (now {settings[name[0]]})" if name[0] in settings else name[0],
        text,
    )
