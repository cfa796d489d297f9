"""`hgpo-gym report`, `health`, `inspect` and `estimator-bias`: the analysis of runs and estimators."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from hgpo_gym.analysis.estimator_bias.run import BiasSettings, measure_bias
from hgpo_gym.analysis.inspection import inspect_evaluation, inspect_failures, inspect_run
from hgpo_gym.analysis.report import write_report
from hgpo_gym.analysis.report.health import health_of_run
from hgpo_gym.analysis.report.write import show
from hgpo_gym.cli.errors import mistakes_explained
from hgpo_gym.plugins import load_plugins
from hgpo_gym.progress import Progress
from hgpo_gym.section import parse_section
from hgpo_gym.trainers.settings import PlaySettings


def report(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym report`."""
    several = len(parsed.directories) > 1
    out = parsed.out or (Path("report") if several else parsed.directories[0])
    page = write_report(parsed.directories, out, threshold=parsed.threshold, console=Console())
    print(f"Report: {page}")


def health(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym health`."""
    for run in parsed.runs:
        show(str(run), [health_of_run(run)], Console())


def inspect(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym inspect`."""
    load_plugins(parsed.plugins)
    options = {"iteration": parsed.iteration, "task": parsed.task, "html": parsed.html, "console": Console()}
    if parsed.evaluation:
        inspect_evaluation(parsed.run, **options)
    elif parsed.failures:
        inspect_failures(parsed.run, **options)
    else:
        inspect_run(parsed.run, step=parsed.step, **options)


READ_FOR_BIAS = (
    *("bias", "env", "experiment", "memory", "out", "plugins", "seed"),
    *("rollout.num_tasks", "rollout.group_size"),
)
"""The composed settings that `hgpo-gym estimator-bias` reads; sections are read as a whole."""


def estimator_bias(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym estimator-bias`."""
    with mistakes_explained():
        for setting in (override.lstrip("+~").partition("=")[0] for override in parsed.overrides):
            if not f"{setting}.".startswith(tuple(f"{read}." for read in READ_FOR_BIAS)):
                raise ValueError(
                    f"{setting}: estimator-bias does not read it. It measures the estimators of bias.estimators on "
                    "episodes of an agent by itself, by policies of its own. Leave it out."
                )
        settings = parse_section(BiasSettings, config["bias"], "bias.")
        measure_bias(PlaySettings.parse(config), settings, Path(config["out"]), Progress())
