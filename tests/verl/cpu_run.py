"""`hgpo-gym verl` on two CPU processes with two servers, and what it trained on; tests and a benchmark share it."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from hgpo_gym.adapters.single_episode import on_tokens, turns_of_tokens
from hgpo_gym.adapters.verl import batch_of_rows
from hgpo_gym.advantages.batch import StepBatch
from tests.support import ROOT

MAZE = [
    *("env=signpost_maze", "env.sections=1", "env.distance=0", "env.max_episode_steps=8", "prompt=brief"),
    *("algo=hgpo", "objective=gspo", "trainer.loss_aggregation=token_mean", "trainer.kl_coef=0"),
    *("rollout.num_tasks=2", "rollout.group_size=8", "rollout.max_new_tokens=12", "engine.max_prompt_tokens=256"),
    *("trainer.learning_rate=1e-3", "trainer.mini_batch_size=256", "trainer.max_batch_tokens=4096"),
    *("trainer.precision=float32", "trainer.gradient_checkpointing=false", "trainer.invalid_action_penalty=0.1"),
    *("evaluation.every=2", "evaluation.decoding_seeds=2", "evaluation.split=train", "checkpoint.every=2", "gpus=2"),
]
ON_CPUS = [
    "trainer.device=cpu",
    # Ray gets two GPUs that do not exist, and more CPUs than there are: verl counts them before it starts.
    *("++ray_kwargs.ray_init.num_gpus=2", "ray_kwargs.ray_init.num_cpus=16"),
    *("++ray_kwargs.ray_init.include_dashboard=false", "++ray_kwargs.ray_init.object_store_memory=200000000"),
    # Each process takes half a gigabyte and ten seconds to start.
    *("transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "actor_rollout_ref.rollout.agent.num_workers=1"),
    "actor_rollout_ref.rollout.name=tiny",
    # verl's defaults need flash-attention, and compile.
    *(
        "++actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.use_remove_padding=false",
    ),
    *("actor_rollout_ref.actor.use_torch_compile=false", "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false"),
]


def command_of(settings: Sequence[str], verls: Sequence[str], recorded: Path, modules: str) -> tuple[list[str], dict]:
    """Return the command, and its environment.

    Args:
        settings: ours.
        verls: those of verl.
        recorded: a folder for what is trained on, if the trainer is one of `recorded_trainer`.
        modules: those that every process of verl imports.
    """
    environment = {
        "VERL_USE_EXTERNAL_MODULES": modules,
        "RECORDED": str(recorded),
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }
    return [sys.executable, "-m", "hgpo_gym", "verl", *settings, "--", *verls], {**os.environ, **environment}


def cpu_command(settings: Sequence[str], verls: Sequence[str], recorded: Path) -> tuple[list[str], dict]:
    """Return the same on CPUs."""
    modules = "tests.verl.cpu_platform,tests.verl.recorded_trainer"
    arguments, environment = command_of(settings, [*ON_CPUS, *verls], recorded, modules)
    # Ray starts here, whatever else runs; its workers let everything else go first, unless their niceness is 0.
    alone = {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}
    return arguments, {**environment, **alone}


class RecordedStep(NamedTuple):
    """The samples of an iteration.

    Attributes:
        fields: of verl's rows, by name, and its metrics.
        rows: the numbers of those that are no padding.
        batch: their steps.
    """

    fields: dict[str, Any]
    rows: list[int]
    batch: StepBatch

    @classmethod
    def read(cls, path: Path, change: Callable[[Mapping, Mapping], Mapping] = lambda step, _text: step) -> Self:
        """Return a file of `recorded_trainer`; `change` makes a step from one and its texts."""
        fields = json.loads(path.read_text())
        rows = [row for row, padding in enumerate(fields["padding"]) if not padding]
        pairs = [zip(extra.get("steps", []), extra.get("text", []), strict=True) for extra in fields["extra_fields"]]
        steps = [[change(step, text) for step, text in of_row] for of_row in pairs]
        return cls(fields, rows, batch_of_rows(steps, fields["uid"], rows))

    def largest_difference(self, values: np.ndarray) -> float:
        """Return how far verl's advantages are from those of the steps, padding's from 0."""
        differences, first = [], 0
        columns = (self.fields[name] for name in ("advantages", "response_mask", "padding"))
        for found, mask, padding in zip(*columns, strict=True):
            turns = turns_of_tokens(np.array(mask))
            end = first + (0 if padding else turns.max() + 1)
            differences.append(float(np.abs(np.array(found) - on_tokens(values[first:end], turns)).max()))
            first = end
        assert first == len(values)
        return max(differences)
