"""`hgpo-gym train`, `compare` and `league`."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from hgpo_gym.analysis.report import write_report
from hgpo_gym.cli.errors import CommandFailed, mistakes_explained
from hgpo_gym.cli.one_run import train_one_of_many, train_run
from hgpo_gym.config.compose import parse_run
from hgpo_gym.experiments.compare import RunFailedError, run_comparison
from hgpo_gym.experiments.league import run_league
from hgpo_gym.interrupts import interrupts_raised
from hgpo_gym.progress import Progress
from hgpo_gym.runs.checkpoints import Checkpoints
from hgpo_gym.section import check_read
from hgpo_gym.trainers.libraries import quiet_libraries


def train(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym train`."""
    with mistakes_explained():
        settings = parse_run(config)
        quiet_libraries(settings.model.threads)
        check_read(parsed.overrides, settings.unread)
    try:
        reports = train_run(config)
    except Exception as error:
        # The traceback of an unexpected error should also say how to resume.
        if newest := Checkpoints(settings.run_dir / "checkpoints").newest():
            error.add_note(f"With resume=auto the same command continues from {newest}.")
        raise
    if reports and settings.trainer.iterations:
        with mistakes_explained():
            print(f"Report: {write_report([settings.run_dir], settings.run_dir)}")


def compare(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym compare`."""
    _many(run_comparison, config, parsed)


def league(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym league`."""
    _many(run_league, config, parsed)


def _many(run: Callable[..., None], config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    with mistakes_explained():
        quiet_libraries(parse_run(config).model.threads)
        progress = Progress(Console(stderr=config["jobs"] == 0))  # with jobs=0, standard output has the commands only
        try:
            with interrupts_raised():
                run(config, parsed.overrides, train_one_of_many, progress)
        except RunFailedError as error:
            raise CommandFailed(str(error), 1) from None
        except KeyboardInterrupt:
            raise CommandFailed("interrupted. The same command continues where it stopped.", 130) from None
