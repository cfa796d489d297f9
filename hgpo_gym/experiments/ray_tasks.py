"""Runs as tasks of a Ray cluster: one that is there, or one of this machine alone, started for them."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt

from hgpo_gym.experiments.jobs import Submit, TrainingJob
from hgpo_gym.experiments.pool import VISIBLE, Train
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.settings import RunSettings

if TYPE_CHECKING:
    import ray

REACHED_WITHIN = 10.0
"""Seconds in which a cluster has to answer."""


class RaySettings(SettingsSection):
    """`launcher=ray`: see configs/launcher/ray.yaml."""

    address: str | None
    num_cpus: NonNegativeFloat
    num_gpus: NonNegativeFloat
    resources: dict[str, NonNegativeFloat] | None
    autoscaling: bool
    max_retries: NonNegativeInt

    @property
    def asked_for(self) -> dict[str, float]:
        """What a run needs of one machine, by Ray's names."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus} | (self.resources or {})


@contextmanager
def ray_tasks(settings: RaySettings) -> Iterator[Submit]:
    """What queues runs as tasks of Ray. In the end it waits for those that were cancelled, which save a checkpoint, and
    leaves the cluster, or ends the one that it has started.

    Args:
        settings: of the launcher.

    Raises:
        ModuleNotFoundError: Ray is missing.
        ValueError: a cluster that cannot be reached, or one without a machine for a run.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        message = 'launcher=ray needs the package ray: pip install "hgpo_gym[ray]"'
        raise ModuleNotFoundError(message, name="ray") from error
    with _connected(settings.address):
        if not settings.autoscaling:
            _check_that_a_machine_fits(settings.asked_for, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        there = ray.remote(_train_there).options(
            num_cpus=settings.num_cpus,
            num_gpus=settings.num_gpus,
            resources=settings.resources,
            max_retries=settings.max_retries,
            retry_exceptions=False,
            runtime_env=_process_of_a_run(settings),
        )
        tasks: list[RayTask] = []

        def submit(train: Train, run: RunSettings) -> RayTask:
            tasks.append(RayTask(there.remote(train, run, Path.cwd(), _environment())))
            return tasks[-1]

        try:
            yield submit
        finally:
            if tasks:
                ray.wait([task.result for task in tasks], num_returns=len(tasks))


class RayTask(NamedTuple):
    """See `jobs.Job`."""

    result: "ray.ObjectRef"

    def done(self) -> bool:
        import ray

        return bool(ray.wait([self.result], timeout=0)[0])

    def how_it_failed(self) -> str:
        import ray

        try:
            return ray.get(self.result)
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return f"its task failed: {lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]}"

    def cancel(self) -> None:
        import ray

        ray.cancel(self.result)  # KeyboardInterrupt there


def _train_there(train: Train, settings: RunSettings, folder: Path, environment: Mapping[str, str]) -> str:
    """The task: a run as if it were trained in this folder, by a process with these variables."""
    os.chdir(folder)
    os.environ.update(environment)
    try:
        return TrainingJob(train)(settings)
    except OSError as error:  # log.txt itself may be what cannot be written
        return f"it failed: {error}"
    except Exception:  # noqa: BLE001 - whatever it is, log.txt has it; what Ray is told of is tried again, or said twice
        return "it failed"


def _environment() -> dict[str, str]:
    """The variables of this process that a run goes by; which GPUs it sees, and what Ray's are, its machine knows."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and not name.endswith("VISIBLE_DEVICES")
    }


def _process_of_a_run(settings: RaySettings) -> dict[str, Any]:
    """How Ray starts a process for runs: this Python, with our packages, and the threads that libraries ask for when
    they are imported. Everybody on a machine can read these variables, so that they are no more than these."""
    passed_on = [name for name in os.environ if name == "PYTHONPATH" or name.endswith("_NUM_THREADS")]
    variables = {name: os.environ[name] for name in passed_on}
    if settings.num_gpus == 0:
        variables[VISIBLE] = ""
    return {"py_executable": sys.executable, "env_vars": variables}


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Inside, this process belongs to a cluster."""
    import ray

    named = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _ping(named)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise ValueError(
            f"launcher.address={address or 'null'}{f' (RAY_ADDRESS={named})' if named != address else ''}: {error} "
            "launcher.address=local starts a cluster of this machine alone."
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there
    try:
        yield
    finally:
        ray.shutdown()


def _ping(address: str | None) -> None:
    """Raise an error where nobody opens: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "://" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, ValueError) as error:
        raise ValueError(f"no Ray cluster can be reached there ({error}).") from error


def _check_that_a_machine_fits(asked_for: Mapping[str, float], machines: Sequence[Mapping[str, float]]) -> None:
    """Raise ValueError where a run would wait for ever."""
    if any(all(machine.get(name, 0) >= amount for name, amount in asked_for.items()) for machine in machines):
        return
    wanted = ", ".join(f"{name}: {amount:g}" for name, amount in asked_for.items() if amount)
    there = (", ".join(f"{name}: {machine.get(name, 0):g}" for name in asked_for) for machine in machines)
    raise ValueError(
        f"launcher.num_cpus, num_gpus and resources ask for {{{wanted}}} for each run, and no machine of the cluster "
        f"has as much: there is {' or '.join(f'{{{one}}}' for one in dict.fromkeys(there))}. Ask for less, or set "
        "launcher.autoscaling=true where the cluster adds machines by itself."
    )
