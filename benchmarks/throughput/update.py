"""The same optimiser steps on the same responses by TRL's GRPOTrainer and by ours."""

import copy
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hgpo_gym.advantages import StepBatch
from hgpo_gym.config.compose import load_config
from hgpo_gym.policies import TokenRecord
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from hgpo_gym.trainers.update.settings import TrainerSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SEED = (0,)


class OurUpdate:
    """`PolicyUpdate` as the configuration has it, without an entropy bonus."""

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", settings: TrainerSettings):
        self.policy = LanguageModelPolicy(copy.deepcopy(model), tokenizer, constrain="none")
        self._update = PolicyUpdate(self.policy, None, settings, temperature=1.0)
        self._update.optimizer.register_step_pre_hook(lambda *_: self._keep())
        self.gradients: dict[str, torch.Tensor] = {}

    @property
    def model(self) -> torch.nn.Module:
        return self.policy.model

    def __call__(self, records: Sequence[TokenRecord], advantages: np.ndarray) -> None:
        self._update(records, _episodes(len(records)), advantages, SEED)

    def _keep(self) -> None:
        """Store the gradients of the last mini-batch, which the update frees."""
        self.gradients = gradients_of(self.model)


def _episodes(count: int) -> StepBatch:
    """Return a batch of episodes with one step each."""
    numbers, zeros = np.arange(count), np.zeros(count)
    return StepBatch(numbers, numbers, np.zeros(count, dtype=np.int64), zeros, numbers[:, None], zeros)


class TrlUpdate:
    """TRL's GRPOTrainer from prepared tensors: its `training_step`, which is loss and backward pass, then its
    clipping of gradients and optimiser.

    Its loss `dapo` at beta 0 is ours: the clipped surrogate, each token of a mini-batch counting once. The tensors are
    those that its `_generate_and_score_completions` would hand over, with a mini-batch for a generation batch, which is
    its least padding; the old log-probabilities, for which it would need another pass, are given to it.

    Args:
        rows: answers in one forward and backward pass.
    """

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", settings: TrainerSettings, rows: int
    ):
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        class Prepared(GRPOTrainer):
            def _prepare_inputs(self, generation_batch: Any) -> Any:
                return generation_batch

        self._settings, self._rows = settings, rows
        self._pad_id = int(tokenizer.eos_token_id)
        assert settings.mini_batch_size is not None
        self._size, accumulated = settings.mini_batch_size, settings.mini_batch_size // rows
        arguments = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulated,
            num_generations=rows,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            epsilon=0.2,
            loss_type="dapo",
            beta=0.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        self._trainer = Prepared(
            model=copy.deepcopy(model),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": "none is generated"}] * rows),
            processing_class=tokenizer,
        )
        self._trainer.current_gradient_accumulation_steps = accumulated
        self._trainer.create_optimizer()

    @property
    def model(self) -> torch.nn.Module:
        return self._trainer.model

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients of the last mini-batch."""
        return gradients_of(self.model)

    def __call__(self, records: Sequence[TokenRecord], advantages: np.ndarray) -> None:
        order = np.random.default_rng(SEED).permutation(len(records))
        count = -(-len(records) // self._size)
        for first in range(count):
            chosen = order[first::count]
            self._step([records[index] for index in chosen], advantages[chosen])

    def _step(self, records: Sequence[TokenRecord], advantages: np.ndarray) -> None:
        trainer = self._trainer
        batch = self._tensors(records, advantages)
        trainer.optimizer.zero_grad()
        for start in range(0, len(records), self._rows):
            part = {name: values[start : start + self._rows] for name, values in batch.items()}
            tokens = batch["completion_mask"].sum()
            trainer.training_step(trainer.model, part | {"num_items_in_batch": tokens}, tokens)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), self._settings.max_grad_norm)
        trainer.optimizer.step()

    def _tensors(self, records: Sequence[TokenRecord], advantages: np.ndarray) -> dict[str, torch.Tensor]:
        from trl.trainer.utils import pad

        prompts = [torch.from_numpy(record.prompt_ids) for record in records]
        responses = [torch.from_numpy(record.token_ids) for record in records]
        logprobs = [torch.from_numpy(record.logprobs) for record in records]
        return {
            "prompt_ids": pad(prompts, padding_value=self._pad_id, padding_side="left"),
            "prompt_mask": pad([torch.ones_like(ids) for ids in prompts], padding_value=0, padding_side="left"),
            "completion_ids": pad(responses, padding_value=self._pad_id, padding_side="right"),
            "completion_mask": pad([torch.ones_like(ids) for ids in responses], padding_value=0, padding_side="right"),
            "old_per_token_logps": pad(logprobs, padding_value=0.0, padding_side="right"),
            "advantages": torch.from_numpy(advantages).float(),
        }


def update_settings(mini_batch_size: int) -> TrainerSettings:
    """Return the settings of model=tiny, without warm-up and entropy bonus, in which TRL differs."""
    settings = load_config("config", [])["trainer"]
    return TrainerSettings(**(settings | {"mini_batch_size": mini_batch_size, "warmup_steps": 0, "entropy_coef": 0.0}))


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's gradients, by the names of its weights."""
    return {name: weights.grad for name, weights in model.named_parameters() if weights.grad is not None}


def gradients_apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The length of the difference of the gradients that both have, as a share of the first one's length."""
    both = [(gradient, other[name]) for name, gradient in one.items() if name in other]
    mine, their = (torch.cat([gradient.flatten() for gradient in side]) for side in zip(*both, strict=True))
    return float((mine - their).norm() / mine.norm())
