"""Numbers that benchmarks compute of batches, by hand."""

import pytest

from benchmarks import division, history
from hgpo_gym.advantages.batch import StepBatch


def test_dividing_makes_as_much_of_haste_as_of_winning():
    batch = StepBatch.from_records(
        group=["both", "both", "both", "one", "one"],
        trajectory=["soon", "late", "late", "won", "lost"],
        step=[0, 0, 1, 0, 0],
        reward=[10.0, 0.0, 10.0, 10.0, 0.0],
        observation=["hall", "hall", "cellar", "hall", "hall"],
        history_length=0,
    )
    # Both won: 10 and 9.5 are 0.25 from their mean. One won: 10 and 0 are 5 from theirs. Divided, all are 1.
    assert division.share_among_won(batch, "mean_norm", 0.95) == pytest.approx(0.25 / 5.25)
    assert division.share_among_won(batch, "mean_std_norm", 0.95) == pytest.approx(0.5, abs=1e-5)


def _three_visits_of_a_hall(milestone: list[bool]) -> StepBatch:
    """Two episodes by the cellar and one by the yard, which comes to the hall with a milestone or without."""
    return StepBatch.from_records(
        group=["task"] * 6,
        trajectory=["won", "won", "lost", "lost", "other", "other"],
        step=[0, 1, 0, 1, 0, 1],
        reward=[0.0, 10.0, 0.0, 0.0, 0.0, 4.0],
        observation=["cellar", "hall", "cellar", "hall", "yard", "hall"],
        history_length=1,
        milestone=milestone,
    )


def test_a_level_is_judged_by_what_other_episodes_of_its_sets_came_to():
    batch = _three_visits_of_a_hall([False, False, False, False, True, False])
    observation, history_of_one = (
        dict(zip(history.COUNTS, row, strict=True)) for row in history.counts(batch, gamma=1.0)
    )
    # Two steps in the cellar, three in the hall; by way of the cellar two in the hall.
    assert (observation["compared"], observation["in_twos"], observation["pairs"]) == (5, 2, 2 + 6)
    assert (history_of_one["compared"], history_of_one["in_twos"], history_of_one["pairs"]) == (2, 2, 2)
    # In the hall one of three has reached a milestone, which the way there tells apart.
    assert (observation["pairs_apart"], history_of_one["pairs_apart"]) == (4, 0)
    # Others came to 10 and 0; with the third among them to (0 + 4) / 2 and (10 + 4) / 2.
    assert history_of_one["known"] == 2
    assert history_of_one["squares"] == 10**2 + 10**2
    assert history_of_one["squares_of_level_0"] == (10 - 2) ** 2 + (0 - 7) ** 2
    averaged = (2 + 2 * 0) / 3, (7 + 2 * 10) / 3
    assert history_of_one["squares_averaged"] == pytest.approx((10 - averaged[0]) ** 2 + averaged[1] ** 2)
