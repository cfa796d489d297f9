"""Rollout worker: plays the episodes of an iteration, in the trainer's process or another one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hgpo_gym.advantages import Advantages, StepBatch, assign
from hgpo_gym.advantages.statistics import mean_over_copies, means_of_copies
from hgpo_gym.policies.base import Policy
from hgpo_gym.processes import ALONE, Processes
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.plans import with_plan_tokens
from hgpo_gym.rollouts.recording import ENTROPY, REWARD_VECTOR, with_reward_vector
from hgpo_gym.rollouts.rollout import Rollout, merge
from hgpo_gym.rollouts.rounds import Rounds, collect_rounds
from hgpo_gym.rollouts.samplers import Outcomes, make_sampler
from hgpo_gym.rollouts.shaping import shape
from hgpo_gym.rollouts.teams import TEAMS
from hgpo_gym.trainers.columns import needed_columns, recorded_columns
from hgpo_gym.trainers.environments import make_training_env, training_tasks
from hgpo_gym.trainers.settings import RunSettings

Assign = Callable[[Rollout], np.ndarray]
"""Returns the advantages float64[N] of a rollout, for samplers that read them."""


class RolloutWorker:
    """The training environments of a run and the policy that acts in them.

    Args:
        run: the settings.
        policy: the acting policy.
        processes: the processes that collect together; each plays different groups.
    """

    def __init__(self, run: RunSettings, policy: Policy, processes: Processes = ALONE):
        self.run, self.policy, self.processes = run, policy, processes
        self.env = make_training_env(run.environments, processes)
        self.sampler = make_sampler(run.sampler, training_tasks(run.rollout.train_tasks, self.env), run.seed)
        self.team = TEAMS.bind(run.team)()
        self.needs = needed_columns(run.algo, run.shaping)
        self.record = recorded_columns(run.algo, run.shaping, run.rollout.record)

    def collect(self, iteration: int, outcomes: Outcomes, assign: Assign) -> Rounds:
        """Return the merged episodes of all processes.

        Args:
            iteration: counted from 0.
            outcomes: the outcomes of earlier iterations.
            assign: see `Assign`.
        """
        started = time.perf_counter()
        collected = collect_rounds(
            self.play,
            self.sampler,
            iteration=iteration,
            num_tasks=self.run.rollout.num_tasks,
            outcomes=outcomes,
            assign=assign,
            max_failed=self.run.rollout.max_failed,
        )
        return replace(collected, seconds=time.perf_counter() - started)

    def play(self, task_ids: list[str], seeds: list[tuple[int, ...]]) -> Rollout:
        """Play a group of each task, shared over all processes."""
        local_task_ids, local_seeds = self.processes.share(task_ids), self.processes.share(seeds)
        return merge(self.processes.each(lambda: self._play_local(local_task_ids, local_seeds)))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def _play_local(self, task_ids: Sequence[str], seeds: Sequence[tuple[int, ...]]) -> Rollout:
        """Play the groups of this process."""
        rollout = self.sampler.collector.collect(
            self.env,
            self.policy,
            self.run.rollout.sampling,
            task_ids=task_ids,
            seeds=seeds,
            invalid_action_penalty=self.run.trainer.invalid_action_penalty,
            team=self.team,
            record=[name for name in self.record if name != ENTROPY],
            max_retries=self.run.rollout.max_retries or 0,
        )
        if self.run.prompt.subgoals is not None:
            rollout = with_plan_tokens(rollout, self.policy)
        if REWARD_VECTOR in self.needs:
            rollout = with_reward_vector(rollout, self.run.credit.rewards, self.run.env.step_limit)
        return rollout


def assign_credit(algo: Choice, shaping: Choice, rollout: Rollout) -> tuple[StepBatch, Advantages]:
    """Return the batch that credit assignment uses, and its advantages. A response that several branching episodes
    share has the mean of its advantages."""
    batch = shape(shaping, rollout)
    credit = assign(algo.name, batch, **algo.options)
    extras = {name: mean_over_copies(batch, values) for name, values in credit.extras.items()}
    tokens = credit.tokens if credit.tokens is None else means_of_copies(batch, credit.tokens)
    return batch, credit._replace(values=mean_over_copies(batch, credit.values), extras=extras, tokens=tokens)


def reads_rewards(algo: Choice, batch: StepBatch, credit: Advantages) -> bool:
    """Return True if the estimator's advantages depend on the rewards of the batch."""
    # Compare with advantages of random rewards: an estimator cannot match them by chance.
    random_rewards = replace(batch, reward=np.random.default_rng(0).random(len(batch)))
    values = assign(algo.name, random_rewards, **algo.options).values
    return not np.array_equal(mean_over_copies(batch, values), credit.values)
