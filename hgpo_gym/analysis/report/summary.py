"""The summary of a comparison: what was compared, what differs beside the algorithm, and which algorithm is better."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from hgpo_gym.analysis.report.blocks import Block, Items, Paragraph, Section, write
from hgpo_gym.analysis.report.contests import SCORES, Contests, verdict
from hgpo_gym.analysis.report.intervals import Estimate, mean, typical
from hgpo_gym.analysis.report.load import Comparison, FinishedRun
from hgpo_gym.plain_text import counted
from hgpo_gym.runs.directory import COMPARED_GROUPS
from hgpo_gym.trainers.code_used import places

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


def summary_section(comparison: Comparison, contests: Contests) -> Section:
    """Return the section that says what was compared, and which algorithm is better."""
    settings, final = comparison.settings, comparison.all_runs[0].final
    setup = (
        f"{_and(comparison.runs)}, {_seeds(comparison)}, {settings['trainer.iterations']} iterations of "
        f"{counted(settings['rollout.num_tasks'], 'task')} with {counted(settings['rollout.group_size'], 'episode')} "
        f"each. The final evaluation plays {counted(final['tasks'], 'task')} of {comparison.split} under "
        f"{counted(len(final['success_by_decoding_seed']), 'decoding seed')}."
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
        below = f"; every pair stands below, under {EACH_AGAINST_EACH}" if comparison.has_several_runs else ""
        blocks.append(Paragraph(f"Each against {baseline}{below}:"))
    verdicts = tuple(
        f"{left} and {right}: {verdict(left, right, {name: pairs[left, right] for name, pairs in contests.items()})}"
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


def _seeds(comparison: Comparison) -> str:
    counts = {label: len(runs) for label, runs in comparison.runs.items()}
    if len(set(counts.values())) == 1:
        return counted(next(iter(counts.values())), "training seed") + (" each" if len(counts) > 1 else "")
    return ", ".join(f"{label} {counted(count, 'training seed')}" for label, count in counts.items())


def _and(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
