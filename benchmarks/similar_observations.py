"""Time of `memory.similarity` on a published-size batch: 128 episodes x 50 steps, 16 task groups, K = 2.

    python -m benchmarks.similar_observations

Observations are search results: a query and three passages of 150 words, of few or of many passages a group. Prints the
seconds of a core that `cluster_observations` takes by words at threshold 0.9, and how many times as long the rule takes
without bounds, on 100 texts of a group. The ratio carries over between machines, seconds do not.
"""

import time
from difflib import SequenceMatcher

import numpy as np

from hgpo_gym.advantages import StepBatch, cluster_observations
from hgpo_gym.memory.similarity import leaders

GROUPS, EPISODES, STEPS, THRESHOLD = 16, 128, 50, 0.9
WORDS, PASSAGE, COMPARED = 5_000, 150, 100


def make_batch(passages: int, generator: np.random.Generator) -> StepBatch:
    """Return a batch whose groups have so many passages each."""
    vocabulary = np.array([f"word{number}" for number in range(WORDS)])
    # Words are as frequent as in prose: the r-th has a share of about 1 / r.
    share = 1 / np.arange(1, WORDS + 1)
    rows = []
    for group in range(GROUPS):
        pool = [" ".join(generator.choice(vocabulary, PASSAGE, p=share / share.sum())) for _ in range(passages)]
        for episode in range(EPISODES // GROUPS):
            for step in range(STEPS):
                found = " ".join(pool[index] for index in generator.choice(passages, 3, replace=False))
                query = " ".join(generator.choice(vocabulary, 5))
                rows.append((group, group * EPISODES + episode, step, f"You searched {query}. {found}"))
    return StepBatch.from_records(
        group=[group for group, *_ in rows],
        trajectory=[trajectory for _, trajectory, *_ in rows],
        step=[step for *_, step, _ in rows],
        observation=[observation for *_, observation in rows],
        reward=[0.0] * len(rows),
        history_length=2,
    )


def plain_leaders(texts: list[str]) -> list[int]:
    """Return the index of each text's leader by the rule alone."""
    words, leader_of, found = [text.split() for text in texts], list(range(len(texts))), list[int]()
    for index, text in enumerate(words):
        for leader in found:
            if SequenceMatcher(None, text, words[leader], autojunk=False).ratio() >= THRESHOLD:
                leader_of[index] = leader
                break
        else:
            found.append(index)
    return leader_of


def main() -> None:
    generator = np.random.default_rng(0)
    for passages in (4, 12):
        batch = make_batch(passages, generator)
        texts = batch.texts or {}
        began = time.process_time()
        clustered = cluster_observations(batch, texts, THRESHOLD)
        whole = time.process_time() - began
        some = list(texts.values())[:COMPARED]
        began = time.process_time()
        found = leaders(some, THRESHOLD).tolist()
        bounded = time.process_time() - began
        began = time.process_time()
        expected = plain_leaders(some)
        plain = time.process_time() - began
        states = len(np.unique(clustered.context_keys[:, 0]))
        print(
            f"{passages:2} passages a group: {len(texts):,} texts become {states:,} states in {whole:.1f} s; without "
            f"bounds {plain / bounded:.0f} times as long, {'same' if found == expected else 'OTHER'} states"
        )


if __name__ == "__main__":
    main()
