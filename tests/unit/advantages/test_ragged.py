"""One long episode among short ones: the work of its steps, and not of a table of all episodes by all places."""

import tracemalloc

import numpy as np
import pytest

from hgpo_gym.advantages import ESTIMATORS, StepBatch, estimate
from hgpo_gym.advantages.statistics import later_in_sequence, members_of
from tests.support.step_batches import with_neutral_columns

LENGTHS: tuple[list[int], ...] = (
    [5] * 6, [1], [], [3, 1, 2], [400, *[5] * 40], [30, 30, *[1] * 100], list(range(1, 30)),
)  # fmt: skip


@pytest.mark.parametrize("factor", [0.0, 0.95, 1.0])
def test_sums_of_later_values_are_those_of_a_loop_to_the_last_bit(factor):
    generator = np.random.default_rng(0)
    for lengths in LENGTHS:
        sequence = np.repeat(np.arange(len(lengths)), np.array(lengths, dtype=np.int64))
        place = np.concatenate([np.arange(0), *map(np.arange, lengths)])
        values = generator.normal(size=len(place)) * (generator.random(len(place)) < 0.5)  # -0.0 among them
        expected = np.zeros(len(place))
        for row in range(len(place) - 2, -1, -1):
            if sequence[row + 1] == sequence[row]:
                expected[row] = values[row + 1] + factor * expected[row + 1]
        order = generator.permutation(len(place))
        actual = later_in_sequence(values[order], sequence[order], place[order], factor)
        assert actual.tobytes() == expected[order].tobytes()


def batch(lengths):
    count = sum(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    columns = {
        "group": (episode % 4).tolist(),
        "trajectory": episode.tolist(),
        "step": np.concatenate([np.arange(length) for length in lengths]).tolist(),
        "observation": [f"place {number}" for number in np.random.default_rng(0).integers(50, size=count)],
        "reward": (episode % 3 == 0).astype(float).tolist(),
    }
    return StepBatch.from_records(history_length=2, **with_neutral_columns(columns))


def peak_bytes(name, steps):
    tracemalloc.start()
    estimate(name, steps)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_long_episode_takes_no_more_memory_than_as_many_steps_of_short_ones(subtests):
    ragged, even = batch([2000, *[5] * 200]), batch([15] * 200)
    assert len(ragged) == len(even)
    for name in ESTIMATORS:
        with subtests.test(name):
            peak_bytes(name, even)  # what is made once
            assert peak_bytes(name, ragged) < 2 * peak_bytes(name, even)


def test_members_of_each_set():
    groups = np.array([1, 0, 1, 2, 0])
    assert [rows.tolist() for rows in members_of(groups)] == [[1, 4], [0, 2], [3]]
    assert members_of(groups[:0]) == []
