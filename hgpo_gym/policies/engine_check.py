"""Check that an engine and the trainer's model give the same log-probabilities to a fixed text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hgpo_gym.policies.base import TokenRecord
from hgpo_gym.policies.likelihood import score

if TYPE_CHECKING:
    from hgpo_gym.policies.language_model import LanguageModelPolicy

CHECKED_LOADS = 4
"""The number of weight loads that are checked: the first, and those after the first three updates."""
TEXT = "You are in a hall. A red door leads north, a blue door leads east. What do you do next? Answer in one sentence."
LONGEST = 64
TOLERANCE, TOLERANCE_IN_16_BITS = 0.1, 0.3
"""Nats, the mean over tokens. Formats alone make 1e-5 in float32 and 0.02 in bfloat16; other weights, several nats."""
NAMED = 8


def text_to_score(policy: "LanguageModelPolicy", longest: int) -> np.ndarray:
    """Return the tokens of `TEXT`, int64[at most LONGEST and at most `longest`]."""
    (ids,) = policy.encode_prompts([TEXT])
    return ids[: min(LONGEST, longest)]


def trainers_logprobs(policy: "LanguageModelPolicy", ids: np.ndarray) -> np.ndarray:
    """Return the trainer's log-probability of each token but the first, float32[tokens - 1]."""
    record = TokenRecord(ids[:1], ids[1:], np.zeros(len(ids) - 1, dtype=np.float32), None)
    (logprobs,) = score(policy, [record], temperature=1.0, max_batch_tokens=len(ids))
    return logprobs


def check_engine(
    engines: Sequence[float], trainers: "np.ndarray", *, exact: bool, architecture: str, missing: Sequence[str]
) -> None:
    """Compare log-probabilities of the same tokens.

    Args:
        engines, trainers: from the engine and from the trainer's model.
        exact: True if both compute in float32.
        architecture: the model's class.
        missing: names of the engine's weights that were not loaded.

    Raises:
        ValueError: the mean difference is above the tolerance of the number format.
    """
    gap, tolerance = float(np.abs(np.array(engines) - trainers).mean()), TOLERANCE if exact else TOLERANCE_IN_16_BITS
    if gap <= tolerance:  # which NaN is not
        return
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        why = f"vLLM has weights that were not loaded: {', '.join(missing[:NAMED])}{more}."
    else:
        why = "All of vLLM's weights were loaded, but it computes another function of them."
    raise ValueError(
        f"engine=vllm does not play by the weights of this {architecture}: its log-probabilities of {len(engines)} "
        f"tokens differ from the trainer's by {gap:.3g} nats on average, {tolerance} are allowed in "
        f"{'float32' if exact else '16 bits'}. {why} Set engine=transformers."
    )
