"""A run directory: config.yaml, launches.jsonl (commands, versions, code), metrics.jsonl, history.jsonl, rollouts/,
checkpoints/, summary.json."""

import fcntl
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import yaml

from hgpo_gym.files import NotPlainError, append_line, open_plain, write_whole, writing
from hgpo_gym.runs.loggers import Logger, MakeLogger
from hgpo_gym.runs.records import ConfigRecord, LaunchRecord, MetricsRecord, SummaryRecord
from hgpo_gym.runs.renamed import with_new_metrics, with_new_settings
from hgpo_gym.runs.run_files import check_record, damage_named, read_json, read_json_lines, read_yaml

NUMBERS_UNCHANGED = (
    "resume",
    "run_dir",
    "loggers",
    "checkpoint.",
    "evaluation.num_envs",
    "rollout.workers",
    "rollout.worker_timeout",
    "rollout.max_retries",
    "rollout.max_failed",
    "rollout.overlap",
    "distributed",
    "trainer.max_batch_tokens",
    "trainer.gradient_checkpointing",
    "engine.max_batch_tokens",
    "engine.max_cache_tokens",
    "engine.prefix_cache_tokens",
    "engine.max_num_seqs",
    "engine.gpu_memory_utilization",
    "engine.kv_cache_gib",
    "engine.enforce_eager",
    "engine.sleep_level",
    "engine.tensor_parallel_size",
    "engine.server",
    "model.device",
    "model.threads",
)
"""Settings that do not change the numbers of a run, except by rounding."""
COMPARED_GROUPS = ("algo", "learner", "memory", "objective", "sampler", "shaping", "team")
"""Groups that a comparison compares: each has a name and options."""
AGGREGATION = ("trainer.loss_aggregation", "trainer.loss_constant")
"""Settings that replace the objective's default aggregation."""
MAY_DIFFER = (*(f"{group}." for group in COMPARED_GROUPS), *AGGREGATION, "seed", *NUMBERS_UNCHANGED)
"""Settings in which the runs of a comparison may differ."""
MAY_CHANGE = (*NUMBERS_UNCHANGED, "trainer.iterations", "evaluation.every")
"""Settings that may differ between a run and its continuation."""

LONGEST_LINE = 2**16
"""Bytes that hold a line of metrics.jsonl. A typical one has 2 kB."""
RECORDED_VERSIONS = ("hgpo_gym", "torch", "transformers", "gymnasium", "numpy")


class RunDirectory:
    """The files of one run. `open_run` gives it; nothing is written before `begin`."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoint_path = path / "checkpoints"
        self.rollout_path = path / "rollouts"
        self.evaluations_path = path / "evaluations"
        self.failures_path = path / "failures"
        self._loggers: list[Logger] = []
        self._lock: BinaryIO | None = None

    def begin(
        self, settings: Mapping[str, Any], packages: Sequence[str] = (), code: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Make and lock the directory until `close` or the end of the process. Write the settings, the command, the
        versions and the code.

        Args:
            settings: all of them, resolved.
            packages: their versions are recorded, beside `RECORDED_VERSIONS`.
            code: external code, see `hgpo_gym.trainers.code_used`.

        Raises:
            BlockingIOError: another process is writing in it.
            NotPlainError: a file or folder in it is a link, by which files elsewhere would be changed or removed; or
                something else stands in the place of a folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if link := next((path for path in self.path.iterdir() if path.is_symlink()), None):
            raise NotPlainError(link, "it is a link")
        for folder in (self.checkpoint_path, self.rollout_path, self.evaluations_path, self.failures_path):
            if folder.exists() and not folder.is_dir():
                raise NotPlainError(folder, "it is no folder")
        if (history := self.path / "history.jsonl").exists():  # refused here, not when the first checkpoint is saved
            open_plain(history, append=True).close()
        # Opened for writing, without truncation: NFS refuses an exclusive lock on a file that is open for reading.
        self._lock = open_plain(self.path / "lock", append=True)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"Another process is training in {self.path}: wait for it, or stop it.") from None
        write_whole(self.path / "config.yaml", yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
        versions = {"python": platform.python_version()}
        versions |= {name: version(name) for name in (*RECORDED_VERSIONS, *packages)}
        launch = {"command": this_command(), "versions": versions, "code": dict(code)}
        append_line(self.path / "launches.jsonl", json.dumps(launch))

    def evaluation_path(self, iteration: int) -> Path:
        """Return the file with the prompts and responses of the evaluation after an iteration."""
        return self.evaluations_path / f"iteration_{iteration:04d}.jsonl.gz"

    def begin_logging(self, loggers: Sequence[MakeLogger], settings: Mapping[str, Any], after: int) -> None:
        """Make `log` call these loggers too, for iterations after `after`."""
        self._loggers = [make(self.path, dict(settings), after) for make in loggers]

    def log(self, metrics: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl, and pass its numbers to the loggers. Raises NotWrittenError."""
        append_line(self.metrics_path, json.dumps(metrics))
        scalars = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        with writing(self.path):
            for logger in self._loggers:
                logger.log(scalars)

    def restore_metrics(self, metrics: list[dict[str, Any]]) -> None:
        """Reset metrics.jsonl to the lines of a checkpoint; later iterations are trained again."""
        write_whole(self.metrics_path, "".join(json.dumps(line) + "\n" for line in metrics))

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def close(self) -> None:
        for logger in self._loggers:
            with suppress(OSError):  # a full disk, which `log` has reported
                logger.close()
        if self._lock is not None:
            self._lock.close()


def this_command() -> str:
    """Return the command line of this process, quoted for a shell."""
    program = Path(sys.argv[0])
    if program.name == "hgpo-gym" or program.parent.name == "hgpo_gym":
        return shlex.join(["hgpo-gym", *sys.argv[1:]])
    return shlex.join(sys.orig_argv)


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl; empty without one. A last line that a kill cut short is skipped."""
    return [with_new_metrics(line) for line in read_json_lines(run_dir / "metrics.jsonl", MetricsRecord)]


def latest_metrics(run_dir: Path) -> dict[str, Any] | None:
    """Return the last complete line of metrics.jsonl, None without one. The cost does not grow with the run."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return None
    with open_plain(path, max_bytes=None) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LINE))
        lines = file.read().split(b"\n")[:-1]  # behind the last line feed, a line is being written
    return with_new_metrics(json.loads(lines[-1])) if lines else None


def read_launches(run_dir: Path) -> list[dict[str, Any]]:
    """Return the command, versions and code of every start of a run; empty without launches.jsonl."""
    return read_json_lines(run_dir / "launches.jsonl", LaunchRecord)


def read_summary(run_dir: Path) -> dict[str, Any]:
    """Return a run's summary.json, of its last end."""
    return read_json(run_dir / "summary.json", SummaryRecord)


def finished_iterations(run_dir: Path) -> int:
    """Return the iterations of a finished run; 0 if it is unfinished, or if more iterations are planned.

    Raises:
        DamagedError: config.yaml, metrics.jsonl or summary.json is not what a run writes.
    """
    iterations = iterations_at_last_end(run_dir)
    if not iterations or not (run_dir / "config.yaml").exists():
        return 0
    planned = read_config(run_dir)["trainer"]["iterations"]
    return iterations if iterations == planned == len(read_metrics(run_dir)) else 0


def iterations_at_last_end(run_dir: Path) -> int:
    """Return the iterations in summary.json, 0 without one. The file does not change while a run is resumed."""
    return read_summary(run_dir)["iterations"] if (run_dir / "summary.json").exists() else 0


def read_config(run_dir: Path) -> dict[str, Any]:
    """Return a run's config.yaml as plain data: nothing in it is resolved or executed.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    path = run_dir / "config.yaml"
    if not path.exists():
        several = f" Runs are in folders of it: {run_dir}/*." if any(run_dir.glob("*/config.yaml")) else ""
        raise FileNotFoundError(f"No run in {run_dir}: expected {path}.{several}")
    config = read_yaml(path)
    with damage_named(path):
        config = with_new_settings(config)
        check_record(ConfigRecord, flatten(config))
    return config


NOT_SET = "not set"
"""The value of a missing key in an evaluation's changes."""


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested configuration as {'section.key': value}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
