"""The input of a critic: a language model's hidden state after a prompt, or after a part of its response."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.policies.batching import length_sorted_batches
from hgpo_gym.policies.likelihood import computing_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@runtime_checkable
class StateReader(Protocol):
    """A policy on which a critic can be trained.

    Attributes:
        state_size: the width of a state; None if a state is an id, and the critic a table.
    """

    @property
    def state_size(self) -> int | None: ...

    def states(
        self, records: Sequence[TokenRecord], response_lengths: Sequence[int], *, max_batch_tokens: int, precision: str
    ) -> np.ndarray:
        """Return float32[N, state_size], or int64[N] of ids: for each record the state after its prompt and the first
        `response_lengths` tokens of its response."""


@torch.inference_mode()
def hidden_states(
    model: "PreTrainedModel",
    records: Sequence[TokenRecord],
    response_lengths: Sequence[int],
    *,
    max_batch_tokens: int,
    precision: str = "float32",
) -> np.ndarray:
    """Return float32[N, D]: the last hidden state, the input of the output layer, at the last of these tokens.

    Args:
        model: a causal language model.
        records: prompts and responses.
        response_lengths: the number of tokens of each response that are read too.
        max_batch_tokens: padded tokens in one forward pass.
        precision: the format of the computation, `float32` (as the weights are) or `bfloat16`.
    """
    model.eval()
    texts = [
        np.concatenate((record.prompt_ids, record.token_ids[:count]))
        for record, count in zip(records, response_lengths, strict=True)
    ]
    states = np.zeros((len(texts), state_size(model)), dtype=np.float32)
    for batch in length_sorted_batches([len(text) for text in texts], max_batch_tokens):
        last_tokens = np.array([len(texts[index]) for index in batch]) - 1
        ids = np.zeros((len(batch), last_tokens.max() + 1), dtype=np.int64)
        for row, index in enumerate(batch):
            ids[row, : len(texts[index])] = texts[index]
        # The padding is on the right, where causal attention never looks.
        with computing_in(precision, model):
            tokens = torch.from_numpy(ids).to(model.device)
            hidden = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        states[batch] = hidden[np.arange(len(batch)), last_tokens].float().cpu().numpy()
    return states


def state_size(model: "PreTrainedModel") -> int:
    """Return D, the width of the model's last hidden state."""
    return int(model.config.get_text_config().hidden_size)
