"""Runs as tasks of a Ray cluster: an existing one, or one that is started on this machine."""

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
from hgpo_gym.experiments.pool import VISIBLE, RunConfig, Train
from hgpo_gym.extras import requires_extra
from hgpo_gym.section import SettingsSection

if TYPE_CHECKING:
    import ray

REACHED_WITHIN = 10.0
"""Seconds within which a cluster must answer."""


class RaySettings(SettingsSection):
    """`launcher=ray`: see configs/launcher/ray.yaml."""

    address: str | None
    num_cpus: NonNegativeFloat
    num_gpus: NonNegativeFloat
    resources: dict[str, NonNegativeFloat] | None
    autoscaling: bool
    max_retries: NonNegativeInt

    @property
    def required(self) -> dict[str, float]:
        """The resources that a run needs on one machine, by Ray's names."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus} | (self.resources or {})


@contextmanager
def ray_tasks(settings: RaySettings) -> Iterator[Submit]:
    """Yield a function that queues runs as tasks of Ray.

    At the end it waits for cancelled tasks, which save a checkpoint. Then it leaves the cluster, or stops the one that
    it started.

    Args:
        settings: the settings of the launcher.

    Raises:
        ModuleNotFoundError: Ray is missing.
        ValueError: the cluster cannot be reached, or has no machine for a run.
    """
    with requires_extra("ray", "launcher=ray"):
        import ray
    with _connected(settings.address):
        if not settings.autoscaling:
            _check_that_a_machine_fits(settings.required, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        remote_train = ray.remote(_train_on_worker).options(
            num_cpus=settings.num_cpus,
            num_gpus=settings.num_gpus,
            resources=settings.resources,
            max_retries=settings.max_retries,
            retry_exceptions=False,
            runtime_env=_process_of_a_run(settings),
        )
        tasks: list[RayTask] = []

        def submit(train: Train, run: RunConfig) -> RayTask:
            tasks.append(RayTask(remote_train.remote(train, run, Path.cwd(), _environment())))
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

        ray.cancel(self.result)  # raises KeyboardInterrupt in the task


def _train_on_worker(train: Train, config: RunConfig, folder: Path, environment: Mapping[str, str]) -> str:
    """Train a run in this folder with these environment variables, inside a task."""
    os.chdir(folder)
    os.environ.update(environment)
    try:
        return TrainingJob(train)(config)
    except OSError as error:  # log.txt itself may be what cannot be written
        return f"it failed: {error}"
    except Exception:  # noqa: BLE001 - log.txt has it; Ray would retry what it sees, or print it twice
        return "it failed"


def _environment() -> dict[str, str]:
    """Return the variables of this process that a run reads; GPUs and Ray's variables belong to the run's machine."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and not name.endswith("VISIBLE_DEVICES")
    }


def _process_of_a_run(settings: RaySettings) -> dict[str, Any]:
    """Return the runtime environment of run processes: this Python, our packages, and the thread variables.

    Libraries read thread variables at import. Everybody on a machine can read the runtime environment, so that it holds
    nothing else.
    """
    names = [name for name in os.environ if name == "PYTHONPATH" or name.endswith("_NUM_THREADS")]
    variables = {name: os.environ[name] for name in names}
    if settings.num_gpus == 0:
        variables[VISIBLE] = ""
    return {"py_executable": sys.executable, "env_vars": variables}


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect this process to a cluster while inside the block."""
    import ray

    target = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    # Saved before ray.init, and restored after it.
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _ping(target)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise ValueError(
            f"launcher.address={address or 'null'}{f' (RAY_ADDRESS={target})' if target != address else ''}: {error} "
            "launcher.address=local starts a cluster of this machine alone."
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # ray.init replaces the handler
    try:
        yield
    finally:
        ray.shutdown()


def _ping(address: str | None) -> None:
    """Raise ValueError if the address does not answer; Ray would retry for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "://" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, ValueError) as error:
        raise ValueError(f"no Ray cluster can be reached there ({error}).") from error


def _check_that_a_machine_fits(required: Mapping[str, float], machines: Sequence[Mapping[str, float]]) -> None:
    """Raise ValueError if no machine has the resources of a run, which would wait forever."""
    if any(all(machine.get(name, 0) >= amount for name, amount in required.items()) for machine in machines):
        return
    listed = ", ".join(f"{name}: {amount:g}" for name, amount in required.items() if amount)
    available = (", ".join(f"{name}: {machine.get(name, 0):g}" for name in required) for machine in machines)
    raise ValueError(
        f"launcher.num_cpus, num_gpus and resources ask for {{{listed}}} for each run, and no machine of the cluster "
        f"has as much: there is {' or '.join(f'{{{row}}}' for row in dict.fromkeys(available))}. Ask for less, or set "
        "launcher.autoscaling=true where the cluster adds machines by itself."
    )
