"""Which form of memory learns most, by which method and keys, for how many tokens?

    python -m benchmarks.memory_forms runs/memory_forms --environments signpost --seeds 5
    python -m benchmarks.memory_forms runs/memory_forms --to benchmarks/results/memory_forms.csv

A run that has finished is not played again. Forms of one environment imitate the same episodes of an expert. Success is
that of evaluations, which are played before training and after every second iteration (in `crafting` every fifth). At
equal tokens it is read from the line between two evaluations, at the tokens that the cheapest run of its environment
needed.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hgpo_gym as hg
from benchmarks.league_runs import in_percent, in_points
from hgpo_gym.analysis.report.intervals import at_shared_seeds, mean
from hgpo_gym.runs.directory import finished_iterations, read_metrics, read_summary

SHARED = (
    *("model=tiny", "prompt=brief", "engine.constrain=none"),
    "plugins=[benchmarks/lying_signpost.py,benchmarks/crafting_by_heart.py,benchmarks/note_credit.py]",
    *("evaluation.every=2", "evaluation.temperature=1", "checkpoint.rollouts_every=0", "checkpoint.every=100"),
    *("warmstart.source=expert", "trainer.iterations=10"),
)  # fmt: skip
ENVIRONMENTS = {
    # The signpost is three observations before its hall. In the episodes to imitate six signposts in ten are random.
    "signpost": (
        *("env=lying_signpost", "env.max_episode_steps=12", "evaluation.split=null", "evaluation.decoding_seeds=8"),
        *("rollout.num_tasks=4", "rollout.group_size=8", "rollout.max_new_tokens=16"),
        *("warmstart.episodes=150", "warmstart.epochs=6", "warmstart.batch_size=16"),
    ),
    # The model imitates half as many episodes as it needs to win every game.
    "secret_word": (
        *("env=secret_word", "rollout.num_tasks=8", "rollout.group_size=8", "evaluation.decoding_seeds=2"),
        *("warmstart.episodes=2250", "warmstart.epochs=4", "warmstart.learning_rate=3e-3"),
    ),
    # In the episodes to imitate three actions in ten are random. The six goals are all in every iteration.
    "crafting": (
        *("env=crafting_by_heart", "env.max_episode_steps=20", "evaluation.split=null", "evaluation.decoding_seeds=8"),
        *('prompt.first="{task}\n{observation}\n>"', 'prompt.later="{task}\n{history}{observation}\n>"'),
        *("rollout.num_tasks=6", "rollout.group_size=8", "rollout.max_new_tokens=12", "evaluation.every=5"),
        *("warmstart.episodes=300", "warmstart.epochs=6", "warmstart.batch_size=16"),
        # A penalty divided by the standard deviation of a group that always fails would count like a success.
        "algo.norm=mean_norm",
    ),
}
FORMS = {
    "window 0": ("memory=none",),
    "window 2": ("memory=window", "memory.window=2"),
    "window all": ("memory=full",),
    "conversation": ("memory=conversation",),
    "conversation, rows=episode": ("memory=conversation", "trainer.rows=episode"),
    "notes": ("memory=notes",),
    "notes every 3 steps": ("memory=notes", "memory.every=3"),
}
LONGER = {("crafting", "notes"): ("rollout.max_new_tokens=40",)}
"""Notes that list all that is carried need longer responses."""
METHODS = ("hgpo", "grpo", "gigpo")
KINDS = ("prompt", "response")
"""Tokens that are read, and tokens that are written."""
MEASURES = ("before", "after", *(f"at_equal_{kind}_tokens" for kind in KINDS))
COLUMNS = ("environment", "form", "method", "keys", "seed", *(f"{kind}_tokens" for kind in KINDS), *MEASURES)
MOST_SEEDS = 10
PROTOCOL = "Settings: benchmarks/memory_forms.py. Tokens are of training; at_equal_*: at those of the cheapest run."


class Arm(NamedTuple):
    """A form, a method and its keys."""

    form: str
    method: str
    keys: str = "observation"


WITHOUT_NOTES = ("window 0", "window 2", "window all", "conversation")
ARMS = {
    "signpost": [
        *(Arm(form, method) for method in METHODS for form in (*WITHOUT_NOTES, "conversation, rows=episode", "notes")),
        *(Arm("notes", method, "observation+notes") for method in ("hgpo", "gigpo")),
        *(Arm("notes every 3 steps", method) for method in ("hgpo", "hgpo_notes_share", "hgpo_notes_none")),
        Arm("notes every 3 steps", "hgpo", "observation+notes"),
    ],
    "crafting": [Arm(form, "hgpo") for form in (*WITHOUT_NOTES, "conversation, rows=episode", "notes")],
    # No expert of this environment writes notes.
    "secret_word": [Arm(form, method) for method in ("hgpo", "grpo") for form in WITHOUT_NOTES],
}


OWN, KEYED = Arm("notes every 3 steps", "hgpo"), Arm("notes", "hgpo", "observation+notes")
QUESTIONS = (
    *(("after", Arm(form, "hgpo"), Arm("window 2", "hgpo")) for form in ("window 0", "window all", "notes")),
    ("at_equal_prompt_tokens", Arm("notes", "hgpo"), Arm("window all", "hgpo")),
    ("at_equal_response_tokens", Arm("notes", "hgpo"), Arm("window all", "hgpo")),
    ("after", Arm("conversation", "hgpo"), Arm("window all", "hgpo")),
    ("after", Arm("conversation, rows=episode", "hgpo"), Arm("conversation", "hgpo")),
    *(("after", Arm(form, "hgpo"), Arm(form, "grpo")) for form in ("window all", "conversation", "notes")),
    ("after", KEYED, Arm("notes", "hgpo")),
    ("after", Arm("notes", "gigpo", "observation+notes"), Arm("notes", "gigpo")),
    ("after", OWN, Arm("notes every 3 steps", "hgpo_notes_share")),
    ("after", OWN, Arm("notes every 3 steps", "hgpo_notes_none")),
    ("after", Arm("notes every 3 steps", "hgpo", "observation+notes"), OWN),
)
"""Differences to print: the measure, an arm, and the arm to subtract."""


class Played(NamedTuple):
    """A run: its tokens of training before each evaluation, and the success there."""

    seed: int
    tokens: dict[str, np.ndarray]
    success: np.ndarray

    def at(self, kind: str, budget: float) -> float:
        """Return the success when the run had read or written so many tokens."""
        return float(np.interp(budget, self.tokens[kind], self.success))


Curves = dict[Arm, list[Played]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--methods", nargs="+", help="estimators; all by default")
    parser.add_argument("--seeds", type=int, default=0, help="play what is missing of so many; 0 only reads")
    parser.add_argument("--to", type=Path, help="the CSV file to write")
    parsed = parser.parse_args(arguments)
    for seed in range(parsed.seeds):
        for environment in parsed.environments:
            for arm in ARMS[environment]:
                if arm.form in parsed.forms and arm.method in (parsed.methods or [arm.method]):
                    play(environment, arm, seed, parsed.out)
    found = {environment: read(environment, parsed.out) for environment in parsed.environments}
    for environment, curves in found.items():
        print("\n".join([f"{environment}", *table(curves), *differences(curves)]))
    if parsed.to:
        with parsed.to.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {PROTOCOL}\r\n")
            csv.writer(file).writerows(
                [COLUMNS, *(line for name, curves in found.items() for line in lines(name, curves))]
            )


def folder(environment: str, arm: Arm, seed: int, out: Path) -> Path:
    """Return the run directory."""
    return out / environment / "-".join([*arm, f"seed{seed}"]).replace(" ", "_").replace(",", "")


def play(environment: str, arm: Arm, seed: int, out: Path) -> None:
    """Train a run, unless it has finished."""
    run = folder(environment, arm, seed, out)
    if not finished_iterations(run):
        of_form = (*FORMS[arm.form], *LONGER.get((environment, arm.form), ()))
        settings = [*SHARED, *ENVIRONMENTS[environment], *of_form, f"memory.key={arm.keys}"]
        hg.train(algo=arm.method, overrides=settings, seed=seed, run_dir=run, resume=True, progress=False)


def read(environment: str, out: Path) -> Curves:
    """Return the runs that have finished, by arm."""
    curves: Curves = defaultdict(list)
    for arm in ARMS[environment]:
        for seed in range(MOST_SEEDS):
            run = folder(environment, arm, seed, out)
            if finished_iterations(run):
                curves[arm].append(curve(seed, run))
    return curves


def curve(seed: int, run: Path) -> Played:
    """Return a run's tokens and success."""
    metrics, evaluations = read_metrics(run), read_summary(run)["evaluations"]
    iterations = [evaluation["iteration"] for evaluation in evaluations]
    tokens = {
        kind: np.cumsum([0.0, *(line[f"{kind}_tokens_episode"] * line["episodes"] for line in metrics)])[iterations]
        for kind in KINDS
    }
    return Played(seed, tokens, np.array([evaluation["success"] for evaluation in evaluations]))


def budgets(curves: Curves) -> dict[str, float]:
    """Return the tokens that every run has had."""
    return {kind: min(run.tokens[kind][-1] for runs in curves.values() for run in runs) for kind in KINDS}


def measures(run: Played, least: dict[str, float]) -> tuple[float, ...]:
    """Return success before and after training, and at equal tokens of each kind."""
    return (run.success[0], run.success[-1], *(run.at(kind, least[kind]) for kind in KINDS))


def lines(environment: str, curves: Curves) -> Iterator[tuple[Any, ...]]:
    """Yield the CSV's line of each run."""
    least = budgets(curves)
    for arm, runs in curves.items():
        for run in runs:
            success = (round(value, 4) for value in measures(run, least))
            yield environment, *arm, run.seed, *(int(run.tokens[kind][-1]) for kind in KINDS), *success


def table(curves: Curves) -> Iterator[str]:
    """Yield a line for each arm: means in percent with 95 % t intervals over seeds, and thousands of tokens."""
    least = budgets(curves)
    yield f"equal tokens: {', '.join(f'{kind} {budget:,.0f}' for kind, budget in least.items())}"
    yield " | ".join(("form", "method", "keys", "seeds", *(f"{kind}, 1000" for kind in KINDS), *MEASURES))
    for arm, runs in curves.items():
        success = np.array([measures(run, least) for run in runs]).T
        tokens = (f"{np.mean([run.tokens[kind][-1] for run in runs]) / 1000:.0f}" for kind in KINDS)
        yield " | ".join((*arm, str(len(runs)), *tokens, *(in_percent(mean(values)) for values in success)))


def differences(curves: Curves) -> Iterator[str]:
    """Yield the differences in points at the same seed, with 95 % t intervals; an asterisk as in `in_points`."""
    least = budgets(curves)
    asked = [question for question in QUESTIONS if question[1] in curves and question[2] in curves]
    values = []
    for measure, arm, baseline in asked:
        column = MEASURES.index(measure)
        first, second = ({run.seed: measures(run, least)[column] for run in curves[one]} for one in (arm, baseline))
        values.append(at_shared_seeds(first, second))
    for (measure, arm, baseline), points in zip(asked, in_points(values), strict=True):
        yield f"{measure}: {', '.join(arm)} minus {', '.join(baseline)}: {points}"


if __name__ == "__main__":
    main()
