"""Runs as jobs of Slurm, by submitit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hgpo_gym.experiments.jobs import Submit, TrainingJob
from hgpo_gym.experiments.pool import RunConfig, Train
from hgpo_gym.extras import requires_extra
from hgpo_gym.section import SettingsSection

if TYPE_CHECKING:
    import submitit


class SlurmSettings(SettingsSection):
    """`launcher=submitit`: see configs/launcher/submitit.yaml."""

    cluster: str | None
    parameters: dict[str, Any]


@contextmanager
def slurm_jobs(settings: SlurmSettings, *, folder: Path) -> Iterator[Submit]:
    """Yield a function that queues runs as jobs of Slurm.

    Args:
        settings: the settings of the launcher.
        folder: where submitit stores the pickled jobs and their further output.

    Raises:
        ModuleNotFoundError: submitit is missing.
        ValueError: a cluster or a parameter that is unknown to submitit.
    """
    executor = _executor(settings.cluster, settings.parameters, folder)

    def submit(train: Train, run: RunConfig) -> SlurmJob:
        return SlurmJob(executor.submit(RequeuedJob(train), run))

    yield submit


class SlurmJob(NamedTuple):
    """See `jobs.Job`."""

    job: "submitit.Job[str]"

    def done(self) -> bool:
        return self.job.done()

    def how_it_failed(self) -> str:
        return self.job.result() if self.job.exception() is None else f"its job {self.job.job_id} failed"

    def cancel(self) -> None:
        self.job.cancel()


class RequeuedJob(TrainingJob):
    """A job that continues its run after Slurm has stopped it."""

    def checkpoint(self, config: RunConfig) -> "submitit.helpers.DelayedSubmission":
        """Return the submission that submitit queues after a stop: the same job."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, config)


def _executor(cluster: str | None, parameters: Mapping[str, Any], folder: Path) -> "submitit.AutoExecutor":
    with requires_extra("submitit", "launcher=submitit"):
        import submitit
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="hgpo_gym", **parameters)
    except (ValueError, NameError) as error:
        raise ValueError(f"launcher.cluster={cluster}, launcher.parameters={dict(parameters)}: {error}") from error
    return executor
