"""Soft baselines of steps with similar words."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.columns import needs, over_the_batch
from hgpo_gym.advantages.similar import texts_of_keys
from hgpo_gym.advantages.statistics import (
    discounted_returns,
    episode_advantage,
    mean_of_group,
    mean_over_copies,
    members_of,
    snap_equal,
    success,
)

_WORD = re.compile(r"\b\w\w+\b")


@needs("texts")
@over_the_batch
def proxmo(
    batch: StepBatch,
    *,
    gamma: float = 0.95,
    temperature: float = 0.1,
    alpha: float = 4.0,
    beta: float = 0.1,
    w_group: float = 1.0,
    w_step: float = 1.0,
    norm: str = "mean_norm",
    episode_statistics: str = "steps",
) -> np.ndarray:
    """ProxMO (arXiv:2602.19225): steps relative to those with similar words, episodes weighted by the group's success.

        A = w_group w A_episode + w_step (x_i - sum_j softmax_j(cos(i, j) / temperature) x_j),   x = G - p
        w = 1 + beta (sigmoid((1 - q)^alpha) - 1/2) if won,   1 + beta (sigmoid(-q^alpha) - 1/2) if lost

    over the steps j of the task group, i included; q is the group's share of successes and p the step's penalty. cos
    compares the words of two observations: their counts times ln((1 + n) / (1 + df)) + 1, where df of the batch's n
    steps have the word. Equal returns in a group give 0. Family: steps with equal histories. Source: code
    (GithubX-F/ProxMO-RL), constants by the paper.

    The code keeps the 1,024 most frequent words, this all of them. It takes the mean return, cut to 1, for q: with a
    reward of 10 that is 1 once a tenth of the steps won. With beta 0.1, w lies between 0.977 and 1.023.

    D distinct texts of V words in a group cost D^2 V multiplications: a second for 3,000 of each, 3 ms for 16 groups of
    20 texts.

    Avoid it where long observations differ in one word that matters, and where one observation stands for several
    situations.

    Args:
        batch: the steps, with `texts`.
        gamma: discount of the returns G, from 0 to 1.
        temperature: above 0; small values compare equal texts alone, large ones all steps of the group.
        alpha: exponent of the shares, 0 or more.
        beta: how much the group's share of successes changes the episode-level term.
        w_group: weight of the episode-level term.
        w_step: weight of the step's term, which nothing divides.
        norm: of the episode-level term, `mean_norm`, or `mean_std_norm` with the division.
        episode_statistics: of the episode-level term and of q, over `steps` or over `trajectories`.

    Returns float64[N]. Raises ValueError on an unknown name, a gamma outside [0, 1], a temperature that is not above 0,
    a negative alpha or a missing text.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: choose a number above 0.")
    if not alpha >= 0:
        raise ValueError(f"alpha={alpha}: choose a number of 0 or more.")
    returns = snap_equal(mean_over_copies(batch, discounted_returns(batch, gamma)), batch.group_labels)
    weight = _episode_weights(batch, alpha, beta, episode_statistics)
    return w_group * weight * episode_advantage(batch, norm, episode_statistics) + w_step * (
        returns - _soft_baseline(batch, returns, temperature)
    )


def _episode_weights(batch: StepBatch, alpha: float, beta: float, episode_statistics: str) -> np.ndarray:
    """Return w float64[N]."""
    rows = batch.first_rows if episode_statistics == "trajectories" else np.arange(len(batch))
    won = success(batch)
    share = np.zeros(batch.group_labels.max(initial=-1) + 1)
    share[batch.group_labels[rows]] = mean_of_group(won[rows].astype(np.float64), batch.group_labels[rows])
    share = share[batch.group_labels]
    exponent = np.where(won, (1 - share) ** alpha, -(share**alpha))
    return 1 + beta * (1 / (1 + np.exp(-exponent)) - 0.5)


def _soft_baseline(batch: StepBatch, returns: np.ndarray, temperature: float) -> np.ndarray:
    """Return the mean of `returns` in each step's task group, weighted by exp(cosine / temperature), float64[N]."""
    keys, text = np.unique(batch.context_keys[:, 0], return_inverse=True)
    text_of_key = texts_of_keys(keys, batch.texts or {})
    counted = np.zeros(len(batch), dtype=np.bool_)
    counted[batch.distinct] = True
    text_of, word_of, value = _word_vectors([text_of_key[key] for key in keys.tolist()], text[counted])
    entries = np.split(np.arange(len(text_of)), np.searchsorted(text_of, np.arange(1, len(keys))))
    baseline = np.empty(len(batch))
    for rows in members_of(batch.group_labels):
        # Steps of equal texts have equal weights: only distinct texts are compared.
        present, place = np.unique(text[rows], return_inverse=True)
        inside = np.concatenate([entries[number] for number in present])
        words, column = np.unique(word_of[inside], return_inverse=True)
        vectors = np.zeros((len(present), len(words)))
        vectors[np.searchsorted(present, text_of[inside]), column] = value[inside]
        cosines = vectors @ vectors.T
        weights = np.exp((cosines - cosines.max(axis=1, keepdims=True)) / temperature)  # exp stays in range
        # Differences to one return: equal returns then have exactly this mean.
        origin = returns[rows].min()
        visits = np.bincount(place, weights=counted[rows], minlength=len(present))
        sums = np.bincount(place, weights=counted[rows] * (returns[rows] - origin), minlength=len(present))
        baseline[rows] = origin + ((weights @ sums) / (weights @ visits))[place]
    return baseline


def _word_vectors(texts: Sequence[str], text: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of the texts' word vectors of length 1: text, word and value, sorted by text.

    Args:
        texts: the distinct texts.
        text: int64[n], which text each step has.
    """
    index_of: dict[str, int] = {}
    counts = [Counter(_WORD.findall(entry.lower())) for entry in texts]
    word = np.array([index_of.setdefault(name, len(index_of)) for words in counts for name in words], dtype=np.int64)
    count = np.array([number for words in counts for number in words.values()], dtype=np.float64)
    text_of = np.repeat(np.arange(len(texts)), [len(words) for words in counts])
    steps_with = np.bincount(word, weights=np.bincount(text, minlength=len(texts))[text_of], minlength=len(index_of))
    value = count * (np.log((1 + len(text)) / (1 + steps_with)) + 1)[word]
    length = np.sqrt(np.bincount(text_of, weights=value**2, minlength=len(texts)))
    return text_of, word, value / length[text_of]
