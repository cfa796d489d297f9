"""Log-probabilities of responses, token by token, without padding in the result."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hgpo_gym.policies.base import (
    DistributionReader,
    Distributions,
    Likelihood,
    LikelihoodModel,
    TokenReading,
    TokenRecord,
    column_of,
)
from hgpo_gym.policies.batching import by_adapter, length_sorted_batches
from hgpo_gym.policies.sampling import likelihood_of_drawn, read_likelihood, restrict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS_AT_ONCE = 2**25
"""The most logits at a time (128 MiB in float32, and a few times that up to the loss); more are computed in pieces.
With a large vocabulary, the logits of a batch can take more memory than all else."""


def likelihood(model: "PreTrainedModel", records: Sequence[TokenRecord], *, temperature: float = 1.0) -> Likelihood:
    """Return the likelihood of the recorded responses under a language model, see `read_distributions`."""
    logprobs, entropy = read_distributions(model, records, read_likelihood, temperature=temperature)
    rows = np.repeat(np.arange(len(records)), [len(record.choices) for record in records])
    return Likelihood(logprobs, entropy, torch.from_numpy(rows).to(model.device))


def read_distributions(
    model: "PreTrainedModel",
    records: Sequence[TokenRecord],
    reader: Callable[[Distributions], tuple[torch.Tensor, ...]],
    *,
    temperature: float,
) -> list[torch.Tensor]:
    """Return what `reader` computes from the distributions of the recorded responses under a language model, in one
    forward pass. If a record lists allowed tokens, the probabilities are renormalised over them.

    Args:
        model: a causal language model.
        records: prompts and responses; each must have at least one choice.
        reader: called with the distributions of some of the tokens at a time.
        temperature: the temperature with which the responses were drawn.
    """
    device = model.device
    ids = np.zeros((len(records), max(map(len, records))), dtype=np.int64)
    for row, record in enumerate(records):
        ids[row, : len(record)] = np.concatenate((record.prompt_ids, record.token_ids))
    choices = [record.choices for record in records]
    rows = np.repeat(np.arange(len(records)), [len(positions) for positions in choices])
    # The padding is on the right, where causal attention never looks; position p - 1 predicts the token at p.
    columns = np.concatenate(
        [len(record.prompt_ids) + positions for record, positions in zip(records, choices, strict=True)]
    )
    tokens = torch.from_numpy(ids[rows, columns]).to(device)
    hidden = model.get_decoder()(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
    allowed = [
        None if record.allowed is None else record.allowed[position]
        for record, positions in zip(records, choices, strict=True)
        for position in positions
    ]

    def of_drawn(
        states: torch.Tensor, drawn: torch.Tensor, allowed: list[np.ndarray | None]
    ) -> tuple[torch.Tensor, ...]:
        logits = head_logits(model, states) / temperature
        logits, ids_of_columns = restrict(logits, allowed)
        if ids_of_columns is not None:
            # Padding has the id 0 too, but stands after the allowed tokens; argmax returns the first match.
            drawn = (ids_of_columns == drawn[:, None]).int().argmax(1)
        return reader(Distributions(logits, drawn, states, temperature))

    size = max(1, LOGITS_AT_ONCE // model.config.get_text_config().vocab_size)
    return _in_pieces(of_drawn, size, (hidden[rows, columns - 1], tokens, allowed))


def head_logits(model: "PreTrainedModel", states: torch.Tensor) -> torch.Tensor:
    """Return the logits float32[..., vocabulary] of last hidden states, in any precision of the model. Some models
    scale or cap the output of their output embeddings, by these settings."""
    config = model.config.get_text_config()
    logits = model.get_output_embeddings()(states).float()
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if divisor := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / divisor
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _in_pieces(
    function: Callable[..., tuple[torch.Tensor, ...]], size: int, arguments: tuple[Any, ...]
) -> list[torch.Tensor]:
    """Return the function's results, computed for `size` tokens at a time; each argument has an entry a token. Several
    pieces are computed again in the backward pass; a single one is kept for it."""
    count = len(arguments[0])
    # Without gradients nothing is kept for a backward pass, so that checkpointing would only cost time.
    if count <= size or not torch.is_grad_enabled():
        call = function
    else:
        call = partial(checkpoint, function, use_reentrant=False)
    starts = range(0, count, size)
    pieces = [call(*(values[start : start + size] for values in arguments)) for start in starts]
    return [torch.cat(parts) for parts in zip(*pieces, strict=True)]


def computing_in(precision: str, model: torch.nn.Module) -> AbstractContextManager:
    """Return a context with this precision.

    `bfloat16`: matrix products are in bfloat16 and long sums in float32, as in torch's autocast. The weights keep their
    format, so that float32 weights keep the small changes that bfloat16 would round away. `float32`: the format of the
    weights.
    """
    device = next(model.parameters()).device.type
    return torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bfloat16")


@torch.inference_mode()
def measure(
    policy: LikelihoodModel,
    records: Sequence[TokenRecord],
    readers: Sequence[str | TokenReading],
    *,
    temperature: float,
    max_batch_tokens: int,
    precision: str = "float32",
) -> list[dict[str, np.ndarray]]:
    """Return columns by name for each record: float32[C] of its choices, without gradients.

    Args:
        readers: `logprobs`, `entropy`, or functions that compute a column from the distributions.

    Raises:
        TypeError: the policy does not give the distributions that a function reads.
    """
    policy.model.eval()
    measured: list[dict[str, np.ndarray]] = [{}] * len(records)
    batches = [
        [group[position] for position in batch]
        for group in by_adapter(range(len(records)), lambda index: records[index].adapter)
        for batch in length_sorted_batches([len(records[index]) for index in group], max_batch_tokens)
    ]
    for batch in batches:
        with computing_in(precision, policy.model):
            result = _read(policy, [records[index] for index in batch], readers, temperature)
        counts = [len(records[index].choices) for index in batch]
        columns = {name: torch.split(values.cpu(), counts) for name, values in result.items()}
        for position, index in enumerate(batch):
            measured[index] = {name: parts[position].numpy() for name, parts in columns.items()}
    return measured


def _read(
    policy: LikelihoodModel, records: Sequence[TokenRecord], readers: Sequence[str | TokenReading], temperature: float
) -> dict[str, torch.Tensor]:
    """Return the columns float32[T] that `readers` ask for, by name."""
    names = list(map(column_of, readers))
    if all(isinstance(reader, str) for reader in readers):
        result = policy.likelihood(records, temperature=temperature)
        return {name: getattr(result, name) for name in names}
    if not isinstance(policy, DistributionReader):
        raise TypeError(
            f"{type(policy).__name__} has no read_distributions(), which the columns {', '.join(names)} are computed "
            "by. Choose another objective, or add the method."
        )

    def read_all(distributions: Distributions) -> tuple[torch.Tensor, ...]:
        drawn = likelihood_of_drawn(distributions.logits, distributions.drawn)
        return tuple(getattr(drawn, reader) if isinstance(reader, str) else reader(distributions) for reader in readers)

    columns = policy.read_distributions(records, read_all, temperature=temperature)
    return dict(zip(names, columns, strict=True))


def score(
    policy: LikelihoodModel,
    records: Sequence[TokenRecord],
    *,
    temperature: float,
    max_batch_tokens: int,
    precision: str = "float32",
) -> list[np.ndarray]:
    """Return the log-probabilities float32[C] of each record's choices, without gradients."""
    options: dict[str, Any] = {"max_batch_tokens": max_batch_tokens, "precision": precision}
    return [
        values["logprobs"] for values in measure(policy, records, ("logprobs",), temperature=temperature, **options)
    ]
