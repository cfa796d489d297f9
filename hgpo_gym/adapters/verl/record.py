"""The run directory of a training by verl: the files that `hgpo-gym report`, `health` and `inspect` read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hgpo_gym.adapters.single_episode import turns_of_tokens
from hgpo_gym.adapters.verl.launch import TASKS_FILE
from hgpo_gym.adapters.verl.steps import batch_of_rows
from hgpo_gym.advantages import cluster_observations
from hgpo_gym.files import write_whole
from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts import saved
from hgpo_gym.rollouts.evaluation import Evaluation
from hgpo_gym.rollouts.metrics import credit_metrics, episode_metrics, response_metrics
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout, StepText
from hgpo_gym.rollouts.shaping import shape
from hgpo_gym.runs.directory import RunDirectory, read_config, read_metrics
from hgpo_gym.runs.run_files import read_json
from hgpo_gym.trainers.settings import MemorySettings

NAMES = {
    "loss": "actor/pg_loss",
    "entropy": "actor/entropy_loss",
    "clip_fraction": "actor/pg_clipfrac",
    "kl_behaviour": "actor/ppo_kl",
    "kl_reference": "actor/kl_loss",
    "gradient_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "optimizer_steps": "training/optimizer_steps",
    "memory_gib": "actor/perf/max_memory_allocated_gb",
}
"""Metrics of this package, and verl's for the same. verl's clip fraction and KL are means over micro-batches."""
SECONDS = {
    "seconds_rollout": ("gen",),
    "seconds_advantage": ("adv",),
    "seconds_update": ("old_log_prob", "ref", "update_actor", "update_weights"),
}
_OUTCOME = tuple(field.name for field in fields_of(EpisodeOutcome))


class Row(NamedTuple):
    """A response that was trained on, with its step.

    Attributes:
        uid: the name of its task group.
        fields: the `extra_fields` of the agent loop.
        prompt_ids, response_ids: its tokens.
    """

    uid: str
    fields: Mapping[str, Any]
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]


def rows_of_output(uid: str, fields: Mapping[str, Any], prompt: list[int], response: list[int], mask: Any) -> list[Row]:
    """Return a row for each step of an output of the agent loop; the response of a conversation has several.

    Args:
        uid: the name of its task group.
        fields: its `extra_fields`.
        prompt, response: its tokens.
        mask: [response tokens], 1 for the model's.
    """
    rows, turns = [], turns_of_tokens(mask)
    for number, step in enumerate(fields["steps"]):
        first, last = np.flatnonzero(turns == number)[[0, -1]]
        of_step = {**fields, "steps": [step], **({"text": fields["text"][number]} if "text" in fields else {})}
        rows.append(Row(uid, of_step, prompt + response[:first], response[first : last + 1]))
    return rows


def means_of_steps(values: Any, mask: Any, *, alone: bool = False) -> list[float]:
    """Return the mean value of each stretch of the model's tokens; if the step is `alone` in its row, of all."""
    turns, values = np.where(mask > 0, 0, -1) if alone else turns_of_tokens(mask), np.asarray(values)
    return [float(values[turns == turn].mean()) for turn in range(turns.max(initial=-1) + 1)]


def rollout_of(rows: Sequence[Row], decode: Callable[[Sequence[int]], str], transcripts: int | None = 0) -> Rollout:
    """Return the rollout that rows of the agent loop `hgpo_gym` are.

    Args:
        rows: of the agent loop, each with its texts.
        decode: returns the text of tokens.
        transcripts: of how many episodes the texts of prompts and responses are kept; None keeps all.
    """
    steps = [row.fields["steps"] for row in rows]
    batch = batch_of_rows(steps, [row.uid for row in rows], range(len(rows)))
    episodes = {of_row[0]["trajectory"]: row.fields["episode"] for of_row, row in zip(steps, rows, strict=True)}
    return Rollout(
        batch=batch,
        tokens=tuple(_tokens(row) for row in rows),
        steps=tuple(
            _text(row, decode if transcripts is None or episode < transcripts else lambda _: "")
            for row, episode in zip(rows, batch.trajectory, strict=True)
        ),
        episodes=tuple(EpisodeOutcome(**{name: episode[name] for name in _OUTCOME}) for episode in episodes.values()),
    )


def _tokens(row: Row) -> TokenRecord:
    prompt_ids, response_ids = (np.array(ids, dtype=np.int64) for ids in (row.prompt_ids, row.response_ids))
    return TokenRecord(
        prompt_ids,
        response_ids,
        np.zeros(len(response_ids), dtype=np.float32),
        prompt_cut=bool(row.fields["prompt_cut"]),
    )


def _text(row: Row, decode: Callable[[Sequence[int]], str]) -> StepText:
    texts = {**row.fields["text"], "admissible_actions": tuple(row.fields["text"]["admissible_actions"])}
    return StepText(**texts, kept_prompt=decode(row.prompt_ids), response=decode(row.response_ids))


def with_shaping(rows: Sequence[Row], choice: Choice, decode: Callable[[Sequence[int]], str]) -> list[list[dict]]:
    """Return the steps of each row with the rewards and penalties of a shaping. Raises ValueError as `shape` does."""
    batch = shape(choice, rollout_of(rows, decode, transcripts=None))
    return [
        [{**row.fields["steps"][0], "reward": float(reward), "penalty": float(penalty)}]
        for row, reward, penalty in zip(rows, batch.reward, batch.penalty, strict=True)
    ]


def with_similarity(rows: Sequence[Row], memory: MemorySettings) -> list[Row]:
    """Return the rows with one context key for similar observations of a task group, by `memory.similarity`."""
    if memory.similarity is None:
        return list(rows)
    steps = [row.fields["steps"] for row in rows]
    batch = batch_of_rows(steps, [row.uid for row in rows], range(len(rows)))
    merged = cluster_observations(batch, batch.texts or {}, memory.similarity, key=memory.make().key)
    assert merged.final_keys is not None
    keys = zip(merged.context_keys.tolist(), merged.final_keys.tolist(), strict=True)
    changed = [
        [{**step, "context_keys": seen, "final_keys": final} for step, (seen, final) in zip(of_row, keys, strict=False)]
        for of_row in steps
    ]
    return [row._replace(fields={**row.fields, "steps": new}) for row, new in zip(rows, changed, strict=True)]


class RunRecord:
    """Writes metrics.jsonl, summary.json and rollouts/ of a run directory.

    Args:
        path: the run directory, with config.yaml.
        decode: returns the text of tokens.
    """

    def __init__(self, path: Path, decode: Callable[[Sequence[int]], str]):
        self._directory, self._decode = RunDirectory(path), decode
        self._config = read_config(path)
        self._evaluations_file = path / "evaluations.json"
        self._evaluations: list[dict[str, Any]] = []

    def resume(self, iteration: int) -> None:
        """Leave out what came after this iteration: it is about to be made again."""
        lines = [line for line in read_metrics(self._directory.path) if line["iteration"] <= iteration]
        self._directory.restore_metrics(lines)
        if self._evaluations_file.exists():
            before = read_json(self._evaluations_file)["evaluations"]
            self._evaluations = [evaluation for evaluation in before if evaluation["iteration"] <= iteration]

    def is_evaluated(self, iteration: int) -> bool:
        """Return whether the evaluation after this iteration is kept."""
        return any(evaluation["iteration"] == iteration for evaluation in self._evaluations)

    def iteration(
        self,
        number: int,
        rows: Sequence[Row],
        advantages: np.ndarray,
        metrics: Mapping[str, Any],
        seconds: Mapping[str, float],
    ) -> None:
        """Append the metrics of an iteration, and keep its rollout if it is due.

        Args:
            number: from 1.
            rows: what was trained on, episode after episode; those of a task group are adjacent.
            advantages: float[rows], the mean over the tokens of each.
            metrics: verl's.
            seconds: verl's timings.
        """
        checkpoint = self._config["checkpoint"]
        rollout = rollout_of(rows, self._decode, checkpoint["transcripts"])
        line = {
            "iteration": number,
            **episode_metrics(rollout.episodes),
            "steps": rollout.played_steps,
            "episodes": rollout.played_episodes,
            "tokens": rollout.played_tokens,
            "rounds": 1,
            "groups_kept": int(rollout.batch.group_labels.max()) + 1,
            "group_sizes": rollout.batch.group_sizes(),
            **response_metrics(rollout),
            **credit_metrics(rollout.batch, advantages),
            **{ours: float(metrics[theirs]) for ours, theirs in NAMES.items() if theirs in metrics},
            **{name: float(sum(seconds.get(part, 0.0) for part in parts)) for name, parts in SECONDS.items()},
        }
        if self._evaluations and self._evaluations[-1]["iteration"] == number:
            line["evaluation_success"] = self._evaluations[-1]["success"]
        self._directory.log(line)
        if (every := checkpoint["rollouts_every"]) and number % every == 0:
            saved.keep(rollout, number, self._directory.rollout_path, None, checkpoint["transcripts"])

    def evaluation(self, number: int, split: str, outcomes: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Keep the evaluation after an iteration.

        Args:
            number: of the iteration; 0 is before training.
            split: its name.
            outcomes: `reward_extra_info` of the episodes, by task, then decoding seed.
            seconds: of the evaluation.
        """
        by_task: dict[str, list[EpisodeOutcome]] = {}
        for outcome in outcomes:
            episode = EpisodeOutcome(**{name: outcome[name] for name in _OUTCOME})
            by_task.setdefault(episode.task_id, []).append(episode)
        seeds = min(map(len, by_task.values()))
        by_seed = tuple(tuple(episodes[seed] for episodes in by_task.values()) for seed in range(seeds))
        failed = sum(bool(outcome["failed"]) for outcome in outcomes)
        summary = {**Evaluation(split, by_seed).summary(), "failed": failed}
        self._evaluations.append({"iteration": number, "seconds": seconds, **summary})
        write_whole(self._evaluations_file, json.dumps({"evaluations": self._evaluations}))

    def finish(self) -> None:
        """Write summary.json: the run has come to its end."""
        lines = read_metrics(self._directory.path)
        seconds = {part: sum(line[f"seconds_{part}"] for line in lines) for part in ("rollout", "advantage", "update")}
        self._directory.write_summary(
            {
                "algorithm": self._config["algo"]["name"],
                "seed": self._config["seed"],
                "iterations": len(lines),
                "tasks": read_json(self._directory.path / TASKS_FILE),
                "seconds": {**seconds, "evaluation": sum(each["seconds"] for each in self._evaluations)},
                "evaluations": self._evaluations,
            }
        )
