"""Imitation: train a model to give the responses of transcripts."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from hgpo_gym.policies.base import Likelihood, TokenRecord
from hgpo_gym.policies.batching import length_sorted_batches
from hgpo_gym.policies.likelihood import computing_in
from hgpo_gym.trainers.settings import WarmStartSettings
from hgpo_gym.trainers.update.optimizer import AdamW


def imitate(
    model: torch.nn.Module,
    records: Sequence[TokenRecord],
    settings: WarmStartSettings,
    *,
    likelihood: Callable[[list[TokenRecord]], Likelihood],
    max_batch_tokens: int,
    precision: str,
    seed: int,
    on_progress: Callable[[int, int, float], None] | None = None,
) -> float:
    """Minimise the negative log-likelihood of the recorded responses by AdamW. The loss is the mean over the tokens
    that had a choice.

    The learning rate falls linearly to 0.

    Args:
        model: changed in place.
        records: prompts and responses.
        likelihood: returns the likelihood of recorded responses under the model.
        settings: epochs, batch size (responses per optimiser step) and learning rate.
        max_batch_tokens: padded tokens in one forward pass.
        precision: the format of the passes, `float32` (that of the weights) or `bfloat16`.
        seed: decides the order of the responses and the dropout.
        on_progress: called with (steps done, steps in all, loss).

    Returns the mean loss of the last epoch, nats a token that had a choice.
    """
    optimizer = AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)  # for dropout
    steps = settings.epochs * -(-len(records) // settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    done = 0
    losses: list[float] = []
    model.train()
    for _ in range(settings.epochs):
        order = generator.permutation(len(records))
        losses = []
        for start in range(0, len(records), settings.batch_size):
            batch = [records[index] for index in order[start : start + settings.batch_size]]
            losses.append(_step(model, likelihood, optimizer, batch, max_batch_tokens, precision))
            schedule.step()
            done += 1
            if on_progress:
                on_progress(done, steps, losses[-1])
    return float(np.mean(losses)) if losses else float("nan")


def _step(
    model: torch.nn.Module,
    likelihood: Callable[[list[TokenRecord]], Likelihood],
    optimizer: torch.optim.Optimizer,
    batch: list[TokenRecord],
    max_batch_tokens: int,
    precision: str,
) -> float:
    choices = sum(len(record.choices) for record in batch)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for part in length_sorted_batches([len(record) for record in batch], max_batch_tokens):
        with computing_in(precision, model):
            result = likelihood([batch[index] for index in part])
        # Divide by the choices of the whole batch, so splitting it does not change the gradient.
        loss = -result.logprobs.sum() / choices
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total
