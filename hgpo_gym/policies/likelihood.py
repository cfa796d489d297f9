"""Log-probabilities of answers, token by token, without padding in what comes out."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hgpo_gym.policies.base import Likelihood, LikelihoodModel, TokenRecord
from hgpo_gym.policies.batching import by_adapter, length_sorted_batches
from hgpo_gym.policies.sampling import likelihood_of_drawn, power_sums, restrict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS_AT_ONCE = 2**25
"""With the vocabulary of a pretrained model, the logits of a batch's answers can take more memory than all else. More
than these (128 MiB in float32, and a few times that on the way to the loss) are computed in pieces."""
SUMS = {"norm_squared", "sum_squared", "sum_cubed"}
"""What a likelihood holds only where it is asked for."""


def likelihood(
    model: "PreTrainedModel",
    records: Sequence[TokenRecord],
    *,
    temperature: float = 1.0,
    sums: bool = False,
) -> Likelihood:
    """The likelihood of the recorded answers under a language model, in one forward pass: among the tokens that were
    allowed, where the records have them.

    Args:
        model: a causal language model.
        records: prompts and answers; every one must have at least one choice.
        temperature: the one that the answers were drawn with.
        sums: with `norm_squared`, `sum_squared` and `sum_cubed`.
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
            drawn = (ids_of_columns == drawn[:, None]).int().argmax(1)
        result = likelihood_of_drawn(logits, drawn)
        if not sums:
            return result
        # Logits are linear in states / temperature.
        return (*result, states.float().square().sum(-1) / temperature**2, *power_sums(logits))

    size = max(1, LOGITS_AT_ONCE // model.config.get_text_config().vocab_size)
    logprobs, entropy, *more = _in_pieces(of_drawn, size, (hidden[rows, columns - 1], tokens, allowed))
    return Likelihood(logprobs, entropy, torch.from_numpy(rows).to(device), *more)


def head_logits(model: "PreTrainedModel", states: torch.Tensor) -> torch.Tensor:
    """float32[..., vocabulary]: the logits of last hidden states, whatever the model computes in. Some models scale or
    cap what their output embeddings say, by settings of these names."""
    config = model.config.get_text_config()
    logits = model.get_output_embeddings()(states).float()
    logits = logits * (getattr(config, "logit_scale", None) or 1.0)  # Cohere
    logits = logits / (getattr(config, "logits_scaling", None) or 1.0)  # Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _in_pieces(
    function: Callable[..., tuple[torch.Tensor, ...]], size: int, arguments: tuple[Any, ...]
) -> list[torch.Tensor]:
    """The function of arguments that have an entry a token, `size` tokens at a time. A single piece is kept for the
    backward pass, several are computed again there."""
    count = len(arguments[0])
    if count <= size or not torch.is_grad_enabled():
        call = function
    else:
        call = partial(checkpoint, function, use_reentrant=False)
    starts = range(0, count, size)
    pieces = [call(*(values[start : start + size] for values in arguments)) for start in starts]
    return [torch.cat(parts) for parts in zip(*pieces, strict=True)]


def computing_in(precision: str, model: torch.nn.Module) -> AbstractContextManager:
    """With `bfloat16`: matrix products in it, everything that sums over many numbers in float32, as torch's autocast
    has it. The weights stay what they are, so float32 weights keep the small changes that bfloat16 would round away.
    With `float32`: as the weights are."""
    device = next(model.parameters()).device.type
    return torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bfloat16")


@torch.inference_mode()
def measure(
    policy: LikelihoodModel,
    records: Sequence[TokenRecord],
    names: Sequence[str],
    *,
    temperature: float,
    max_batch_tokens: int,
    precision: str = "float32",
) -> list[dict[str, np.ndarray]]:
    """For each record, by name, float32[C] of its choices: the fields of `Likelihood` that are named, without
    gradients."""
    policy.model.eval()
    sums = bool(SUMS & set(names))
    measured: list[dict[str, np.ndarray]] = [{}] * len(records)
    batches = [
        [own[place] for place in batch]
        for own in by_adapter(range(len(records)), lambda index: records[index].adapter)
        for batch in length_sorted_batches([len(records[index]) for index in own], max_batch_tokens)
    ]
    for batch in batches:
        with computing_in(precision, policy.model):
            result = policy.likelihood([records[index] for index in batch], temperature=temperature, sums=sums)
        counts = [len(records[index].choices) for index in batch]
        columns = [torch.split(getattr(result, name).cpu(), counts) for name in names]
        for index, values in zip(batch, zip(*columns, strict=True), strict=True):
            measured[index] = {name: value.numpy() for name, value in zip(names, values, strict=True)}
    return measured


def score(
    policy: LikelihoodModel,
    records: Sequence[TokenRecord],
    *,
    temperature: float,
    max_batch_tokens: int,
    precision: str = "float32",
) -> list[np.ndarray]:
    """float32[C] for each record: the log-probabilities of its choices, without gradients."""
    options: dict[str, Any] = {"max_batch_tokens": max_batch_tokens, "precision": precision}
    return [own["logprobs"] for own in measure(policy, records, ("logprobs",), temperature=temperature, **options)]
