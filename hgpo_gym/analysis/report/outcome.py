"""The outcome of a comparison: the better algorithm, its significance, and the cost of reaching a threshold."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import Block, Column, Items, Paragraph, Picture, Section, Table, Value, write
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import (
    Estimate,
    corrected_p_values,
    improvement,
    mean,
    median,
    permutation_p_value,
    sign_flip_p_value,
    spread,
    typical,
)
from hgpo_gym.analysis.report.load import COSTS, Comparison, FinishedRun
from hgpo_gym.runs.directory import COMPARED_GROUPS
from hgpo_gym.trainers.code_used import places

SIGNIFICANCE = 0.05
UNEQUAL = 1.25
"""If costs differ by this factor, success at equal cost is a headline; if optimiser steps do, a paragraph says so."""
WHY_UNEQUAL = {
    True: " A mini-batch without a sample that has an advantage makes no step. With trainer.zero_advantage=mask and "
    "trainer.mini_batch_size=null, all algorithms make equally many.",
    False: " No sample was left out: the algorithms learned from different numbers of responses.",
}
"""Explanations by whether samples with an advantage of 0 were dropped."""
MOST_IN_SHORT = 4
"""The most algorithms for which the summary has every pair."""
OPTIMIZER_STEPS = "optimizer_steps"
EACH_AGAINST_EACH = "Each against each"
SCORES: dict[str, Callable[[FinishedRun], float]] = {
    "final": lambda run: run.final_success,
    "training": lambda run: run.success_while_training,
}
"""The scores that algorithms are compared by."""


class Contest(NamedTuple):
    """One algorithm against another. Both p values are corrected for the number of pairs.

    Attributes:
        improvement: probability of improvement.
        p: p value of the permutation test of ranks; None if either algorithm has one run.
        difference: the mean difference at the same seed; None without common seeds.
        paired_p: p value of the differences at the same seed; None with fewer than two.
    """

    improvement: Estimate
    p: float | None
    difference: Estimate | None
    paired_p: float | None


Contests = Mapping[str, Mapping[tuple[str, str], Contest]]
"""By score and pair: the later algorithm against the earlier one."""


def contests_of(comparison: Comparison) -> Contests:
    """Return the contests of every two algorithms, by score."""
    pairs = [(later, earlier) for earlier, later in combinations(comparison.runs, 2)]
    by_score: dict[str, dict[tuple[str, str], Contest]] = {}
    for name, score in SCORES.items():
        uncorrected = [_contest(comparison, *pair, score) for pair in pairs]
        p_values = zip(
            _corrected([contest.p for contest in uncorrected]),
            _corrected([contest.paired_p for contest in uncorrected]),
            strict=True,
        )
        by_score[name] = {
            pair: contest._replace(p=p, paired_p=paired_p)
            for pair, contest, (p, paired_p) in zip(pairs, uncorrected, p_values, strict=True)
        }
    return by_score


def summary_section(comparison: Comparison, contests: Contests) -> Section:
    """Return the section that says what was compared, and which algorithm is better."""
    settings, final = comparison.settings, comparison.all_runs[0].final
    setup = (
        f"{_and(comparison.runs)}, {_seeds(comparison)}, {settings['trainer.iterations']} iterations of "
        f"{_count(settings['rollout.num_tasks'], 'task')} with {_count(settings['rollout.group_size'], 'episode')} "
        f"each. The final evaluation plays {_count(final['tasks'], 'task')} of {comparison.split} under "
        f"{_count(len(final['success_by_decoding_seed']), 'decoding seed')}."
    )
    ends = ", ".join(
        f"{label} {write(typical([run.final_success for run in runs]), 'share')}"
        for label, runs in comparison.runs.items()
    )
    reported_pairs = list(contests[next(iter(SCORES))])
    blocks: list[Block] = [
        Paragraph(setup),
        *_of_baselines(comparison),
        *_of_steps(comparison),
        *_of_code(comparison),
        Paragraph(f"Final success: {ends}."),
    ]
    if len(comparison.runs) > MOST_IN_SHORT:
        baseline = next(iter(comparison.runs))
        reported_pairs = [pair for pair in reported_pairs if baseline in pair]
        below = f"; every pair stands below, under {EACH_AGAINST_EACH}" if _several(comparison) else ""
        blocks.append(Paragraph(f"Each against {baseline}{below}:"))
    verdicts = tuple(
        f"{left} and {right}: {_verdict(left, right, {name: pairs[left, right] for name, pairs in contests.items()})}"
        for left, right in reported_pairs
    )
    return Section("In short", [*blocks, Items(verdicts)], headline=True)


def differences(comparison: Comparison) -> Section:
    """Return the settings beside the algorithm that differ, such as parts of a recipe; an empty section without any."""
    label_settings = comparison.distinguishing_settings
    if not any(label_settings.values()):
        return Section("What differs", [])
    items = tuple(
        f"{label}: "
        + (", ".join(f"{key}={json.dumps(value)}" for key, value in settings.items()) or "no other setting")
        for label, settings in label_settings.items()
    )
    introduction = "Beside the algorithm's name and its options; every other setting is the same."
    return Section("What differs", [Paragraph(introduction), Items(items)], headline=True)


def _of_baselines(comparison: Comparison) -> list[Block]:
    """Return paragraphs that say how baselines differ from the others beside the algorithm."""
    by_learner: dict[str, list[str]] = defaultdict(list)
    for label in comparison.baselines:
        by_learner[comparison.runs[label][0].settings["learner.name"]].append(label)
    return [
        Paragraph(
            f"{_and(labels)}: by Stable-Baselines3, with a network of its own, from random weights, that "
            "reads hashed words; not with the others' model and update. An iteration plays the same tasks, in every "
            "environment for as many steps as an episode may have: compare by environment steps."
            if learner == "sb3"
            else f"{_and(labels)}: by the learner {learner}, whose update is its own; not with the others' credit and "
            "update."
        )
        for learner, labels in by_learner.items()
    ]


def mean_total(runs: Sequence[FinishedRun], metric: str) -> Estimate | None:
    """Return the mean over runs of a metric's total.

    None if any run lacks the metric, as runs of another library do.
    """
    return mean([run.curve(metric).sum() for run in runs]) if all(run.has(metric) for run in runs) else None


def _of_steps(comparison: Comparison) -> list[Block]:
    """Return a paragraph if algorithms made unequal numbers of optimiser steps, with the likely reason."""
    counted = {
        label: steps.value for label, runs in comparison.runs.items() if (steps := mean_total(runs, OPTIMIZER_STEPS))
    }
    if len(counted) < 2:
        return []
    fewest, most = min(counted, key=counted.__getitem__), max(counted, key=counted.__getitem__)
    if counted[most] <= UNEQUAL * counted[fewest]:
        return []
    settings = comparison.settings
    dropped = settings.get("trainer.zero_advantage") == "drop" and not settings.get("trainer.kl_coef")
    return [
        Paragraph(
            f"Optimiser steps differ, from {counted[fewest]:,.0f} a run of {fewest} to {counted[most]:,.0f} of {most}: "
            f"this may explain part of the difference between the two.{WHY_UNEQUAL[dropped]}"
        )
    ]


def _of_code(comparison: Comparison) -> list[Block]:
    """Return paragraphs if registered code changed between runs of the same kind, or while a run was trained."""
    blocks: list[Block] = []
    states: dict[tuple[str, str], set[str]] = defaultdict(set)
    for label, runs in comparison.runs.items():
        for launch in (launch for run in runs for launch in run.launches):
            for group, code in launch.get("code", {}).items():
                states[group, label if group in COMPARED_GROUPS else ""].add(code)
    for (group, label), codes in states.items():
        if len(codes) > 1:
            owner = f"The runs of {label}" if label else "The runs"
            blocks.append(
                Paragraph(
                    f"{owner} were not all trained by the same {places(min(codes))} ({group}): it was changed between "
                    "runs, or during one. This may explain part of a difference."
                )
            )
    return blocks


def learning_curves(comparison: Comparison, style: Styles) -> Section:
    band = (
        "Line: interquartile mean over training seeds; band: its 95 % interval."
        if _several(comparison)
        else "One run each."
    )
    return Section(
        "Learning curves",
        [
            Picture(
                "learning_curve",
                f"Success in the evaluation of {comparison.split} after each iteration that has one. " + band,
                figures.learning_curve(comparison, style),
            ),
            Picture(
                "learning_curve_over_steps",
                "The same against environment steps, of which short episodes need fewer.",
                figures.learning_curve_over(comparison, style, "steps"),
            ),
            *(
                [
                    Picture(
                        "learning_curve_over_tokens",
                        "The same against generated tokens, of which a team needs more.",
                        figures.learning_curve_over(comparison, style, "tokens"),
                    )
                ]
                if "tokens" in comparison.costs
                else []
            ),
            Picture(
                "training_success",
                f"Success in the training rollouts, averaged over {figures.SMOOTHING} iterations: on training tasks, "
                "at the temperature of training.",
                figures.training_curve(comparison, style, "success", "success", share=True),
            ),
        ],
    )


def final_success(comparison: Comparison, style: Styles) -> Section:
    finals = {label: comparison.scores(label, SCORES["final"]) for label in comparison.runs}
    estimates = {label: typical(scores) for label, scores in finals.items()}
    rows: list[tuple[Value, ...]] = [
        (
            label,
            len(scores),
            float(np.mean([run.evaluations[0]["success"] for run in comparison.runs[label]])),
            estimates[label],
            float(scores.min()),
            float(scores.max()),
            typical(comparison.scores(label, SCORES["training"])),
        )
        for label, scores in finals.items()
    ]
    columns = (
        Column("algorithm"),
        Column("seeds", "whole"),
        *(Column(title, "share") for title in ("before", "final", "lowest", "highest", "training")),
    )
    caption = (
        f"Success in the evaluation of {comparison.split} before and after training: interquartile mean over training "
        "seeds with its 95 % interval, and the range. Training: success in the training rollouts, over all iterations; "
        "higher means that a run learned sooner."
    )
    picture = Picture(
        "final_success",
        "Every dot is the final evaluation of a run; the stroke is the interquartile mean, the bar its 95 % interval.",
        figures.final_success(estimates, finals, style),
    )
    table = Table("final_success", caption, columns, tuple(rows))
    return Section("Final success", [table, picture, *_in_parts(comparison), *_pass_at_k(comparison)], headline=True)


def pairs(comparison: Comparison, contests: Contests) -> Section:
    """Return every two algorithms against each other; an empty section if each has one run."""
    if len(comparison.runs) < 2 or not _several(comparison):
        return Section(EACH_AGAINST_EACH, [])
    named_contests = {
        name: {f"{first} over {second}": contest for (first, second), contest in by_pair.items()}
        for name, by_pair in contests.items()
    }
    rows = [(pair, name, *contest) for name, by_pair in named_contests.items() for pair, contest in by_pair.items()]
    columns = (
        Column("pair"),
        Column("success"),
        Column("probability of improvement", "probability"),
        Column("p", "number"),
        Column("difference, points", "points"),
        Column("p of the difference", "number"),
    )
    caption = (
        "Probability of improvement: the chance that a run of the first does better than a run of the second; ties "
        "count half, and one half is no difference. p: of a permutation test, which shuffles the runs of both. "
        "Difference: the mean over seeds of first minus second at the same seed; its p: of a sign-flip test, which "
        "exchanges the two at random seeds. Both p are corrected for the number of pairs."
    )
    pictures = [
        Picture(
            f"improvement_{name.replace(' ', '_')}",
            f"Success {name}. If an interval crosses the line at one half, the difference is not significant. With few "
            f"runs intervals are too narrow: then p in the table decides, which must be below {SIGNIFICANCE:g}.",
            figures.improvement_intervals({pair: contest.improvement for pair, contest in by_pair.items()}),
        )
        for name, by_pair in named_contests.items()
    ]
    return Section(EACH_AGAINST_EACH, [Table("probability_of_improvement", caption, columns, tuple(rows)), *pictures])


def two_kinds_of_seeds(comparison: Comparison) -> Section:
    """Return the spread over training seeds, and over decoding seeds."""
    rows: list[tuple[Value, ...]] = []
    for label, runs in comparison.runs.items():
        passes = np.array([run.final["success_by_decoding_seed"] for run in runs])
        parts = spread(passes)
        error = None if parts.decoding is None else parts.decoding / passes.shape[1] ** 0.5
        rows.append((label, len(runs), passes.shape[1], parts.training, parts.decoding, error))
    columns = (
        Column("algorithm"),
        Column("training seeds", "whole"),
        Column("decoding seeds", "whole"),
        Column("between training seeds", "points"),
        Column("between decoding seeds", "points"),
        Column("evaluation of one run, standard error", "points"),
    )
    caption = (
        "Standard deviation of the final success in points, by where it comes from: between runs (decoding noise taken "
        "out), and between passes of the same weights over the split. A dash: one seed has no deviation."
    )
    return Section("Training seeds and decoding seeds", [Table("seeds", caption, columns, tuple(rows))])


def time_to_threshold(comparison: Comparison, threshold: float) -> Section:
    rows: list[tuple[Value, ...]] = []
    iterations = comparison.evaluated_iterations
    for label, runs in comparison.runs.items():
        reached = np.array([run.until_threshold(threshold, iterations) for run in runs])
        times = [median(column) for column in reached.T]
        rows.append((label, f"{np.isfinite(reached[:, 0]).sum()} of {len(runs)}", *times))
    columns = (
        Column("algorithm"),
        Column("reached by"),
        Column("iterations", "whole"),
        Column("environment steps", "whole"),
        Column("seconds", "seconds"),
    )
    caption = (
        f"Median until the first evaluation with {100 * threshold:g} % success, over training seeds; "
        "evaluations that all runs have count. A run that does not reach it counts as never. Seconds are of training, "
        "without evaluation."
    )
    table = Table("time_to_threshold", caption, columns, tuple(rows))
    return Section(f"Time to {100 * threshold:g} %", [table], headline=True)


def at_equal_cost(comparison: Comparison) -> Section:
    """Return the success at equal cost.

    At equal iterations, a sampler that plays more, or a team that generates more, would look too good.
    """
    if len(comparison.runs) < 2:
        return Section("At equal cost", [])
    budgets = {cost: min(sum(run.curve(cost)) for run in comparison.all_runs) for cost in comparison.costs}
    rows: list[tuple[Value, ...]] = [
        (label, *(typical([run.success_within(cost, budget) for run in runs]) for cost, budget in budgets.items()))
        for label, runs in comparison.runs.items()
    ]
    columns = (
        Column("algorithm"),
        *(Column(f"{budget:,.0f} {COSTS[cost]}", "share") for cost, budget in budgets.items()),
    )
    caption = (
        "Success of each run at the cost of the cheapest run, interpolated between evaluations. Costs count all that "
        "was played, not only what was learned from."
    )
    unequal = any(max(map(np.mean, row)) > UNEQUAL * min(map(np.mean, row)) for row in _totals(comparison, budgets))
    return Section("At equal cost", [Table("at_equal_cost", caption, columns, tuple(rows))], headline=unequal)


def _totals(comparison: Comparison, costs: Iterable[str]) -> list[list[np.ndarray]]:
    """Return for each cost the totals of the runs of each label."""
    return [[np.array([run.curve(cost).sum() for run in runs]) for runs in comparison.runs.values()] for cost in costs]


def _in_parts(comparison: Comparison) -> list[Block]:
    """Return the final success by split and task type, for the parts that every run was evaluated on."""
    runs = comparison.all_runs
    parts = [part for part in runs[0].final_parts if all(part in run.final_parts for run in runs)]
    if len(parts) < 2:
        return []
    rows: list[tuple[Value, ...]] = [
        (*part, *(typical([run.final_parts[part] for run in label_runs]) for label_runs in comparison.runs.values()))
        for part in parts
    ]
    columns = (Column("split"), Column("task type"), *(Column(label, "share") for label in comparison.runs))
    return [Table("success_by_task_type", "Final success by split and task type.", columns, tuple(rows))]


def _pass_at_k(comparison: Comparison) -> list[Block]:
    """Return pass@k in the final evaluations, if all runs have it for the same numbers k, two or more."""
    measured = [run.final.get("pass_at_k", {}) for run in comparison.all_runs]
    numbers = tuple(measured[0])
    if len(numbers) < 2 or any(tuple(entry) != numbers for entry in measured):
        return []
    rows: list[tuple[Value, ...]] = [
        (label, *(typical([run.final["pass_at_k"][k] for run in runs]) for k in numbers))
        for label, runs in comparison.runs.items()
    ]
    columns = (Column("algorithm"), *(Column(f"pass@{k}", "share") for k in numbers))
    caption = "In the final evaluation: the chance that one of k episodes of a task, by as many decoding seeds, is won."
    return [Table("pass_at_k", caption, columns, tuple(rows))]


def _contest(comparison: Comparison, first: str, second: str, score: Callable[[FinishedRun], float]) -> Contest:
    """Return a contest with uncorrected p values."""
    scores, other_scores = comparison.scores(first, score), comparison.scores(second, score)
    differences = comparison.differences(first, second, score)
    return Contest(
        improvement=improvement(scores, other_scores),
        p=permutation_p_value(scores, other_scores) if min(len(scores), len(other_scores)) > 1 else None,
        difference=mean(differences) if len(differences) else None,
        paired_p=sign_flip_p_value(differences) if len(differences) > 1 else None,
    )


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p values corrected; None stays None."""
    corrected = iter(corrected_p_values([p for p in p_values if p is not None]).tolist())
    return [None if p is None else next(corrected) for p in p_values]


def is_significant(estimate: Estimate, p: float, alike: float = 0.5) -> bool:
    """Return True if two kinds of runs differ significantly, by p and by the interval of their difference.

    Args:
        estimate: the probability of improvement, or the mean difference at the same seed.
        p: the p value of the same.
        alike: the estimate for runs that do not differ: 0.5, or 0 for a difference.
    """
    return p < SIGNIFICANCE and not estimate.low <= alike <= estimate.high


def _verdict(first: str, second: str, contests: Mapping[str, Contest]) -> str:
    """Return which of two is better by each score, if the difference is significant."""
    if any(contest.p is None for contest in contests.values()):
        return "not comparable with one training seed."
    return "; ".join(f"{name}, {who_is_better(first, second, contest)}" for name, contest in contests.items()) + "."


def who_is_better(first: str, second: str, contest: Contest) -> str:
    """Return which of two is significantly better, if either is, with the numbers.

    Args:
        first, second: the labels of the two, with more than a run each.
        contest: of the first against the second.
    """
    estimate, p, difference, paired_p = contest
    assert p is not None
    significant = is_significant(estimate, p)
    result = f"{first if estimate.value > 0.5 else second} is better" if significant else "no significant difference"
    numbers = f"probability {write(estimate, 'probability')}, p = {write(p, 'number')}"
    if not significant and is_significant(estimate, p=0):
        reason = "with few runs or many pairs, an interval that excludes one half is not enough"
        numbers += f", which is not below {SIGNIFICANCE:g}: {reason}"
    if not significant and difference and paired_p is not None and is_significant(difference, paired_p, alike=0):
        numbers += f"; at the same seed {ahead(first, second, difference)}, p = {write(paired_p, 'number')}"
    return f"{result} ({numbers})"


def ahead(first: str, second: str, difference: Estimate) -> str:
    """Return which of two has more, and how much more.

    Args:
        first, second: the labels of the two.
        difference: the success of the first minus that of the second, with its interval.
    """
    if difference.value < 0:
        # The ends of the interval change places with the sign.
        first, difference = second, Estimate(-difference.value, -difference.high, -difference.low, difference.runs)
    return f"{first} is ahead by {write(difference, 'points')} points"


def _several(comparison: Comparison) -> bool:
    return any(len(runs) > 1 for runs in comparison.runs.values())


def _seeds(comparison: Comparison) -> str:
    counts = {label: len(runs) for label, runs in comparison.runs.items()}
    if len(set(counts.values())) == 1:
        return _count(next(iter(counts.values())), "training seed") + (" each" if len(counts) > 1 else "")
    return ", ".join(f"{label} {_count(count, 'training seed')}" for label, count in counts.items())


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _and(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
