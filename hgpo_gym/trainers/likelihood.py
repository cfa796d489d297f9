"""Log-probabilities of answers, token by token, without padding in what comes out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from hgpo_gym.trainers.policies.base import Likelihood, TokenRecord, TrainablePolicy
from hgpo_gym.trainers.policies.batching import length_sorted_batches
from hgpo_gym.trainers.policies.sampling import likelihood_of_drawn, restrict

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def likelihood(
    model: "PreTrainedModel", records: Sequence[TokenRecord], *, temperature: float = 1.0, constrained: bool = True
) -> Likelihood:
    """The likelihood of the recorded answers under a language model, in one forward pass.

    Args:
        model: a causal language model.
        records: prompts and answers; every one must have at least one choice.
        temperature: the one that the answers were drawn with.
        constrained: renormalise over the tokens that were allowed, where the records have them.
    """
    device = model.device
    ids = np.zeros((len(records), max(map(len, records))), dtype=np.int64)
    for row, record in enumerate(records):
        ids[row, : len(record)] = np.concatenate((record.prompt_ids, record.token_ids))
    choices = [record.choices if constrained else np.arange(len(record.token_ids)) for record in records]
    rows = np.repeat(np.arange(len(records)), [len(positions) for positions in choices])
    # The padding is on the right, where causal attention never looks; position p - 1 predicts the token at p.
    columns = np.concatenate(
        [len(record.prompt_ids) + positions for record, positions in zip(records, choices, strict=True)]
    )
    tokens = torch.from_numpy(ids[rows, columns]).to(device)
    hidden = model.get_decoder()(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
    logits = model.get_output_embeddings()(hidden[rows, columns - 1]).float() / temperature
    if constrained:
        allowed = [
            None if record.allowed is None else record.allowed[position]
            for record, positions in zip(records, choices, strict=True)
            for position in positions
        ]
        logits, ids_of_columns = restrict(logits, allowed)
        if ids_of_columns is not None:
            tokens = (ids_of_columns == tokens[:, None]).int().argmax(1)
    return likelihood_of_drawn(logits, tokens, torch.from_numpy(rows).to(device))


@torch.inference_mode()
def score(
    policy: TrainablePolicy, records: Sequence[TokenRecord], *, temperature: float, max_batch_tokens: int
) -> list[np.ndarray]:
    """float32[C] for each record: the log-probabilities of its choices, without gradients."""
    policy.model.eval()
    scores: list[np.ndarray] = [np.empty(0, dtype=np.float32)] * len(records)
    for batch in length_sorted_batches([len(record) for record in records], max_batch_tokens):
        result = policy.likelihood([records[index] for index in batch], temperature=temperature)
        counts = [len(records[index].choices) for index in batch]
        for index, values in zip(batch, torch.split(result.logprobs, counts), strict=True):
            scores[index] = values.cpu().numpy()
    return scores
