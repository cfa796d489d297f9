"""The chapters of a report: one for each comparison; with several, an overview comes first."""

from collections.abc import Sequence
from pathlib import Path

from hgpo_gym.analysis.report import contests, health, outcome, standings, summary, training
from hgpo_gym.analysis.report.blocks import Chapter, Paragraph, Section
from hgpo_gym.analysis.report.figures import Styles
from hgpo_gym.analysis.report.load import Comparison
from hgpo_gym.plain_text import first_of

LISTED = 10
"""The most unfinished runs that are named."""
NOTES = (
    "Success is an evaluation: every task of the split, once under each decoding seed. A training seed is one run; it "
    "decides the order of tasks, the sampling of actions and the order of mini-batches. The initial weights are the "
    "same in all runs of a comparison, and so are all settings but the algorithm's own.",
    "Numbers over several training seeds are interquartile means: means of the middle half of the runs, from four runs "
    "on. Brackets hold 95 % intervals over training seeds, by the percentile bootstrap (2,000 resamples of whole "
    "runs), after Agarwal et al., “Deep Reinforcement Learning at the Edge of the Statistical Precipice”, NeurIPS "
    "2021. With runs from a normal distribution such an interval holds the truth in 76 % of cases with 3 runs, in 90 % "
    "with 5, in 93 % with 10, in 95 % with 20. Differences within seeds, and costs, are means; their brackets are "
    "t intervals, which hold it in 95 % with any number. “No spread”: all runs or resamples gave the same number, so "
    "there is no interval. With one training seed there is no interval, because nothing is known about "
    "other seeds.",
    "The probability of improvement is the chance that a run of one algorithm does better than a run of another. p "
    "comes from shuffling which run belongs to which (10,000 shuffles, two-sided). One is called better if the "
    "interval excludes one half and p is below 0.05, corrected for the number of pairs: of those called better, at "
    "most one in twenty is expected to be so by chance (Benjamini & Hochberg, JRSS B 57, 1995). Differences are "
    "taken at the same seed, which fixes the order of tasks, so they can be significant "
    "where the ranks of runs are not.",
)


def comparison_chapter(comparison: Comparison, style: Styles, *, title: str, slug: str, threshold: float) -> Chapter:
    """Return the chapter of one comparison."""
    all_contests = contests.contests_of(comparison)
    sections = [
        health.warnings(comparison),
        summary.summary_section(comparison, all_contests),
        summary.differences(comparison),
        outcome.learning_curves(comparison, style),
        outcome.final_success(comparison, style),
        outcome.pairs(comparison, all_contests),
        outcome.at_equal_cost(comparison),
        outcome.two_kinds_of_seeds(comparison),
        outcome.time_to_threshold(comparison, threshold),
        training.rollout_costs(comparison),
        training.credit_assignment(comparison, style),
        training.group_sizes(comparison),
        health.update(comparison, style),
        training.time(comparison),
        training.runs(comparison, threshold),
        training.reproduction(comparison),
    ]
    return Chapter(title, slug, [section for section in sections if section.blocks])


def overview_chapter(comparisons: Sequence[Comparison]) -> Chapter:
    """Return the chapter on several comparisons together; totals are over the algorithms that all of them have."""
    shared_labels = [
        label for label in comparisons[0].runs if all(label in comparison.runs for comparison in comparisons)
    ]
    sections = [
        standings.success(comparisons, shared_labels),
        standings.ranks(comparisons, shared_labels),
        standings.pairs(comparisons, shared_labels),
        *map(standings.verdicts, comparisons),
        standings.cost(comparisons),
    ]
    return Chapter("All comparisons", "", [section for section in sections if section.blocks])


def left_out(unfinished: Sequence[Path]) -> list[Section]:
    """Return a section that names the unfinished runs; no section if all runs are finished."""
    if not unfinished:
        return []
    message = f"Runs that are not finished: {first_of(unfinished, LISTED)}."
    return [Section("Left out", [Paragraph(message)], headline=True)]


def notes_chapter() -> Chapter:
    """Return the chapter that explains how to read the report."""
    return Chapter("How to read this", "", [Section("", [*map(Paragraph, NOTES)])])
