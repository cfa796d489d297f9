"""Counts of states over a run: what they count, and that a resumed run goes on with them."""

from collections import Counter
from dataclasses import replace

import numpy as np

from hgpo_gym.advantages.values import is_last
from hgpo_gym.rollouts.rollout import EpisodeOutcome, Rollout
from hgpo_gym.trainers.state_counts import StateCounts
from tests.support.small_runs import numbers, training_numbers, whole_and_resumed
from tests.support.step_batches import random_batch


def rollout_of(seed: int) -> Rollout:
    batch = random_batch(seed)
    batch = replace(batch, trajectory=batch.trajectory_labels)
    tasks = batch.group_labels[batch.first_rows].tolist()
    episodes = tuple(EpisodeOutcome(f"task {task}", "", False, 0.0, 1, 1) for task in tasks)
    return Rollout(batch=batch, tokens=(), steps=(), episodes=episodes)


def test_an_episode_counts_once_in_each_of_its_states_its_final_one_included():
    counts, total, wins, episodes = StateCounts(), Counter(), Counter(), 0
    for seed in range(12):
        rollout = rollout_of(seed)
        batch, extras = rollout.batch, counts.counted(rollout).batch.extras
        task, here, ends = batch.group_labels, batch.context_keys[:, 0], batch.final_keys[:, 0]
        states = [(task[row], here[row]) for row in range(len(batch))]
        following = [
            (task[row], ends[row])
            if is_last(batch)[row]
            else states[
                np.flatnonzero((batch.trajectory == batch.trajectory[row]) & (batch.step == batch.step[row] + 1))[0]
            ]
            for row in range(len(batch))
        ]
        assert extras["state_total"].tolist() == [total[state] for state in states]
        assert extras["state_wins"].tolist() == [wins[state] for state in states]
        assert extras["next_total"].tolist() == [total[state] for state in following]
        assert extras["next_wins"].tolist() == [wins[state] for state in following]
        assert extras["episodes_seen"].tolist() == [episodes] * len(batch)
        counts.add(rollout)
        episodes += len(rollout.episodes)
        for episode in range(len(rollout.episodes)):
            rows = np.flatnonzero(batch.trajectory == episode)
            visited = {states[row] for row in rows} | {(task[rows[0]], ends[rows[0]])}
            total.update(visited)
            wins.update(visited if batch.success[rows[0]] else ())


def test_a_resumed_run_has_the_numbers_and_counts_of_an_undisturbed_one(tmp_path):
    whole, resumed = whole_and_resumed(tmp_path, "env.sections=1", "evaluation.every=0", "algo=state_scores")
    assert training_numbers(resumed) == training_numbers(whole)
    files = [run / "checkpoints" / "iteration_0004" / "state_counts.npz" for run in (resumed, whole)]
    assert files[0].read_bytes() == files[1].read_bytes()
    with np.load(files[0]) as counts:
        assert counts["episodes"] == 4 * numbers(whole)[0]["episodes"]
        assert (counts["counts"][:, 1] <= counts["counts"][:, 0]).all()
