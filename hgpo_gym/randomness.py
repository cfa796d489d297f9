"""Streams of random numbers. Every generator is seeded by (stream, seed, purpose), not by an earlier generator.

A resumed run therefore needs no random state, and draws in one part do not shift those in another. Never reuse or
change a stream's number: that changes the results of every seed.

Policies draw actions and tokens by SplitMix64 from (stream, ..., member, response), see `policies.sampling`; all else
is drawn by NumPy's default generator.
"""

from enum import IntEnum


class RandomStream(IntEnum):
    """The first number of a generator's seed."""

    TASKS = 1
    """(seed, lap): the order of tasks. Later rounds of a sampler: (seed, iteration, round)."""
    ROLLOUT = 2
    """(seed, iteration, group): the episodes that are learned from."""
    EVALUATION = 3
    """(decoding seed, task): the episodes of an evaluation."""
    WARM_START = 4
    """(model seed, episode): the episodes that are imitated."""
    SHUFFLE = 5
    """(seed, iteration): the order of rows in an update, and dropout."""
    OBJECTIVE = 6
    """(seed, iteration): what an objective draws before an update."""
    SAMPLER = 7
    """(seed, iteration): which episodes and steps a sampler keeps."""
    TREE = 8
    """(seed, iteration, group, round): where a tree branches."""
    MEASURE = 9
    """(seed, group): the episodes before training that tell how hard each task is."""
    EXACT_ROLLOUT = 10
    """(seed): estimator bias by dynamic programming: its episodes ..."""
    EXACT_BATCH = 11
    """(seed): ... and how groups are put into batches."""
    SAMPLED_EPISODE = 12
    """(seed, stage): estimator bias by continuations: its episodes ..."""
    SAMPLED_GROUP = 13
    """(seed, group size): ... and which of them make a group."""
    EXACT_RESTART = 14
    """(seed): estimator bias by dynamic programming: continuations that sample values."""
    RESTART = 15
    """(seed, iteration, group, member): continuations of a rollout that sample values; without the member, which steps
    they begin at."""
    SAMPLED_RESTART = 16
    """(seed, stage): estimator bias by continuations: those that an estimator's values are sampled by."""
    SAMPLED_POOL = 17
    """(seed): estimator bias by continuations: the random actions where none are listed."""
    CRITIC = 18
    """(seed, column): a critic's first weights; (seed, iteration, column): the order in which it learns."""
    CREDIT_BENCHMARK = 19
    """(seed, environment): the benchmark of credit assignment: its tasks, ...; with (stage, task): ... its episodes."""
