"""The results of a comparison: success, its spread, and the cost of reaching it."""

from collections.abc import Iterable

import numpy as np

from hgpo_gym.analysis.report import figures
from hgpo_gym.analysis.report.blocks import Block, Column, Paragraph, Picture, Section, Table, Value
from hgpo_gym.analysis.report.contests import SCORES, SIGNIFICANCE, Contests
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.intervals import median, spread, typical
from hgpo_gym.analysis.report.load import COSTS, Comparison
from hgpo_gym.analysis.report.summary import EACH_AGAINST_EACH, UNEQUAL


def learning_curves(comparison: Comparison, style: Styles) -> Section:
    band = (
        "Line: interquartile mean over training seeds; band: its 95 % interval."
        if comparison.has_several_runs
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
            *(
                [
                    Picture(
                        "training_success",
                        f"Success in the training rollouts, averaged over {figures.SMOOTHING} iterations: on training "
                        "tasks, at the temperature of training.",
                        figures.training_curve(comparison, style, "success", "success", share=True),
                    )
                ]
                if comparison.has_curves
                else []
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
    if len(comparison.runs) < 2 or not comparison.has_several_runs:
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
    title, iterations = f"Time to {100 * threshold:g} %", comparison.evaluated_iterations
    if all(run.success_at(iteration) < threshold for run in comparison.all_runs for iteration in iterations):
        return Section(title, [Paragraph("Not reached: no evaluation of any run has this success.")], headline=True)
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
    return Section(title, [table], headline=True)


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
