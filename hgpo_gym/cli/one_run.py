"""Train one run in this process, for `hgpo-gym train` and for the workers of a comparison."""

import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from hgpo_gym.cli.errors import CommandFailed, mistakes_explained
from hgpo_gym.config.compose import parse_run
from hgpo_gym.config.of_run import default_settings
from hgpo_gym.files import NotWrittenError
from hgpo_gym.interrupts import StoppedAtOnceError
from hgpo_gym.plugins import load_plugins
from hgpo_gym.policies.base import CannotRespondError
from hgpo_gym.policies.tabular import TableFullError
from hgpo_gym.processes import LAUNCHED
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.failures import EpisodesFailedError
from hgpo_gym.rollouts.player import NotRecordedError
from hgpo_gym.runs.checkpoints import CheckpointNotSavedError
from hgpo_gym.trainers.learners.async_rollout import AsyncRolloutDiedError
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.run import Run, processes_of
from hgpo_gym.trainers.update.diverged import NonFiniteError

NOT_LAUNCHED = (
    "distributed={}: no launcher has started this process, which trains alone. To train in several: "
    "torchrun --nproc_per_node=gpu -m hgpo_gym train ..."
)


def train_run(config: Mapping[str, Any]) -> bool:
    """Train the run of a composed configuration. Returns True if this process is the one that reports on it."""
    with mistakes_explained():
        settings = parse_run(config)
        processes = processes_of(settings)
        progress = Progress(Console(quiet=not processes.main))
        if settings.distributed != "none" and LAUNCHED not in os.environ:
            progress.line(NOT_LAUNCHED.format(settings.distributed))
        run = Run(settings, progress, processes, default_settings)
        processes.wait()  # all must have read the run directory before one of them writes into it
        try:
            run.__enter__()
        except EpisodesFailedError as error:
            raise CommandFailed(f"before training: {error}", 1) from None
    try:
        summary = run.train()
    except NonFiniteError as error:
        raise CommandFailed(
            f"iteration {run.iteration + 1}: {error} Stopped. The last good checkpoint is "
            f"{run.checkpoints.newest()}; a smaller trainer.learning_rate may help.",
            1,
        ) from None
    except (EpisodesFailedError, AsyncRolloutDiedError) as error:
        raise CommandFailed(
            f"after iteration {run.iteration}: {error} Stopped. With resume=auto the same command continues from "
            f"{run.checkpoints.newest()}.",
            1,
        ) from None
    except (CheckpointNotSavedError, NotWrittenError) as error:
        raise CommandFailed(
            f"iteration {run.iteration}: {error} Stopped. With room on the disk the same command with resume=auto "
            f"continues from {run.checkpoints.newest()}.",
            1,
        ) from None
    except (TableFullError, NotRecordedError, CannotRespondError) as error:
        raise CommandFailed(str(error), 2) from None
    except StoppedAtOnceError:
        raise CommandFailed(
            f"stopped at once. The same command with resume=auto continues from {run.checkpoints.newest()}.", 130
        ) from None
    except KeyboardInterrupt:
        raise CommandFailed(
            f"interrupted after iteration {run.iteration}; {run.checkpoints.newest()} is saved. "
            "The same command with resume=auto continues from there.",
            130,
        ) from None
    finally:
        run.close()
    progress.line(
        f"Success {summary['success_before']:.1%} before, {summary['success_after']:.1%} after "
        f"{summary['iterations']} iterations ({summary['evaluations'][-1]['split']}); best "
        f"{summary['best']['success']:.1%} after iteration {summary['best']['iteration']}."
    )
    processes.close()
    return processes.main


def train_one_of_many(config: Mapping[str, Any]) -> None:
    """Train a run of `compare`, in a worker process."""
    with mistakes_explained():
        load_plugins(config["plugins"])
        quiet_libraries(parse_run(config).model.threads)
    train_run(config)
